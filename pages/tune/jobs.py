"""Sweeps of the Tune page: started, followed, stopped, found again.

The jobs on disk are the state: a reload, another page or a restarted server find the same sweep.
"""

from __future__ import annotations

import os

import streamlit as st

from packing.rows import Rows
from pages.shared import state, waiting
from pages.shared.text import plain
from pages.tune.parts import draw_result
from tuning.jobs.jobs import Jobs, JobView
from tuning.plan.batch import Batch
from tuning.sweep.batches import other_batches
from tuning.sweep.result import question_of

BUDGET = "tune_budget_min"


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    return Jobs()


def areal_python() -> str:
    """The Python that has AReaL, where the console was started with one."""
    return os.environ.get("ESPALIER_AREAL_PYTHON", "")


def own(batch: Batch, foreign: bool = False) -> JobView | None:
    """This machine's newest sweep of this batch with these settings; or one from elsewhere."""
    question = question_of(state.plan())
    return jobs().newest("sweep", foreign, data=batch.rows.fingerprint, question=question)


def current(batch: Batch) -> JobView | None:
    """What is shown: this machine's sweep, or where there is none a colleague's."""
    return own(batch) or own(batch, foreign=True)


def start(batch: Batch, longest_row: int, rows: Rows) -> None:
    """Start a sweep; what an earlier one measured is taken from the history.

    rows: all the data, for the batches that come after the one of ``batch``
    """
    plan = state.plan()
    budget_s = 60.0 * float(st.session_state.get(BUDGET, 10))
    arguments = {
        "budget_s": budget_s,
        "longest_row": longest_row,
        "areal_python": areal_python(),
        "data": batch.rows.fingerprint,
        "question": question_of(plan),
    }
    others = other_batches(rows, plan)
    jobs().start("sweep", plan, batch.rows, arguments, 2 * budget_s + 600, others)


def stop(job: str) -> None:
    jobs().cancel(job, state.session())


def follow(view: JobView) -> None:
    """The sweep as it stands; the page is drawn again when there is more to say."""
    progress = view.last("progress")
    budget = float(view.arguments.get("budget_s", 0.0)) or 1.0
    left = float(progress["left_s"]) if progress and "left_s" in progress else budget
    st.progress(min(max(1 - left / budget, 0.0), 1.0), text=plain(view.message))
    draw_result(view, state.plan())
    waiting.redraw_as_it_goes(jobs(), view)


def draw_ending(view: JobView) -> None:
    """How a sweep ended, where it did not end by itself."""
    sentence = view.message[:1].upper() + view.message[1:]
    if view.state in ("failed", "died"):
        st.error(f"{plain(sentence)}. Resume goes on from there.", icon=":material/error:")
    elif view.state == "cancelled":
        you = " by you" if view.stopped_by == state.session() else " by someone else"
        sentence = sentence.replace("Stopped", f"Stopped{you if view.stopped_by else ''}", 1)
        st.info(f"{plain(sentence)}. Resume goes on from there.", icon=":material/pause:")
