"""One look for all figures: colours, fonts, margins, hover labels."""

from __future__ import annotations

import html
import math
from typing import Any

import plotly.graph_objects as go

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
PINK, SKY, RED = "#CC79A7", "#56B4E9", "#D55E00"
GREY = "#8a8f98"

SERIES = {
    "areal": (BLUE, "solid", "AReaL's packer"),
    "prefix-aware": (GREEN, "dash", "Espalier's packer"),
    "flat": (ORANGE, "dot", "flat, as today"),
    "padded": (GREY, "dashdot", "padded rows"),
}
"""Colour, dash and name of each way to make micro-batches."""

DEPTH_SCALE = ("#0b5d4f", "#14806a", "#3b9e83", "#6fb99f", "#a3d2bd", "#c9e4d6")
"""Node colours from the root down: the trunk is dark, the leaves are light."""


def styled(figure: go.Figure, height: int, legend: bool = True) -> go.Figure:
    """The house look: transparent, tight margins, legend above, hover in one box."""
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 28 if legend else 8, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=legend,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        hoverlabel={"align": "left"},
        font={"size": 13},
    )
    grid = {"gridcolor": "rgba(128,128,128,0.18)", "zeroline": False, "automargin": True}
    figure.update_xaxes(**grid)
    figure.update_yaxes(**grid)
    return figure


def mark_cap(figure: go.Figure, cap: int) -> None:
    """A vertical line at ``max_tokens_per_mb``, on a linear axis."""
    figure.add_vline(x=cap, line={"color": RED, "width": 1.5})
    figure.add_annotation(
        x=cap,
        y=0,
        yref="paper",
        yanchor="bottom",
        xanchor="left",
        text=f" cap {cap:,}",
        showarrow=False,
        font={"color": RED, "size": 12},
    )


def cap_axis(figure: go.Figure, low: int, high: int) -> None:
    """A logarithmic axis of caps with ticks at powers of two."""
    first, last = math.ceil(math.log2(max(low, 1))), math.floor(math.log2(max(high, 2)))
    ticks = [2**n for n in range(first, last + 1)] or [low]
    figure.update_xaxes(
        type="log",
        title="max_tokens_per_mb",
        tickvals=ticks,
        ticktext=[f"{t:,}" for t in ticks],
    )


def saved_as(name: str) -> dict[str, Any]:
    """Plotly's settings of a chart that its mode bar saves as ``espalier-NAME.png``, for print.

    The bar has one picture button with one format (plotly.js 4); figures of the report are SVG.
    """
    return {"toImageButtonOptions": {"filename": f"espalier-{name}", "format": "png", "scale": 2}}


def escaped(text: str, width: int = 120) -> str:
    """Dataset text for a hover label: no markup, one line, cut after ``width`` characters.

    Plotly reads tags in labels; text of a dataset is not trusted to hold none.
    """
    line = " ".join(text.split())
    cut = line if len(line) <= width else line[: width - 1] + "…"
    return html.escape(cut)
