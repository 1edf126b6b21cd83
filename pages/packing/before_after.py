"""Before and after: the same batch padded, packed flat and as trees, and a tree folded by hand.

Notable:
- tokens are counted, at the plan's ranks and minibatches; padding and waiting are in them
- a step has a time only where this very plan was run on this kind of machine
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from datetime import datetime

import streamlit as st

from pages.packing.fold import fold_view
from tuning.jobs.points import Point, steps_at
from tuning.jobs.store import Store, StoreError
from tuning.plan.batch import Batch
from tuning.plan.picture import BatchPicture, batch_picture
from tuning.plan.plan import Layout, TuningPlan
from tuning.report.figures.before_after import Bar, bars
from tuning.report.figures.fold import Fold, choose_fold

_MODES: dict[Layout, tuple[str, str]] = {
    "padded": ("padded", "padding"),
    "flat": ("packed flat", "flat packing"),
    "tree": ("as trees", "trees"),
}
_PARTS = {
    "first": "computed once",
    "again": "the same prefix, computed again",
    "padding": "padding and waiting",
}
_CSS = """
<style>
.ways { display: grid; gap: 1.1rem; font-variant-numeric: tabular-nums; line-height: 1.35; }
.way .told { display: flex; flex-wrap: wrap; gap: 0 1.1rem; align-items: baseline;
  margin-bottom: 0.25rem; }
.way .name { font-weight: 600; min-width: 17.5rem; }
.way .tokens { min-width: 9.5rem; }
.way .tokens b { font-size: 1.3rem; font-weight: 650; }
.way .share { min-width: 8rem; }
.way small { font-size: 0.82rem; opacity: 0.82; }
.bar { position: relative; height: 62px; }
.bar i { position: absolute; }
.bar i.first, .bar i.again, .bar i.padding { border-right: 1px solid rgba(255, 255, 255, 0.28);
  box-sizing: border-box; }
i.first { background: #0072B2; }
i.again { background: #E69F00; }
i.padding { background: repeating-linear-gradient(135deg, rgba(128, 128, 128, 0.55) 0 1px,
  rgba(128, 128, 128, 0.2) 1px 5px); }
.parts { display: flex; flex-wrap: wrap; gap: 0.2rem 1.4rem; font-size: 0.85rem;
  margin-top: 0.8rem; }
.parts i { display: inline-block; width: 0.8rem; height: 0.8rem; margin-right: 0.4rem;
  vertical-align: -0.08rem; }
</style>
"""


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
    steps = _steps(batch, plan)
    st.header(headline(picture, n_rows), anchor=False)
    st.markdown(" ".join(part for part in (_gain(picture), _faster(steps)) if part))
    st.html(_CSS)
    ways = "".join(_way(bar, picture, steps, plan) for bar in bars(picture))
    st.html(f'<div class="ways">{ways}</div>{_legend()}')
    if simulation.comparison.flat_error:
        st.caption(f"AReaL refuses flat packing here: “{simulation.comparison.flat_error}”")
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
            st.page_link(
                "tune/page.py", label="Measure it on the Tune page", icon=":material/speed:"
            )


def headline(picture: BatchPicture, n_rows: int) -> str:
    """``The same 512 rows: 852,000 tokens padded, 186,000 packed flat, 139,000 as trees.``"""
    counts = [
        f"{_about(panel.tokens)}{'' if nth else ' tokens'} {_MODES[panel.mode][0]}"
        for nth, panel in enumerate(picture.panels)
    ]
    return f"The same {n_rows:,} rows: {', '.join(counts)}."


def _about(count: int) -> str:
    """Three significant figures: what one can say aloud; the exact number stands below."""
    return f"{float(f'{count:.3g}'):,.0f}"


def _gain(picture: BatchPicture) -> str:
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


def _faster(steps: Mapping[Layout, Point]) -> str:
    tree, flat = steps.get("tree"), steps.get("flat")
    if not (tree and flat and tree.step_s and flat.step_s):
        return ""
    kinds = {tree.outcome, flat.outcome}
    kind = "measured" if kinds == {"measured"} else "in part estimated"
    return (
        f"A step runs **{flat.step_s / tree.step_s:.2f}× as fast** as with flat packing ({kind})."
    )


def _way(bar: Bar, picture: BatchPicture, steps: Mapping[Layout, Point], plan: TuningPlan) -> str:
    """What is said of a mode, and its bar."""
    panel, padded = bar.panel, picture.panels[0].tokens
    share = "" if panel.mode == "padded" else f"{panel.tokens / max(padded, 1):.1%} of padded"
    described = ", ".join(f"{getattr(panel, part):,} {name}" for part, name in _PARTS.items())
    marks = "".join(
        f'<i class="{mark.part}" '
        f'title="{mark.tokens:,.0f} tokens a line, {_PARTS[mark.part]} ({mark.lines:,} lines)" '
        f'style="left:{mark.left:.3%};top:{mark.top:.2%};width:{mark.width:.3%};'
        f'height:{mark.height:.2%}"></i>'
        for mark in bar.marks
    )
    return (
        f'<div class="way {panel.mode}"><div class="told"><span class="name">{panel.title}</span>'
        f'<span class="tokens"><b>{panel.tokens:,}</b> tokens</span>'
        f'<span class="share">{share}</span>'
        f'<span class="step">{_step(steps.get(panel.mode), plan) if steps else ""}</span></div>'
        f'<div class="bar" role="img" aria-label="{panel.title}: {described}">{marks}</div></div>'
    )


def _step(point: Point | None, plan: TuningPlan) -> str:
    if point is None or not point.step_s:
        return "step not measured"
    whose = " of one rank" if plan.dp_size > 1 else ""
    spread = ""
    if point.p20_s is not None and point.p80_s is not None:
        of = f" over {point.repeats} repeats" if point.repeats else ""
        spread = f"{_seconds(point.p20_s)} to {_seconds(point.p80_s)}{of}, "
    when = datetime.fromisoformat(point.measured_at)
    where = html.escape(point.question.machine)
    return (
        f"<b>{_seconds(point.step_s)}</b> a step{whose}, {point.outcome}"
        f" <small>{spread}{when:%Y-%m-%d %H:%M} UTC, {where}</small>"
    )


def _seconds(value: float) -> str:
    return f"{value * 1000:.3g} ms" if value < 0.1 else f"{value:,.2f} s"


def _legend() -> str:
    parts = "".join(f'<span><i class="{part}"></i>{name}</span>' for part, name in _PARTS.items())
    return f'<div class="parts">{parts}</div>'


def _steps(batch: Batch, plan: TuningPlan) -> dict[Layout, Point]:
    """The newest step of each mode at the plan's cap, measured before estimated, on one machine."""
    try:
        known = [entry.point for entry in Store().entries(data=batch.rows.fingerprint)]
    except StoreError as error:
        st.warning(str(error), icon=":material/database_off:")
        return {}
    return steps_at(known, plan, batch.rows.fingerprint)


@st.cache_resource(show_spinner=False, max_entries=32)
def _picture(data: str, plan: str, _batch: Batch, _plan: TuningPlan) -> BatchPicture:
    return batch_picture(_batch.simulation(_plan))


@st.cache_resource(show_spinner=False, max_entries=32)
def _fold(data: str, plan: str, _batch: Batch, _plan: TuningPlan) -> Fold | None:
    simulation = _batch.simulation(_plan)
    return choose_fold(_batch.order, simulation.forest, simulation.spec.max_tokens_per_mb)
