"""The tiles of a tree's mask as a picture: what attention skips, masks, and runs through."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuning.report.figures.style import BLUE, ORANGE, styled
from tuning.report.figures.tile_maps import TileMap

MOST_CELLS = 256
"""A side of the picture; larger masks are pooled, so that both maps stay under 300 KB."""

_EMPTY = "rgba(128,128,128,0.13)"
_STATES = (
    ("full: no mask needed", BLUE),
    ("partial: masked inside", ORANGE),
    ("empty: skipped", _EMPTY),
)


def tile_maps(areal: TileMap, ours: TileMap) -> go.Figure:
    """The same tree in AReaL's order and in depth-first order, side by side.

    Queries run down, keys to the right, in packed tokens. Full tiles are dark, partial ones light,
    empty ones hardly there, on a light page and on a dark one.
    """
    figure = make_subplots(
        1,
        2,
        subplot_titles=("AReaL's order", "depth-first order"),
        horizontal_spacing=0.04,
    )
    for column, tiles in enumerate((areal, ours), start=1):
        percent, pooled = tiles.percent(MOST_CELLS)
        cell = tiles.tile * pooled
        figure.add_trace(
            go.Heatmap(
                z=percent,
                x0=cell / 2,
                dx=cell,
                y0=cell / 2,
                dy=cell,
                zmin=0,
                zmax=100,
                colorscale=[
                    [0, _EMPTY],
                    [0.005, _EMPTY],
                    [0.005, ORANGE],
                    [0.995, ORANGE],
                    [0.995, BLUE],
                    [1, BLUE],
                ],
                showscale=False,
                xgap=1 if len(percent) <= 96 else 0,
                ygap=1 if len(percent) <= 96 else 0,
                hovertemplate="queries around %{y:,} · keys around %{x:,}"
                "<br>%{z}% of the pairs attend<extra></extra>",
            ),
            1,
            column,
        )
    for name, color in _STATES:
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            name=name,
            marker={
                "symbol": "square",
                "size": 12,
                "color": color,
                "line": {"width": 1, "color": "rgba(128,128,128,0.6)"},
            },
        )
    styled(figure, 480)
    end = max(areal.n_tokens, ours.n_tokens)
    axis = {"range": [0, end], "tickformat": ",d", "showgrid": False, "constrain": "domain"}
    figure.update_xaxes(title="key", **axis)
    figure.update_yaxes(**axis | {"range": [end, 0]})
    figure.update_yaxes(title="query", scaleanchor="x", col=1)
    figure.update_yaxes(scaleanchor="x2", showticklabels=False, col=2)
    figure.update_layout(margin_t=56, legend_y=1.07)
    return figure


def tile_table(areal: TileMap, ours: TileMap) -> list[dict[str, object]]:
    """Counts for a table: an order a line, "block efficiency" between 0 and 1."""
    lines: list[dict[str, object]] = []
    for order, tiles in (("AReaL's", areal), ("depth-first", ours)):
        empty, partial, full = tiles.counts
        lines.append(
            {
                "order": order,
                "full tiles": full,
                "partial tiles": partial,
                "empty tiles": empty,
                "visited": tiles.visited,
                "block efficiency": tiles.block_efficiency,
            }
        )
    return lines


def pooled_by(tiles: TileMap) -> int:
    """How many tiles, a side, one cell of the picture stands for."""
    return max(-(-len(tiles.visible) // MOST_CELLS), 1)
