"""Jobs of the Kernels page: started, followed, cancelled, found again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages.shared import data, state, waiting
from pages.shared.text import plain
from tuning.jobs.jobs import Jobs, JobView
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan

_TIMEOUT_S = 1800.0
_TITLES = {"kernels": "Timing attention", "equivalence": "Proving that packed equals row by row"}
_PACKING = (
    "source",
    "prompts_per_step",
    "samples_per_prompt",
    "max_new_tokens",
    "max_tokens_per_mb",
    "packer",
)


@st.cache_resource(show_spinner=False)
def _jobs() -> Jobs:
    return Jobs()


def newest(kind: str, batch: Batch, tree: int | None = None) -> JobView | None:
    """The newest job of a kind over these rows, by whomever it was started; of a tree, if any."""
    data = batch.rows.fingerprint
    of_tree = None if tree is None else _jobs().newest(kind, data=data, tree=tree)
    return of_tree or _jobs().newest(kind, data=data)


def running() -> list[JobView]:
    """Jobs of this page that have not ended."""
    return [view for view in _jobs().active() if view.kind in _TITLES]


def start(kind: str, plan: TuningPlan, batch: Batch, arguments: Mapping[str, Any]) -> None:
    with_data = {**arguments, "data": batch.rows.fingerprint}
    _jobs().start(kind, plan, batch.rows, with_data, timeout_s=_TIMEOUT_S)


def draw_activity(active: Sequence[JobView]) -> None:
    """What runs now, each with its Cancel; nothing where nothing runs."""
    for view in active:
        left, right = st.columns([4, 1], vertical_alignment="center")
        name = data.source_name(view.plan.source)
        left.status(f"{_TITLES[view.kind]} ({plain(name)}): {plain(view.message)}", state="running")
        right.button(
            f"Cancel {plain(view.kind)}",
            key=f"cancel_{view.id}",
            icon=":material/close:",
            on_click=_jobs().cancel,
            args=(view.id, state.session()),
        )
        waiting.redraw_as_it_goes(_jobs(), view)


def draw_ending(job: JobView) -> None:
    """How a job ended, where it did not end well."""
    if job.state in ("failed", "died"):
        st.error(plain(f"{job.message[:1].upper()}{job.message[1:]}."), icon=":material/error:")
    elif job.state == "cancelled":
        st.caption(f":material/cancel: {plain(job.message)}.")


def draw_changed(then: TuningPlan, now: TuningPlan, *more: str) -> None:
    """Say which settings of the packing, and which ``more``, have changed since a result."""
    changed = [name for name in (*_PACKING, *more) if getattr(then, name) != getattr(now, name)]
    if changed:
        names = ", ".join("data" if name == "source" else name for name in changed)
        st.caption(f":material/history: Made with other settings than those now: {plain(names)}.")
