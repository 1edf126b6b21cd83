"""Paid and tree tokens over the whole range of caps; a click on it chooses the cap.

Notable:
- drawn by a component of our own: a move of the slider moves one line of it, where a plotly figure
  would be drawn anew, which takes longer than packing
- a curve is drawn only where it is known (``true_path``); the points of the cap now have numbers
- the same figures are a table below it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
_component = component(
    "cap_chart", "Tokens paid at each cap", _HTML, _CSS, Path(__file__).with_name("cap_chart.js")
)


def cap_chart(
    curves: Mapping[str, Sequence[CurvePoint]],
    original_tokens: int,
    cap: int,
    low: int,
    high: int,
    step: int,
) -> None:
    """Draw tokens over original tokens at each counted cap; a click sets the plan's cap.

    curves:          points by packer ("areal", "prefix-aware"), by ascending cap; what is paid is
                     joined between neighbours that run equally many trees, all else only between
                     neighbours ``step`` apart
    original_tokens: of the batch
    cap:             of now: marked, and numbered on each curve that was counted there
    low, high, step: the caps that can be chosen; the axis holds these and all points
    """

    def picked(value: Any) -> None:
        if isinstance(value, int) and low <= value <= high:
            state.update(max_tokens_per_mb=value)

    def series(
        packer: str, name: str, width: float, counted: Mapping[int, int], run: Mapping[int, int]
    ) -> dict[str, Any]:
        color, dash, way = SERIES[packer]
        points = [
            Point(at, round(tokens / max(original_tokens, 1), 5))
            for at, tokens in sorted(counted.items())
        ]
        keys = [run.get(int(point.x), point.y) for point in points]
        line = true_path(points, keys, step, rising=bool(run))
        return {
            "name": f"{way}: {name}",
            "colors": PALETTE[color],
            "dash": dash,
            "width": width,
            "caps": [point.x for point in points],
            "values": [point.y for point in points],
            "trees": [run.get(int(point.x), 0) for point in points],
            "line": [(round(at), y if y is None else round(y, 5)) for at, y, *_ in line],
        }

    drawn: list[dict[str, Any]] = []
    flat: dict[int, int] = {}
    for packer, points in curves.items():
        by_cap = {point.max_tokens_per_mb: point for point in points}
        run = {at: point.n_run for at, point in by_cap.items()}
        paid = {at: point.paid_tokens for at, point in by_cap.items()}
        tree = {at: point.tree_tokens for at, point in by_cap.items()}
        flat |= {at: point.flat for at, point in by_cap.items() if point.flat is not None}
        drawn += [
            series(packer, "paid", 2, paid, run),
            series(packer, "tree_token_ratio", 1, tree, {}),
        ]
    drawn = [series("flat", "paid", 2, flat, {}), *drawn]
    values = [1.0, *(value for one in drawn for value in one["values"])]
    known = [low, high, *(at for one in drawn for at in one["caps"])]
    ends = min(known), max(known)
    # Values far apart need a logarithmic axis to be told apart.
    wide = 0 < min(values) < max(values) / _WIDE
    axis = Panel("", 0, 1.1 * max(values), low=min(values) / 1.1 if wide else 0.0)
    _component(
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
            "series": [one for one in drawn if one["caps"]],
            "label": "Paid tokens and tree tokens divided by original tokens, for each "
            "max_tokens_per_mb. The slider above chooses one; the table below has the figures.",
        },
        picked=picked,
    )
