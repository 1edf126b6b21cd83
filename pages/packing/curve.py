"""The whole range of caps on the Packing page, as a chart and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages.packing.cap_chart import cap_chart
from pages.shared import background
from pages.shared.widgets import table
from tuning.plan.batch import Batch, CurvePoint
from tuning.plan.plan import PACKERS, TuningPlan
from tuning.report.figures.chart import SERIES


def draw_curve(batch: Batch, plan: TuningPlan, low: int, high: int) -> None:
    """Paid tokens over the whole range of caps, of the plan, each packer as soon as it is known.

    low, high: the caps that can be chosen
    """
    curves: dict[str, list[CurvePoint]] = {}
    growing = []
    for packer in PACKERS:
        curves[packer], complete = background.curve(batch, plan, packer)
        if not complete:
            growing.append(SERIES[packer][2])
    cap_chart(curves, batch.rows.n_tokens, plan.max_tokens_per_mb, low, high, plan.alignment)
    if growing:
        background.watch()
        st.caption("Still working on the whole range: " + ", ".join(growing) + ".")
    whole = st.expander("The whole range as a table", key="curve_table", on_change="rerun")
    if whole.open:
        with whole:
            _curve_table(curves, batch.rows.n_tokens)


def _curve_table(curves: Mapping[str, Sequence[CurvePoint]], original_tokens: int) -> None:
    lines: list[dict[str, Any]] = [
        {
            "max_tokens_per_mb": p.max_tokens_per_mb,
            "packer": SERIES[packer][2],
            "trees": p.n_trees,
            "tree_token_ratio": p.tree_tokens / original_tokens,
            "paid ÷ original": p.paid_tokens / original_tokens,
            "flat ÷ original": None if p.flat is None else p.flat / original_tokens,
        }
        for packer, points in curves.items()
        for p in points
    ]
    lines.sort(key=lambda line: (line["max_tokens_per_mb"], line["packer"]))
    table(lines)
