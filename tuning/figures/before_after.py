"""One batch three ways, to scale: padded, packed flat, as trees, with the time of a step each."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuning.batch_picture import BatchPicture, Panel
from tuning.figures.style import BLUE, ORANGE, styled
from tuning.points import Mode

_PARTS = (
    ("first", "computed once", BLUE),
    ("again", "the same prefix, computed again", ORANGE),
    ("padding", "padding and waiting", "rgba(128,128,128,0.3)"),
)


def before_after(picture: BatchPicture, steps: Mapping[Mode, str]) -> go.Figure:
    """Panels side by side with the same scale on both axes: equal areas are equal work.

    steps: seconds of a step and how they are known, as text ("1.82 s measured"), by mode; a mode
           that has none is called not measured
    """
    panels = picture.panels
    titles = [panel_title(one, picture, steps) for one in panels]
    figure = make_subplots(
        cols=len(panels), shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=titles
    )
    for col, panel in enumerate(panels, 1):
        tops = [0]
        for band in panel.bands:
            tops.append(tops[-1] + band.lines)
        middles = [(a + b) / 2 for a, b in pairwise(tops)]
        for name, label, color in _PARTS:
            figure.add_bar(
                orientation="h",
                x=[getattr(band, name) for band in panel.bands],
                y=middles,
                width=[band.lines * 0.92 for band in panel.bands],
                name=label,
                legendgroup=name,
                showlegend=col == 1,
                marker={"color": color, "line": {"width": 0}},
                customdata=[band.lines for band in panel.bands],
                hovertemplate="%{x:,.0f} tokens a line, "
                + label
                + " (%{customdata:,} lines)<extra></extra>",
                row=1,
                col=col,
            )
    widest = max((_width(panel) for panel in panels), default=1.0)
    tallest = max((panel.lines for panel in panels), default=1)
    styled(figure, 420)
    figure.update_layout(barmode="stack", margin_t=86, legend={"y": 1.16})
    figure.update_xaxes(range=[0, widest], tickformat="~s", nticks=4)
    figure.update_yaxes(range=[tallest, 0], showticklabels=False, showgrid=False)
    for col, note in enumerate(figure.layout.annotations, 1):
        axis = figure.layout["xaxis" if col == 1 else f"xaxis{col}"]
        note.update(font_size=13, align="left", x=axis.domain[0], xanchor="left")
    return figure


def panel_title(panel: Panel, picture: BatchPicture, steps: Mapping[Mode, str]) -> str:
    """Name, lines, tokens computed (exact), and the step's time or that there is none."""
    share = panel.tokens / picture.original_tokens if picture.original_tokens else 1.0
    return (
        f"<b>{panel.title}</b><br>"
        f"{panel.tokens:,} tokens computed ({share:.2f} ×)<br>"
        f"step: {steps.get(panel.mode, 'not measured')}"
    )


def _width(panel: Panel) -> float:
    return max((b.first + b.again + b.padding for b in panel.bands), default=1.0)
