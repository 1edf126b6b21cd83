"""Two sides of a comparison on the same axes: row lengths, trees and tokens over the cap, steps.

A is blue and solid, B orange and dashed; a measured step is a filled mark, an estimated one is
hollow. What is refused or does not fit has no mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from packing.spec import BLOCK_SIZE
from tuning.plan.numbers import number, ratio, seconds
from tuning.plan.summary import Packed
from tuning.report.figures.chart import Chart, Dash, Dots, Panel, Point, Series, counted_curve
from tuning.report.figures.plotly_figure import plotly_figure
from tuning.report.figures.style import COLOR, escaped, styled
from tuning.workspace.compare_side import TOKENS, Side, StepAt

_BINS = 60
_LOOKS: tuple[tuple[str, str, Dash, Dots, dict[str, Dots]], ...] = (
    ("A", "blue", "solid", "small", {"measured": "full", "estimated": "hollow"}),
    ("B", "orange", "dash", "small-square", {"measured": "square", "estimated": "square-hollow"}),
)
_NAME_WIDTH = 40

Lengths = npt.NDArray[np.int64]


def lengths_compared(sides: Sequence[Lengths], names: Sequence[str]) -> go.Figure:
    """Share of rows by length, in the same bins. sides: int64 ``(rows,)`` of A and of B."""
    top = max(int(lengths.max(initial=1)) for lengths in sides)
    edges = np.unique(np.linspace(0, top + 1, min(_BINS, top + 1) + 1).astype(np.int64))
    figure = go.Figure()
    for (label, color, dash, _, _), lengths, name in zip(_LOOKS, sides, names, strict=True):
        counts, _ = np.histogram(lengths, edges)
        share = counts / max(len(lengths), 1)
        figure.add_scatter(
            x=edges,
            y=np.append(share, share[-1]),
            name=f"{label}: {escaped(name, _NAME_WIDTH)}",
            mode="lines",
            line={"color": COLOR[color], "dash": dash, "width": 2, "shape": "hv"},
            customdata=np.stack(
                [np.append(counts, counts[-1]), np.append(edges[1:], edges[-1]) - 1], axis=1
            ),
            hovertemplate="%{y:.1%} of the rows (%{customdata[0]:,}) have %{x:,}–%{customdata[1]:,}"
            f" tokens<extra>{label}</extra>",
        )
    figure.update_xaxes(title="tokens in a row", tickformat=",")
    figure.update_yaxes(title="share of the rows", tickformat=".0%", rangemode="tozero")
    return styled(figure, 270)


def caps_compared(
    curves: Sequence[Mapping[int, Packed]],
    now: Sequence[int],
    names: Sequence[str],
    span: tuple[int, int],
) -> go.Figure:
    """Trees, tree_token_ratio and paid tokens over the cap, one above the other.

    curves: of A and B, by cap; now: the cap of each, marked; span: the caps that the axis holds
    """
    figures: tuple[tuple[str, float, Callable[[int, Packed], float], Callable[[float], str]], ...]
    figures = (
        ("trees, all ranks", 190, lambda cap, one: one.paid_tokens // cap, _trees),
        ("tree_token_ratio", 185, lambda _, one: one.tree_token_ratio, ratio),
        ("paid ÷ original", 185, lambda _, one: one.padded_token_ratio, ratio),
    )
    panels = []
    for nth, (title, height, value, written) in enumerate(figures):
        series: list[Series] = []
        top = 1.0
        for (label, color, dash, small, _), curve, cap, name in zip(
            _LOOKS, curves, now, names, strict=True
        ):
            points = tuple(
                _point(at, value(at, curve[at]), written, title, label) for at in sorted(curve)
            )
            top = max([top, *(p.y for p in points if p.y)])
            keys = [p.y if nth == 1 else curve[int(p.x)].paid_tokens // p.x for p in points]
            side = "" if nth else f"{label}: {name}"
            look = Series(side, color, points, dash, small)
            series += counted_curve(look, keys, BLOCK_SIZE, nth == 2, cap)
        if nth == 2:
            ends = tuple(Point(cap, 1.0) for cap in _span(span))
            series.append(Series("", "grey", ends, line="dot", width=1))
        low = 0.0 if nth else 0.8  # trees are told apart on a logarithmic axis
        high = top * (1.12 if nth else 1.3)
        panels.append(Panel(title, height, high, tuple(series), low=low))
    return plotly_figure(Chart(tuple(panels), "Both sides over the caps", _span(span)))


def _trees(count: float) -> str:
    return number(int(count))


def _point(
    cap: int, value: float, written: Callable[[float], str], title: str, label: str
) -> Point:
    said = f"{label}: {written(value)} {title} at {number(cap)}"
    return Point(cap, value, said, label=written(value))


def steps_compared(
    sides: Sequence[Side], span: tuple[int, int], same_rows: bool, height: int
) -> go.Figure:
    """The step with trees over the cap; over other rows, tokens a second instead of seconds."""
    series = []
    for (label, color, _, _, dots), side in zip(_LOOKS, sides, strict=True):
        tokens = 0 if same_rows else side.value(TOKENS) or 0
        for kind in ("measured", "estimated"):
            chosen = [s for s in side.steps if s.mode == "tree" and s.kind == kind and s.seconds]
            if chosen and (same_rows or tokens):
                points = tuple(_step(one, tokens, label) for one in chosen)
                series.append(Series(f"{label} {kind}", color, points, dots=dots[kind]))
    top = max((p.high or 0.0 for one in series for p in one.points), default=1.0)
    title = "seconds a step" if same_rows else "original tokens a second"
    panel = Panel(title, height - 140, 1.1 * top, tuple(series))
    return plotly_figure(Chart((panel,), "Steps of both sides over the caps", _span(span)))


def _step(one: StepAt, tokens: float, label: str) -> Point:
    def shown(value: float | None) -> float:
        value = value or one.seconds or 1.0
        return tokens / value if tokens else value

    def written(value: float) -> str:
        return f"{number(value, ',.0f')} tokens/s" if tokens else seconds(value)

    low, high = sorted((shown(one.low), shown(one.high)))
    said = f"{label}: {written(shown(None))} {one.kind} ({written(low)} to {written(high)})"
    cap = one.max_tokens_per_mb
    return Point(cap, shown(None), f"{said} at {number(cap)}", low, high)


def _span(span: tuple[int, int]) -> tuple[float, float]:
    return max(span[0], 1) / 1.08, max(span[1], 2) * 1.08
