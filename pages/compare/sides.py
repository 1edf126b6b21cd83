"""The two sides of a comparison: chosen by controls, carried by the URL, loaded, counted.

Notable:
- A is the plan of this session, and B what is changed of it: the URL holds the changes alone, so
  that B follows the plan in everything else; or both are runs of the history
- rows are loaded as the Dataset page loads them, and counted once for all sessions
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import streamlit as st

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.sources.loaded import Loaded
from packing.sources.spec import SourceSpec
from pages.shared import data, state
from pages.shared.text import plain
from pages.shared.widgets import draw_asked
from pages.tune import jobs as tune_jobs
from tuning.jobs.store import Store
from tuning.plan.batch import Batch, batch_rows
from tuning.plan.commands import rows_argument
from tuning.plan.plan import TuningPlan, as_text, options
from tuning.plan.summary import BatchSummary
from tuning.workspace.compare_side import Side, side_of
from tuning.workspace.compare_text import compare_line
from tuning.workspace.history import workspace_of_plan
from tuning.workspace.rows import tags_of
from tuning.workspace.workspace import Source, Workspace, WorkspaceError

FIELDS = {name: option.query for name, option in options().items() if option.scope != "sweep"}
"""Fields that another plan may change, with their names in the URL."""

PACKERS = {"areal": "AReaL's packer", "prefix-aware": "Espalier's packer"}


@dataclass(frozen=True, eq=False)
class Shown:
    """A side as the page draws it; batch, counted: None where the rows are not at hand."""

    plan: TuningPlan
    side: Side
    batch: Batch | None
    counted: BatchSummary | None
    tags: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Pair:
    """What is drawn side by side, and the command that does the same."""

    a: Shown
    b: Shown
    line: str


def other_plan(vs: str) -> TuningPlan:
    """The plan of B: that of the session with the changes that the URL holds."""
    names = ["data"] if vs == "data" else list(FIELDS.values())
    changes = {n: state.other()[f"b.{n}"] for n in names if f"b.{n}" in state.other()}
    plan = state.plan()
    for name, text in changes.items():
        changed, refused = TuningPlan.from_query(plan.to_query() | {name: text})
        plan = plan if refused else changed
        for sentence in refused:
            st.warning(plain(sentence), icon=":material/link_off:")
    return plan


def set_field(field: str, value: object) -> None:
    """Change a field of B; one that is as in the plan is no change."""
    same = value == getattr(state.plan(), field)
    state.set_other({f"b.{FIELDS[field]}": None if same else as_text(value)})


def set_source(source: SourceSpec | None) -> None:
    text = None
    if source is not None:
        state.allow(source)
        text = TuningPlan(source=source).to_query().get("data", rows_argument(source))
    state.set_other({"b.data": text})


def plans(b: TuningPlan, vs: str) -> Pair | None:
    """Two plans, loaded and counted; None while the rows load, or where they cannot be."""
    a = state.plan()
    mine, theirs = data.loaded(), _loaded(b.source)
    if theirs is None:
        return None
    names = ("the plan in use", changes_of(a, b))
    if vs == "data":
        names = (data.source_name(a.source), data.source_name(b.source))
    shown = [
        _shown(one, loaded, name)
        for one, loaded, name in zip((a, b), (mine, theirs), names, strict=True)
    ]
    return Pair(shown[0], shown[1], compare_line(a, b))


def runs(a: str, b: str) -> Pair | None:
    """Two runs of the history; None while their rows load, or where they are gone."""
    store, shown = Store(), []
    for run in (a, b):
        try:
            known = Workspace.of_run(run, store, tune_jobs.jobs(), _rows_at_hand)
        except WorkspaceError as error:
            st.error(plain(error), icon=":material/error:")
            return None
        rows = known.rows
        shown.append(_of(known, None if rows is None else _batch(rows.fingerprint, rows), run))
    return Pair(shown[0], shown[1], compare_line(a, b))


def changes_of(a: TuningPlan, b: TuningPlan) -> str:
    """What B changes, in a few words; empty where it changes nothing."""
    changed = [field for field in FIELDS if getattr(b, field) != getattr(a, field)]
    return ", ".join(_told(field, getattr(b, field)) for field in changed)


def _told(field: str, value: object) -> str:
    label = options()[field].label
    if field == "packer":
        return PACKERS[str(value)]
    if isinstance(value, bool):
        return label if value else f"no {label}"
    if isinstance(value, int | float):
        all_of_them = not value and "0: " in options()[field].help
        return f"{label} {'all' if all_of_them else f'{value:,}'}"
    return f"{label} {value}"


def _loaded(source: SourceSpec) -> Loaded | None:
    """The rows of B; a bar while they load, a sentence and a way on where they do not."""
    if state.waits(source):
        draw_asked(source, partial(state.allow, source), "other")
        return None
    task = data.task_of(source)
    data.follow(task)
    if task.result is None:
        st.error(plain(task.error or "Nothing was loaded."), icon=":material/error:")
        with st.container(horizontal=True):
            st.button(
                "Try again",
                on_click=data.forget,
                args=(source,),
                icon=":material/refresh:",
                key="other_again",
            )
            st.button("Choose other rows", on_click=set_source, args=(None,), key="other_none")
    return task.result


def _shown(plan: TuningPlan, loaded: Loaded, name: str) -> Shown:
    batch = data.batch_of(loaded, plan)
    known = workspace_of_plan(plan, batch.rows, Store(), tune_jobs.jobs())
    return _of(known, batch, name)


def _of(known: Workspace, batch: Batch | None, name: str) -> Shown:
    plan = known.plan
    counted = None if batch is None else _counted(batch.rows.fingerprint, plan.key, batch, plan)
    return Shown(plan, side_of(known, name, counted), batch, counted, tags_of(plan.source))


@st.cache_resource(show_spinner="Counting…", max_entries=64)
def _counted(data: str, plan: str, _batch: Batch, _plan: TuningPlan) -> BatchSummary:
    return BatchSummary.of(_batch, _plan, detail=False)


@st.cache_resource(show_spinner=False, max_entries=4)
def _batch(data: str, _rows: Rows) -> Batch:
    return Batch(_rows, PrefixOrder.of(_rows))


def _rows_at_hand(plan: TuningPlan) -> Source | None:
    """The batch of a run's plan from its source, if that still loads."""
    if state.waits(plan.source):
        return None  # a run that a link names asks nobody either; its own rows may be at hand
    task = data.task_of(plan.source)
    data.follow(task)
    found = task.result
    return None if found is None else (batch_rows(found.rows, plan), found.provenance)
