"""The report on the Export page: what will be in it, what is missing, and the files."""

from __future__ import annotations

import streamlit as st

from pages.export.known import Known
from pages.export.parts import kept
from pages.shared import state
from pages.shared.text import Markdown, plain
from pages.shared.widgets import download, to_tune
from tuning.measure.gpu_run import kept_gpu_run
from tuning.plan.numbers import many
from tuning.report import render_report, zipped


def draw_report(known: Known) -> None:
    """One HTML file to show a team, and its figures and tables one by one."""
    st.markdown(_content(known))
    _draw_missing(known)
    readable = known.batch.rows.decoder is not None
    with_text = st.checkbox(
        "with samples of the text",
        disabled=not readable,
        help="How rows begin and end, and the text where sharing breaks; shown as text only. "
        + ("" if readable else "No tokenizer is known for these rows."),
        **kept("report_text", False),
    )
    with st.container(horizontal=True):
        download(
            "Download report.html",
            lambda: render_report(
                known.workspace(), with_text=with_text and readable, gpu_run=kept_gpu_run()
            ),
            "report.html",
            "report_download",
        )
        download(
            "Figures and tables",
            lambda: zipped(known.workspace()),
            "figures-and-tables.zip",
            "figures_download",
            "secondary",
            "folder_zip",
            "Each figure as SVG and PNG, each table as CSV.",
        )
    st.caption(
        "The report is one file that opens offline and prints. A chart of this app is saved as "
        "PNG by the camera in its corner."
    )


def _content(known: Known) -> Markdown:
    """What the report will hold, in one line."""
    parts = ["the data"]
    if _packs(known):
        parts.append("what trees make of it, before and after (exact)")
    if known.points:
        machines = {one.point.question.machine for one in known.points}
        where = machines.pop() if len(machines) == 1 else f"{len(machines)} machines"
        parts.append(f"{many(len(known.points), 'measured point')} of {where}")
    sweep = known.sweep
    if sweep is not None and sweep.pick is not None:
        parts.append("the sweep with its pick and how sure it is")
    parts.append("the config and the doctor's findings")
    return f"**{plain(known.name)}**, in the report: {plain(', '.join(parts))}."


def _draw_missing(known: Known) -> None:
    """What it cannot show yet, and where that is made."""
    plan, sweep = known.plan, known.sweep
    pick = sweep.pick if sweep else None
    if known.job is not None and known.job.active:
        st.info(
            "The sweep still runs: the report holds it as far as it is.", icon=":material/timer:"
        )
    elif sweep is None:
        missing = "nothing is picked" if known.points else "it has no step times and picks nothing"
        st.info(
            f"No sweep was run on these rows with these settings, so {missing}.",
            icon=":material/speed:",
        )
        to_tune()
    elif pick is not None and pick.mode == "tree":
        cap = pick.max_tokens_per_mb
        if cap != plan.max_tokens_per_mb:
            left, right = st.columns([6, 1], vertical_alignment="center")
            left.info(
                f"The sweep picked {cap:,}; the report's packing and config are of "
                f"{plan.max_tokens_per_mb:,}, which is set now.",
                icon=":material/info:",
            )
            right.button(
                f"Use {cap:,}",
                on_click=state.update,
                kwargs={"max_tokens_per_mb": cap},
                key="report_use_pick",
            )
    if not _packs(known):
        st.warning(
            "AReaL refuses this plan, so the report has no packing and no config.",
            icon=":material/block:",
        )


def _packs(known: Known) -> bool:
    return not known.plan.problems() and known.batch.refusal(known.plan) is None
