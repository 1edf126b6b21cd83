"""The strip on top of every page: the state of the work at a glance."""

from __future__ import annotations

import html

import streamlit as st

from packing.packers.areal import RowTooLong
from pages.shared import data, measured, state
from tuning.plan.plan import TuningPlan

Cell = tuple[str, str, str, list[str]]
"""CSS class, label, value, tags."""


def draw() -> None:
    bench = data.bench_or_none()
    plan = state.plan()
    cells: list[Cell] = [("name", "data", data.source_name(plan.source), data.source_tags())]
    if bench is not None:
        cells.append(("rows", "rows a step", f"{len(bench.rows):,}", []))
        cells.append(("tokens", "tokens a step", f"{bench.rows.n_tokens:,}", []))
    cells.append(("cap", "max_tokens_per_mb", f"{plan.max_tokens_per_mb:,}", []))
    if bench is not None:
        cells += _packing_cells(bench, plan)
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


def _packing_cells(bench: data.Batch, plan: TuningPlan) -> list[Cell]:
    try:
        m = bench.metrics(plan.max_tokens_per_mb, plan.packer)
    except RowTooLong:
        return [("trees", "trees", "refused: a row is longer", [])]
    step = measured.latest_step(plan, bench)
    return [
        ("trees", "trees", f"{m.n_trees:,}", []),
        (
            "ratio",
            "tree_token_ratio",
            f"{m.tree_token_ratio:.3f} ({m.prefix_reuse:.2f}× reuse)",
            [],
        ),
        ("paid", "paid ÷ original", f"{m.padded_token_ratio:.3f}", []),
        ("step", "time of a step", step or "not measured", []),
    ]


def _cell(kind: str, label: str, value: str, tags: list[str]) -> str:
    marks = "".join(f'<span class="tag">{html.escape(tag)}</span>' for tag in tags)
    return f'<div class="{kind}"><span>{label}</span><b>{html.escape(value)}{marks}</b></div>'
