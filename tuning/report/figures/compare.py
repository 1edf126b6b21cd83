"""Two sides of a comparison on the same axes: row lengths, trees and tokens over the cap, steps.

A is blue and solid, B orange and dashed; a measured step is a filled mark, an estimated one is
hollow. What is refused or does not fit has no mark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuning.plan.summary import Packed
from tuning.report.figures.style import BLUE, GREY, ORANGE, cap_axis, escaped, styled
from tuning.workspace.compare_side import TOKENS, Side, StepAt

_BINS = 60
_LOOKS = (("A", BLUE, "solid", "circle"), ("B", ORANGE, "dash", "square"))
_HEIGHTS = (0.34, 0.33, 0.33)
_NAME_WIDTH = 40

Lengths = npt.NDArray[np.int64]


def lengths_compared(sides: Sequence[Lengths], names: Sequence[str]) -> go.Figure:
    """Share of rows by length, in the same bins. sides: int64 ``(rows,)`` of A and of B."""
    top = max(int(lengths.max(initial=1)) for lengths in sides)
    edges = np.unique(np.linspace(0, top + 1, min(_BINS, top + 1) + 1).astype(np.int64))
    figure = go.Figure()
    for (label, color, dash, _), lengths, name in zip(_LOOKS, sides, names, strict=True):
        counts, _ = np.histogram(lengths, edges)
        share = counts / max(len(lengths), 1)
        figure.add_scatter(
            x=edges,
            y=np.append(share, share[-1]),
            name=f"{label}: {escaped(name, _NAME_WIDTH)}",
            mode="lines",
            line={"color": color, "dash": dash, "width": 2, "shape": "hv"},
            fill="tozeroy" if label == "A" else "none",
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
    figure = make_subplots(
        rows=3, cols=1, shared_xaxes=True, row_heights=_HEIGHTS, vertical_spacing=0.06
    )
    rows: tuple[tuple[str, str, Callable[[int, Packed], float]], ...] = (
        ("trees, all ranks", ",d", lambda cap, one: one.paid_tokens // cap),
        ("tree_token_ratio", ".3f", lambda _, one: one.tree_token_ratio),
        ("paid ÷ original", ".3f", lambda _, one: one.padded_token_ratio),
    )
    for (label, color, dash, symbol), curve, cap_now, name in zip(
        _LOOKS, curves, now, names, strict=True
    ):
        caps = sorted(curve)
        for number, (title, style, value) in enumerate(rows, 1):
            figure.add_scatter(
                x=caps,
                y=[value(cap, curve[cap]) for cap in caps],
                name=f"{label}: {escaped(name, _NAME_WIDTH)}",
                legendgroup=label,
                showlegend=number == 1,
                mode="lines",
                line={"color": color, "dash": dash, "width": 2},
                hovertemplate=f"%{{y:{style}}} {title} at %{{x:,}}<extra>{label}</extra>",
                row=number,
                col=1,
            )
            if cap_now in curve:
                figure.add_scatter(
                    x=[cap_now],
                    y=[value(cap_now, curve[cap_now])],
                    name="the cap now",
                    legendgroup=label,
                    showlegend=False,
                    mode="markers",
                    marker={"color": color, "size": 11, "symbol": symbol},
                    hovertemplate=f"now, at %{{x:,}}: %{{y:{style}}} {title}<extra>{label}</extra>",
                    row=number,
                    col=1,
                )
    styled(figure, 560)
    cap_axis(figure, *span)
    figure.update_xaxes(title=None, showticklabels=False)
    figure.update_xaxes(title="max_tokens_per_mb", showticklabels=True, row=3, col=1)
    _spanned(figure, span)
    for number, (title, _, _) in enumerate(rows, 1):
        figure.update_yaxes(title=title, rangemode="tozero", row=number, col=1)
    figure.update_yaxes(type="log", rangemode="normal", dtick=1, row=1, col=1)
    figure.add_hline(y=1, line={"color": GREY, "width": 1, "dash": "dot"}, row=3, col=1)
    return figure


def steps_compared(
    sides: Sequence[Side], span: tuple[int, int], same_rows: bool, height: int
) -> go.Figure:
    """The step with trees over the cap; over other rows, tokens a second instead of seconds."""
    figure = go.Figure()
    for look, side in zip(_LOOKS, sides, strict=True):
        tokens = 0 if same_rows else side.value(TOKENS) or 0
        for kind in ("measured", "estimated"):
            chosen = [s for s in side.steps if s.mode == "tree" and s.kind == kind and s.seconds]
            if chosen and (same_rows or tokens):
                _steps(figure, chosen, tokens, kind, look)
    cap_axis(figure, *span)
    _spanned(figure, span)
    title = "seconds a step" if same_rows else "original tokens a second"
    top = max((y for trace in figure.data for y in trace.y), default=1.0)
    figure.update_yaxes(title=title, range=[0, 1.15 * top])
    return styled(figure, height)


def _steps(
    figure: go.Figure,
    steps: Sequence[StepAt],
    tokens: float,
    kind: str,
    look: tuple[str, str, str, str],
) -> None:
    label, color, dash, symbol = look
    measured = kind == "measured"

    def shown(seconds: float | None) -> float:
        seconds = seconds or 0.0
        return tokens / seconds if tokens else seconds

    middle = [shown(one.seconds) for one in steps]
    ends = [
        sorted((shown(one.low or one.seconds), shown(one.high or one.seconds))) for one in steps
    ]
    unit, style = ("tokens/s", ",.0f") if tokens else ("s", ".3f")
    figure.add_scatter(
        x=[one.max_tokens_per_mb for one in steps],
        y=middle,
        name=f"{label} {kind}",
        mode="markers" if measured else "lines+markers",
        line={"color": color, "dash": dash, "width": 1},
        marker={
            "color": color,
            "size": 10 if measured else 7,
            "symbol": symbol if measured else f"{symbol}-open",
            "line": {"width": 0 if measured else 1.5},
        },
        error_y={
            "array": [high - y for (_, high), y in zip(ends, middle, strict=True)],
            "arrayminus": [y - low for (low, _), y in zip(ends, middle, strict=True)],
            "color": color,
            "thickness": 1.2,
            "visible": measured,
        },
        customdata=[list(pair) for pair in ends],
        hovertemplate=f"%{{y:{style}}} {unit} {kind} (%{{customdata[0]:{style}}}–"
        f"%{{customdata[1]:{style}}}) at %{{x:,}}<extra>{label}</extra>",
    )


def _spanned(figure: go.Figure, span: tuple[int, int]) -> None:
    low, high = max(span[0], 1), max(span[1], 2)
    figure.update_xaxes(range=[math.log10(low / 1.08), math.log10(high * 1.08)])
