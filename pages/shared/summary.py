"""The strip on top of every page: the state of the work at a glance."""

from __future__ import annotations

import html

import streamlit as st

from packing.batch.refusal import BatchRefused
from pages.shared import data, measured, state
from pages.shared.text import Html
from tuning.plan.plan import TuningPlan

Cell = tuple[str, str, str, list[str]]
"""CSS class, label, value, tags."""


def draw() -> None:
    batch = data.batch_or_none()
    plan = state.plan()
    cells: list[Cell] = [("name", "data", data.source_name(plan.source), data.source_tags())]
    if batch is not None:
        cells.append(("rows", "rows a step", f"{len(batch.rows):,}", []))
        cells.append(("tokens", "tokens a step", f"{batch.rows.n_tokens:,}", []))
    cells.append(("cap", "max_tokens_per_mb", f"{plan.max_tokens_per_mb:,}", []))
    if batch is not None:
        cells += _packing_cells(batch, plan)
    body = "".join(_cell(*cell) for cell in cells)
    left, right = st.columns([8, 1], vertical_alignment="center")
    left.html(f'<div class="summary" role="status" aria-label="summary">{body}</div>')
    right.button(
        "Undo",
        icon=":material/undo:",
        on_click=state.undo,
        disabled=not state.can_undo(),
        type="tertiary",
        help="Bring back the settings before the last change.",
        key="undo",
    )


def _packing_cells(batch: data.Batch, plan: TuningPlan) -> list[Cell]:
    try:
        simulation = batch.simulation(plan)
    except BatchRefused as refused:
        return [("refused", "AReaL refuses this plan", refused.mend, [])]
    step = measured.latest_step(plan, batch)
    dummies = simulation.n_dummy_trees
    trees = f"{simulation.n_trees:,}" + (f" + {dummies:,} empty" if dummies else "")
    ratio = f"{simulation.tree_token_ratio:.3f} ({simulation.prefix_reuse:.2f}× reuse)"
    return [
        ("trees", "trees", trees, []),
        ("ratio", "tree_token_ratio", ratio, []),
        ("paid", "paid ÷ original", f"{simulation.padded_token_ratio:.3f}", []),
        ("step", "time of a step", step or "not measured", []),
    ]


def _cell(kind: str, label: str, value: str, tags: list[str]) -> Html:
    marks = "".join(f'<span class="tag">{html.escape(tag)}</span>' for tag in tags)
    name, said = html.escape(label), html.escape(value)
    return f'<div class="{html.escape(kind)}"><span>{name}</span><b>{said}{marks}</b></div>'
