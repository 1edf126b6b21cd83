"""Before and after: the same batch padded, packed flat and as trees, and a tree folded by hand.

Notable:
- tokens are counted, at the plan's ranks and minibatches; padding and waiting are in them
- a step has a time only where this very plan was run on this kind of machine
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from pages.overview.fold import fold_view
from pages.shared import measured
from pages.shared.canvas import component
from pages.shared.text import Markdown, plain
from tuning.jobs.points import Point, steps_at
from tuning.plan.batch import Batch
from tuning.plan.numbers import many, moment, number, seconds
from tuning.plan.picture import BatchPicture, batch_picture
from tuning.plan.plan import Layout, TuningPlan
from tuning.report.figures.before_after import before_after_chart
from tuning.report.figures.fold import Fold, choose_fold
from tuning.report.figures.svg_figure import STYLE, svg_figure

_component = component(
    "before_after",
    "The rows padded, packed flat and as trees",
    '<div class="ways" role="region" tabindex="0"></div>',
    ".ways { overflow-x: auto; } svg { min-width: 44rem; }" + STYLE,
    Path(__file__).with_name("before_after.js"),
)


def draw_bars(batch: Batch, plan: TuningPlan) -> None:
    """A bar each, padded, flat and as trees, with the times that are known."""
    simulation = batch.simulation(plan)
    picture = _picture(batch.rows.fingerprint, plan.key, batch, plan)
    data = batch.rows.fingerprint
    steps = steps_at(measured.points(data), plan, data)
    chart = before_after_chart(picture, {mode: _step(one, plan) for mode, one in steps.items()})
    _component({"svg": svg_figure(chart)})
    if simulation.comparison.flat_error:
        st.caption(f"AReaL refuses flat packing here: “{plain(simulation.comparison.flat_error)}”")
    over = []
    if plan.dp_size > 1:
        over.append(many(plan.dp_size, "rank"))
    if plan.ppo_n_minibatches > 1:
        over.append(many(plan.ppo_n_minibatches, "minibatch", "minibatches"))
    spread = f", over {' and '.join(over)}" if over else ""
    rows = many(len(simulation.packing.arrival), "row")
    st.caption(
        f"{_faster(steps)}Tokens of {rows} that run through the model in one update{spread}, "
        "counted exactly. Equal areas are equal tokens; the slices of a bar are rows, "
        "micro-batches or trees, or runs of them."
    )


def draw_fold(batch: Batch, plan: TuningPlan) -> None:
    """Rows of one tree that fold when they are asked to."""
    st.header("How one tree folds", anchor=False)
    fold = _fold(batch.rows.fingerprint, plan.key, batch, plan)
    if fold is None:
        st.info("All rows are empty: there is no tree to fold.")
        return
    fold_view(batch.rows, fold)


def _faster(steps: Mapping[Layout, Point]) -> Markdown:
    tree, flat = steps.get("tree"), steps.get("flat")
    if not (tree and flat and tree.step_s and flat.step_s):
        return ""
    kinds = {tree.outcome, flat.outcome}
    kind = "measured" if kinds == {"measured"} else "in part estimated"
    times = number(flat.step_s / tree.step_s, ".2f")
    return f"A step runs **{times}× as fast** as with flat packing ({plain(kind)}). "


def _step(point: Point, plan: TuningPlan) -> str:
    """``1.25 s of one rank, measured, 1.20 s to 1.50 s over 3 repeats, 2026-01-02 03:04 UTC``"""
    told = [seconds(point.step_s) + " of one rank" * (plan.dp_size > 1), point.outcome]
    if point.p20_s is not None and point.p80_s is not None:
        of = f" over {many(point.repeats, 'repeat')}" if point.repeats else ""
        told.append(f"{seconds(point.p20_s)} to {seconds(point.p80_s)}{of}")
    return ", ".join([*told, moment(point.measured_at), point.question.machine])


@st.cache_resource(show_spinner=False, max_entries=32)
def _picture(data: str, plan: str, _batch: Batch, _plan: TuningPlan) -> BatchPicture:
    return batch_picture(_batch.simulation(_plan))


@st.cache_resource(show_spinner=False, max_entries=32)
def _fold(data: str, plan: str, _batch: Batch, _plan: TuningPlan) -> Fold | None:
    simulation = _batch.simulation(_plan)
    return choose_fold(_batch.order, simulation.forest, simulation.spec.max_tokens_per_mb)
