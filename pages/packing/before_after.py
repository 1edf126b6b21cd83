"""Before and after: the same batch padded, packed flat and as trees, and a tree folded by hand.

Notable:
- tokens are counted, at the plan's ranks and minibatches; padding and waiting are in them
- a step has a time only where this very plan was run on this kind of machine
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from pages.packing.fold import fold_view
from pages.shared import measured
from pages.shared.canvas import component
from pages.shared.text import Markdown, plain
from pages.shared.widgets import to_tune
from tuning.jobs.points import Point, steps_at
from tuning.plan.batch import Batch
from tuning.plan.numbers import many, moment, seconds
from tuning.plan.picture import BatchPicture, batch_picture
from tuning.plan.plan import Layout, TuningPlan
from tuning.report.figures.before_after import before_after_chart
from tuning.report.figures.fold import Fold, choose_fold
from tuning.report.figures.svg_figure import STYLE, svg_figure

_MODES: dict[Layout, tuple[str, str]] = {
    "padded": ("padded", "padding"),
    "flat": ("packed flat", "flat packing"),
    "tree": ("as trees", "trees"),
}
_component = component(
    "before_after",
    '<div class="ways" tabindex="0"></div>',
    ".ways { overflow-x: auto; } svg { min-width: 44rem; }" + STYLE,
    Path(__file__).with_name("before_after.js"),
)


def draw(batch: Batch, plan: TuningPlan) -> None:
    """The picture with its times, then the fold; all is worked out here and not before."""
    _draw_picture(batch, plan)
    st.header("How one tree folds", anchor=False)
    fold = _fold(batch.rows.fingerprint, plan.key, batch, plan)
    if fold is None:
        st.info("All rows are empty: there is no tree to fold.")
        return
    fold_view(batch.rows, fold)


def _draw_picture(batch: Batch, plan: TuningPlan) -> None:
    simulation = batch.simulation(plan)
    picture = _picture(batch.rows.fingerprint, plan.key, batch, plan)
    n_rows = len(simulation.packing.arrival)
    data = batch.rows.fingerprint
    steps = steps_at(measured.points(data), plan, data)
    st.header(headline(picture, n_rows), anchor=False)
    st.markdown(" ".join(part for part in (_gain(picture), _faster(steps)) if part))
    chart = before_after_chart(picture, {mode: _step(one, plan) for mode, one in steps.items()})
    _component({"svg": svg_figure(chart)})
    if simulation.comparison.flat_error:
        st.caption(f"AReaL refuses flat packing here: “{plain(simulation.comparison.flat_error)}”")
    spread = (
        f", over {plan.dp_size:,} ranks and {plan.ppo_n_minibatches:,} minibatches"
        if plan.dp_size > 1 or plan.ppo_n_minibatches > 1
        else ""
    )
    st.caption(
        f"Tokens that run through the model in one update{spread}, counted exactly. A bar is as "
        "long as its tokens are many, and equal areas are equal tokens. Its slices are rows, "
        "micro-batches or trees; where they are many, runs of them."
    )
    if any(panel.mode not in steps for panel in picture.panels):
        with st.container(horizontal=True, vertical_alignment="center"):
            if not steps:
                st.markdown("No step of this plan has been measured.", width="content")
            to_tune("Measure it on the Tune page", "speed")


def headline(picture: BatchPicture, n_rows: int) -> Markdown:
    """``The same 512 rows: 852,000 tokens padded, 186,000 packed flat, 139,000 as trees.``"""
    counts = [
        f"{_about(panel.tokens)}{'' if nth else ' tokens'} {_MODES[panel.mode][0]}"
        for nth, panel in enumerate(picture.panels)
    ]
    return f"The same {n_rows:,} rows: {', '.join(counts)}."


def _about(count: int) -> Markdown:
    """Three significant figures: what one can say aloud; the exact number stands below."""
    return f"{float(f'{count:.3g}'):,.0f}"


def _gain(picture: BatchPicture) -> Markdown:
    tokens = {panel.mode: panel.tokens for panel in picture.panels}
    tree = tokens["tree"]
    others: list[Layout] = [mode for mode in ("flat", "padded") if mode in tokens]
    if not tree:
        return ""
    said = [
        f"**{tokens[mode] / tree:.2f}× fewer** tokens than {_MODES[mode][1]}"
        if tokens[mode] >= tree
        else f"**{tree / tokens[mode]:.2f}× the tokens** of {_MODES[mode][1]}"
        for mode in others
    ]
    return f"Trees compute {' and '.join(said)}."


def _faster(steps: Mapping[Layout, Point]) -> Markdown:
    tree, flat = steps.get("tree"), steps.get("flat")
    if not (tree and flat and tree.step_s and flat.step_s):
        return ""
    kinds = {tree.outcome, flat.outcome}
    kind = "measured" if kinds == {"measured"} else "in part estimated"
    return (
        f"A step runs **{flat.step_s / tree.step_s:.2f}× as fast** as with flat packing ({kind})."
    )


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
