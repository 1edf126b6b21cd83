"""The parts of the Tune page: the pick, the chart and its table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from packing.metrics import padded_token_ratio, tree_token_ratio
from pages.shared import state
from pages.shared.text import plain
from pages.shared.widgets import chart, table
from tuning.jobs.jobs import JobView
from tuning.plan.batch import CurvePoint
from tuning.plan.plan import STEP_NAMES, TuningPlan
from tuning.report.figures.plotly_figure import plotly_figure
from tuning.report.figures.sweep import sweep_chart
from tuning.sweep.result import Candidate, Headroom, SweepResult
from tuning.workspace.workspace import sweep_of

_GIB = 2**30


def draw_pick(job: JobView, plan: TuningPlan) -> None:
    """The answer at first glance, and the button that takes it."""
    result = sweep_of(job)
    if result is None or result.pick is None or job.active:
        return
    pick = result.pick
    box = st.container(border=True)
    if job.origin:
        box.info(
            f"A colleague's sweep, from {plain(job.origin)}: it was measured on "
            f"{plain(result.machine)}, and says nothing of the times of this machine.",
            icon=":material/group:",
        )
    if pick.mode != "tree":
        box.warning(f"**{plain(pick.reason)}**", icon=":material/block:")
    else:
        left, middle, right, button = box.columns([2, 2, 2, 2], vertical_alignment="center")
        left.metric("max_tokens_per_mb", f"{pick.max_tokens_per_mb:,}")
        said = f"step ({pick.step_kind}, {STEP_NAMES[pick.step_of]})"
        middle.metric(plain(said), f"{pick.step_s:,.2f} s")
        speed = pick.speedup_vs_flat
        flat = result.baselines.get("flat")
        kind = flat.step_kind if flat and flat.step_kind else "not measured"
        right.metric(f"than flat ({plain(kind)})", f"{speed:,.2f}× as fast" if speed else "unknown")
        used = plan.max_tokens_per_mb == pick.max_tokens_per_mb
        button.button(
            "In use" if used else f"Use {pick.max_tokens_per_mb:,}",
            type="primary",
            disabled=used,
            on_click=state.update,
            kwargs={"max_tokens_per_mb": pick.max_tokens_per_mb},
            key="use_pick",
        )
        box.markdown(plain(pick.reason))
        if pick.headroom:
            with box.expander("If rollouts grow", icon=":material/trending_up:"):
                table([_longer(one) for one in pick.headroom], key="headroom")
    sure = (
        f"The cost model misses points left out by {result.holdout_error:.1%} (median)."
        if result.holdout_error is not None
        else "Too few steps were measured to say how far the cost model is off."
    )
    box.caption(" ".join(part for part in (plain(pick.runner_up), sure) if part))
    for sentence in pick.advice:
        box.markdown(f":material/lightbulb: {plain(sentence)}")


def _longer(one: Headroom) -> dict[str, object]:
    return {
        "row lengths ×": one.factor,
        "longest row": one.longest_row,
        "max_tokens_per_mb": one.max_tokens_per_mb,
        "paid ÷ original": one.padded_token_ratio,
        "memory, GiB": None if one.memory_bytes is None else one.memory_bytes / _GIB,
        "fits": {True: "yes", False: "no", None: "not known"}[one.fits],
    }


def draw_result(job: JobView, plan: TuningPlan, curve: Sequence[CurvePoint] = ()) -> None:
    """Chart and table, as far as they go.

    curve: more caps of the plan, counted beside the page
    """
    result = sweep_of(job)
    if result is None:
        return
    counted = [_counted(point, result.original_tokens) for point in curve]
    if drawn := sweep_chart(result, plan.packer, plan.max_tokens_per_mb, counted):
        chart(plotly_figure(drawn), "sweep", drawn.described)
    whose = f"{result.model} on {result.machine}{', a colleague’s' if job.origin else ''}"
    st.caption(plain(" · ".join([f"{whose}, {STEP_NAMES[result.step_of]}", *result.notes])))
    logp = st.column_config.NumberColumn(
        format="%.3f",
        help="The forward pass before the step, where AReaL recomputes log-probabilities; it is "
        "no part of the step.",
    )
    table(_table(result), {"compute_logp, s": logp}, placeholder="–", key="sweep_table")
    if result.memory_note:
        st.caption(f"Memory is the {plain(result.memory_note)}.")


def _counted(point: CurvePoint, original_tokens: int) -> Candidate:
    return Candidate(
        point.max_tokens_per_mb,
        n_trees=point.n_trees,
        tree_token_ratio=tree_token_ratio(point.tree_tokens, original_tokens),
        padded_token_ratio=padded_token_ratio(point.paid_tokens, original_tokens),
        paid_tokens=point.paid_tokens,
    )


def _table(result: SweepResult) -> pd.DataFrame:
    named = [("tree", point) for point in result.points]
    named += [(name, one) for name, one in result.baselines.items() if one is not None]
    return pd.DataFrame([_line(name, one, result.n_batches > 1) for name, one in named])


def _line(name: str, one: Candidate, several: bool) -> dict[str, object]:
    """A row of the table; with the worst batch's figures where several batches were counted."""
    known = f"known from {one.known_from}" if one.known_from else ""
    line: dict[str, object] = {
        "way": name,
        "max_tokens_per_mb": one.max_tokens_per_mb,
        "trees": one.n_trees if name == "tree" else None,
        "tree_token_ratio": one.tree_token_ratio if name == "tree" else None,
        "paid ÷ original": one.padded_token_ratio,
        "fits": "refused"
        if one.refused
        else {True: "yes", False: "no", None: "not known"}[one.fits],
        "step, s": one.step_s,
        "kind": one.step_kind or "",
        "whose step": STEP_NAMES[one.step_of],
        "repeats": one.repeats or None,
        "compute_logp, s": one.logp_s,
        "predicted, s": one.predicted_s,
        "original tokens/s": None if one.tokens_per_s is None else round(one.tokens_per_s),
        "memory, GiB": None if one.memory_bytes is None else one.memory_bytes / _GIB,
        "memory": one.memory_kind or "",
    }
    if several:
        line |= {
            "worst trees": one.worst_n_trees,
            "worst paid ÷ original": one.worst_padded_token_ratio,
            "worst predicted, s": one.worst_predicted_s,
        }
    return line | {"note": " · ".join(part for part in (one.message, known) if part)}
