"""One look for all figures of pages: colours, fonts, margins, hover labels.

Notable:
- a colour is named here by Streamlit's placeholder for it, ``#000001`` and on: the page puts in the
  one of the reader's theme (``chartCategoricalColors``, the same as ``chart.PALETTE``)
"""

from __future__ import annotations

import html
from typing import Any

import plotly.graph_objects as go

from tuning.plan.numbers import number
from tuning.report.figures.chart import COLORS

COLOR = {name: f"#{nth:06d}" for nth, name in enumerate(COLORS, 1)}
BLUE, ORANGE, GREEN, _, _, RED, GREY = COLOR.values()


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
        text=f" cap {number(cap)}",
        showarrow=False,
        font={"color": RED, "size": 12},
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
