"""Opening a workspace file: its results are kept here, its plan becomes the plan of this session.

Notable:
- results go into the history at once; the plan changes only when its rows have loaded and are
  those that were measured, so that a file from elsewhere takes nothing away
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import BinaryIO

import pandas as pd
import streamlit as st

from pages.shared import data, state
from pages.shared.text import plain
from pages.shared.widgets import chart, download, draw_asked, table, to_tune
from tuning.jobs.store import Store, StoreError
from tuning.plan.batch import batch_rows
from tuning.plan.numbers import many, moment
from tuning.plan.plan import TuningPlan
from tuning.report import render_report, tables_of
from tuning.report.figures.plotly_figure import plotly_figure
from tuning.report.figures.sweep import sweep_chart
from tuning.workspace.file import read_workspace
from tuning.workspace.here import take_in
from tuning.workspace.workspace import Workspace, WorkspaceError

_FILE, _OPENED = "share_file", "share_opened"
_SHOWN = ("candidates", "evidence")


@dataclass(frozen=True)
class OpenedWorkspace:
    """A file that was given.

    workspace:  without its rows, which are kept on disk; None where the file was refused
    plan:       as it opens here
    loading:    its rows have not loaded yet
    error:      why it was refused, or why its rows are not here
    """

    name: str
    workspace: Workspace | None = None
    plan: TuningPlan | None = None
    new_points: int = 0
    loading: bool = False
    error: str = ""


def draw_open() -> None:
    """The uploader, and what became of the file."""
    st.header("Open a workspace", anchor=False)
    file = st.file_uploader("A workspace file", type=["zip"], key="share_upload")
    if file is not None and st.session_state.get(_FILE) != file.file_id:
        st.session_state[_FILE] = file.file_id
        st.session_state[_OPENED] = _taken(file, file.name)
    opened: OpenedWorkspace | None = st.session_state.get(_OPENED)
    if opened is not None and opened.loading:
        opened = _followed(opened)
    if opened is None:
        st.caption("Its results join those here, its plan becomes yours; Undo brings yours back.")
    elif opened.workspace is None:
        st.error(f"{plain(opened.error)} Everything here is as it was.", icon=":material/error:")
    elif not opened.loading:
        _draw_opened(opened, opened.workspace)


def _taken(file: BinaryIO, name: str) -> OpenedWorkspace:
    """Read the file and keep what it carries."""
    try:
        workspace = read_workspace(file, name)
        taken = take_in(workspace, Store())
    except (WorkspaceError, StoreError) as error:
        return OpenedWorkspace(name, error=str(error))
    data.forget(taken.plan.source)
    return OpenedWorkspace(
        name, replace(workspace, rows=None), taken.plan, taken.new_points, loading=True
    )


def _followed(opened: OpenedWorkspace) -> OpenedWorkspace:
    """Load the rows; the plan is taken when they are those that were measured."""
    assert opened.workspace is not None and opened.plan is not None
    plan = opened.plan
    if state.waits(plan.source):
        draw_asked(plan.source, partial(state.allow, plan.source), "share")
        return opened
    task = data.task_of(plan.source)
    data.follow(task)
    known = opened.workspace.fingerprint
    if task.result is None:
        error = task.error or "Nothing was loaded."
    elif known and batch_rows(task.result.rows, plan).fingerprint != known:
        error = f"{data.source_name(plan.source)} has other rows here than those of the workspace."
    else:
        error = ""
    ended = replace(opened, loading=False, error=error)
    st.session_state[_OPENED] = ended
    if not error:
        state.update(**{one.name: getattr(plan, one.name) for one in fields(plan)})
        st.rerun()
    return ended


def _draw_opened(opened: OpenedWorkspace, workspace: Workspace) -> None:
    brought = (
        f"{many(len(workspace.points), 'measured point')}, {opened.new_points:,} of them new here"
    )
    brought += ", and a sweep" if workspace.sweep else ""
    said = f"**{plain(opened.name)}**, made {plain(moment(workspace.made_at))}: {brought}."
    if not opened.error:
        st.success(f"Opened {said} Undo brings back your plan.", icon=":material/check_circle:")
        to_tune("See it on the Tune page")
        return
    st.warning(
        f"Kept the results of {said}\n\n**Its rows are not here:** {plain(opened.error)} Your "
        "plan stays as it is. Put the rows in place and open the file again, or have it saved "
        "with its rows.",
        icon=":material/database_off:",
    )
    _draw_results(workspace)


def _draw_results(workspace: Workspace) -> None:
    """What the file tells without its rows."""
    sweep = workspace.sweep
    if sweep is not None and sweep.pick is not None:
        st.markdown(f"**{plain(sweep.pick.reason)}**")
    if sweep is not None and (drawn := sweep_chart(sweep)):
        chart(plotly_figure(drawn), "sweep", drawn.described)
    for one in tables_of(workspace):
        if one.name in _SHOWN:
            lines = [[f"{cell.text} {cell.kind}".strip() for cell in row] for row in one.rows]
            table(pd.DataFrame(lines, columns=list(one.columns)), key=f"share_{one.name}")
    download(
        "Download its report.html",
        lambda: render_report(workspace),
        "report.html",
        "share_report",
        "secondary",
    )
