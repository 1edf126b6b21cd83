"""Paid and tree tokens over the whole range of caps; a click on it chooses the cap.

Notable:
- drawn by a component of our own: a move of the slider moves one line of it, where a plotly figure
  would be drawn anew, which takes longer than packing
- the same figures are a table below it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from pages.shared import state
from pages.shared.canvas import component
from tuning.plan.batch import CurvePoint
from tuning.report.figures.style import SERIES

_KEY = "cap_chart"
_HTML = """
<div class="chart"><div class="legend" aria-hidden="true"></div>
<canvas role="img"></canvas><div class="tip" hidden></div></div>
"""
_CSS = """
.chart { position: relative; font: 0.8rem/1.4 var(--st-font); color: var(--st-text-color); }
.chart canvas { width: 100%; height: 300px; display: block; cursor: crosshair; }
.legend { display: flex; flex-wrap: wrap; gap: 0.1rem 1.1rem; min-height: 1.4rem; }
.legend span { display: inline-flex; align-items: center; gap: 0.4rem; }
.legend svg { width: 1.9rem; height: 0.7rem; }
"""
_component = component("espalier_cap_chart", _HTML, _CSS, Path(__file__).with_name("cap_chart.js"))


def cap_chart(
    curves: Mapping[str, Sequence[CurvePoint]],
    original_tokens: int,
    cap: int,
    low: int,
    high: int,
    step: int,
) -> None:
    """Draw tokens over original tokens at each cap; a click sets the plan's cap.

    curves:          points by packer ("areal", "prefix-aware", "flat")
    low, high, step: the caps that can be chosen
    """

    def picked() -> None:
        value = st.session_state[_KEY].get("picked")
        if isinstance(value, int) and low <= value <= high:
            state.update(max_tokens_per_mb=value)

    _component(
        key=_KEY,
        data={
            "cap": cap,
            "low": low,
            "high": high,
            "step": step,
            "series": [
                _series(packer, points, original_tokens)
                for packer, points in curves.items()
                if points
            ],
            "label": "Paid tokens and tree tokens divided by original tokens, for each "
            "max_tokens_per_mb. The slider above chooses one; the table below has the figures.",
        },
        on_picked_change=picked,
    )


def _series(packer: str, points: Sequence[CurvePoint], original_tokens: int) -> dict[str, Any]:
    color, dash, name = SERIES[packer]
    return {
        "name": name,
        "color": color,
        "dash": dash,
        "caps": [p.max_tokens_per_mb for p in points],
        "paid": [round(p.paid_tokens / original_tokens, 5) for p in points],
        "tree": None
        if packer == "flat"
        else [round(p.tree_tokens / original_tokens, 5) for p in points],
        "trees": [p.n_trees for p in points],
    }
