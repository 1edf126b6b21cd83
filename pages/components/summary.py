"""The strip on top of every page: the state of the work at a glance."""

from __future__ import annotations

import html

import streamlit as st

from packing.packers.areal import RowTooLong
from pages import state
from pages.components import data, measured


def draw() -> None:
    bench = data.bench_or_none()
    plan = state.plan()
    cells = [("data", data.source_name(plan.source), data.source_tags())]
    if bench is not None:
        cells += [("rows", f"{len(bench.rows):,}", []), ("tokens", f"{bench.rows.n_tokens:,}", [])]
    cells.append(("max_tokens_per_mb", f"{plan.max_tokens_per_mb:,}", []))
    if bench is not None:
        cells += _packing_cells(bench, plan)
    body = "".join(_cell(*cell, first=i == 0) for i, cell in enumerate(cells))
    left, right = st.columns([12, 1], vertical_alignment="center")
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


def _packing_cells(
    bench: data.Workbench, plan: state.TuningPlan
) -> list[tuple[str, str, list[str]]]:
    try:
        m = bench.metrics(plan.max_tokens_per_mb, plan.packer)
    except RowTooLong:
        return [("trees", "refused: a row is longer", [])]
    step = measured.latest_step(plan, bench)
    return [
        ("trees", f"{m.n_trees:,}", []),
        ("tree_token_ratio", f"{m.tree_token_ratio:.3f} ({m.prefix_reuse:.2f}× reuse)", []),
        ("paid ÷ original", f"{m.padded_token_ratio:.3f}", []),
        ("step", step or "not measured", []),
    ]


def _cell(label: str, value: str, tags: list[str], first: bool) -> str:
    marks = "".join(f'<span class="tag">{html.escape(tag)}</span>' for tag in tags)
    kind = ' class="name"' if first else ""
    return f"<div{kind}><span>{label}</span><b>{html.escape(value)}{marks}</b></div>"
