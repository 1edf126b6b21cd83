"""Paid and tree tokens over the whole range of caps; a click on it chooses the cap.

Notable:
- drawn by a component of our own: a move of the slider moves one line of it, where a plotly figure
  would be drawn anew, which takes longer than packing
- a curve is drawn only where it is known (``true_path``); the point of the cap now has its number
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
from tuning.plan.numbers import number
from tuning.report.figures.chart import (
    PALETTE,
    SERIES,
    Panel,
    Point,
    cap_ticks,
    true_path,
)

_KEY = "cap_chart"
_WIDE = 5
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
    """Draw tokens over original tokens at each counted cap; a click sets the plan's cap.

    curves:          points by packer ("areal", "prefix-aware", "flat"), by ascending cap; what is
                     paid is joined between neighbours that run equally many trees (``paid_tokens``
                     of so many caps), everything else between neighbours ``step`` apart
    original_tokens: of the batch
    cap:             of now: marked, and numbered on each curve that has it
    low, high, step: the caps that can be chosen; the axis holds these and all points
    """

    def picked() -> None:
        value = st.session_state[_KEY].get("picked")
        if isinstance(value, int) and low <= value <= high:
            state.update(max_tokens_per_mb=value)

    series = [
        _series(packer, points, max(original_tokens, 1), step)
        for packer, points in curves.items()
        if points
    ]
    known = [at for one in series for at in one["caps"]]
    ends = min([low, *known]), max([high, *known])
    values = [value for one in series for value in (*one["paid"], *(one["tree"] or ()))]
    least, most = min([1.0, *values]), max([1.0, *values])
    # Values far apart need a logarithmic axis to be told apart.
    wide = 0 < least < most / _WIDE
    axis = Panel("", 0, 1.1 * most, low=least / 1.1 if wide else 0.0)
    _component(
        key=_KEY,
        data={
            "cap": cap,
            "low": low,
            "high": high,
            "step": step,
            "axis": ends,
            "cap_ticks": [(at, number(at)) for at in cap_ticks(*ends)],
            "bottom": axis.low,
            "top": axis.high,
            "ticks": list(axis.ticks.items()),
            "red": PALETTE["red"],
            "series": series,
            "label": "Paid tokens and tree tokens divided by original tokens, for each "
            "max_tokens_per_mb. The slider above chooses one; the table below has the figures.",
        },
        on_picked_change=picked,
    )


def _series(
    packer: str, points: Sequence[CurvePoint], original_tokens: int, step: int
) -> dict[str, Any]:
    """Counted points by column, and the lines through them as x, y (null where a line breaks)."""
    color, dash, name = SERIES[packer]
    flat = packer == "flat"
    caps = [p.max_tokens_per_mb for p in points]
    paid = [_share(p.paid_tokens, original_tokens) for p in points]
    tree = [_share(p.tree_tokens, original_tokens) for p in points]
    run = [p.paid_tokens // p.max_tokens_per_mb for p in points]  # trees, dummies too

    def line(
        values: Sequence[float], keys: Sequence[float], rising: bool = False
    ) -> list[tuple[float, float | None]]:
        counted = [Point(cap, value) for cap, value in zip(caps, values, strict=True)]
        return [(round(p.x), p.y) for p in true_path(counted, keys, step, rising)]

    return {
        "name": name,
        "colors": PALETTE[color],
        "dash": dash,
        "caps": caps,
        "trees": [p.n_trees for p in points],
        "paid": paid,
        "tree": None if flat else tree,
        "paid_line": line(paid, paid) if flat else line(paid, run, rising=True),
        "tree_line": [] if flat else line(tree, tree),
    }


def _share(tokens: int, original_tokens: int) -> float:
    return round(tokens / original_tokens, 5)
