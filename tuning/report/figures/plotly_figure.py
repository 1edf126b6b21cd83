"""A chart as plotly's figure, for a page: the same marks, with a hover label and a legend."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuning.report.figures.chart import CAP_TITLE, Chart, Panel, Series
from tuning.report.figures.style import COLOR, escaped, styled

_GAP = 32  # pixels between panels
_NAME_WIDTH = 60
_FEW = 40  # more points than these are small, so that their line is seen
_SYMBOLS = {
    "small": ("circle", 5),
    "small-hollow": ("circle-open", 5),
    "small-square": ("square", 5),
    "full": ("circle", 10),
    "hollow": ("circle-open", 9),
    "square": ("square", 9),
    "square-hollow": ("square-open", 9),
    "ring": ("circle-open", 17),
}


def plotly_figure(chart: Chart) -> go.Figure:
    """The panels of a chart over one axis of caps; it must have one."""
    assert chart.caps is not None
    heights = [panel.height for panel in chart.panels]
    inside = sum(heights) + _GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=_GAP / inside if len(heights) > 1 else 0,
    )
    for row, panel in enumerate(chart.panels, 1):
        for series in panel.series:
            trace = _trace(series, panel)
            trace.showlegend = bool(series.name) and (row == 1 or not series.stretch)
            figure.add_trace(trace, row, 1)
        ends = [panel.low, panel.high]
        figure.update_yaxes(
            title=panel.axis_title,
            type="log" if panel.low > 0 else "linear",
            range=[math.log10(end) for end in ends] if panel.low > 0 else ends,
            tickvals=list(panel.ticks),
            ticktext=list(panel.ticks.values()),
            row=row,
        )
    figure.update_xaxes(
        type="log",
        range=[math.log10(cap) for cap in chart.caps],
        tickvals=list(chart.cap_ticks),
        ticktext=list(chart.cap_ticks.values()),
    )
    figure.update_xaxes(title=CAP_TITLE, row=len(heights))
    styled(figure, int(inside) + 140)
    figure.update_layout(legend_y=1 + 26 / inside, margin_t=50)
    return figure


def _trace(series: Series, panel: Panel) -> go.Scatter:
    color, points = COLOR[series.color], series.points
    if series.stretch:
        # A filled trace: plotly hatches no shapes, and puts them wrong on a logarithmic axis.
        hatch = {"shape": "/", "fgcolor": color, "bgcolor": "rgba(0,0,0,0)", "size": 8}
        hatched = series.stretch == "hatched"
        return go.Scatter(
            x=[points[at].x for at in (0, 1, 1, 0)],
            y=[panel.low, panel.low, panel.high, panel.high],
            name=escaped(series.name, _NAME_WIDTH),
            fill="toself",
            mode="none",
            opacity=0.55 if hatched else 0.14,
            hoverinfo="skip",
            legendrank=2000,
            **({"fillpattern": hatch} if hatched else {"fillcolor": color}),
        )
    look: dict[str, Any] = {}
    if series.line:
        look["line"] = {"color": color, "dash": series.line, "width": series.width}
    if series.dots:
        symbol, size = _SYMBOLS[series.dots]
        size = min(size, 3) if len(points) > _FEW else size
        look["marker"] = {"color": color, "symbol": symbol, "size": size}
        look["marker"]["line"] = {"width": 1.6, "color": color}
    if any(point.low is not None for point in points):
        look["error_y"] = {
            "array": [(p.high or 0) - (p.y or 0) if p.high else 0 for p in points],
            "arrayminus": [(p.y or 0) - p.low if p.low else 0 for p in points],
            "color": color,
            "thickness": 1.4,
            "width": 0,
        }
    said, labelled = (any(getattr(p, name) for p in points) for name in ("said", "label"))
    return go.Scatter(
        x=[p.x for p in points],
        y=[p.y for p in points],
        name=escaped(series.name, _NAME_WIDTH),
        mode=("lines" if series.line else "markers") + "+text" * labelled,
        text=[p.label for p in points] if labelled else None,
        textposition="top center" if series.line else "top right",
        hovertext=[escaped(p.said, 200) for p in points] if said else None,
        hoverinfo="text" if said else "skip",
        connectgaps=False,
        cliponaxis=False,
        **look,
    )
