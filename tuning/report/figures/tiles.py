"""The tiles of a tree's mask, and as a picture: what attention skips, masks, and runs through.

Notable:
- a node is one run of tokens in depth-first order and in AReaL's order; which tiles hold anything
  follows from the runs of each node and of its ancestors, never from an N x N mask
- no torch: the app counts and draws without it
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from packing.spec import BLOCK_SIZE
from packing.trie import Trie
from tuning.report.figures.style import BLUE, ORANGE, styled

Order = Literal["depth-first", "areal"]
EMPTY, PARTIAL, FULL = 0, 1, 2


@dataclass(frozen=True, eq=False)
class TileMap:
    """Visible pairs in every tile of the mask of N tokens. T = ceil(N / tile).

    visible: int32 ``(T, T)``, (query, key) pairs that attend in each (query tile, key tile)
    """

    n_tokens: int
    tile: int
    visible: npt.NDArray[np.int32]

    @classmethod
    def of(cls, trie: Trie, order: Order, tile: int = BLOCK_SIZE) -> Self:
        """The tiles of a tree whose tokens stand in ``order``; padding is left out.

        O(nodes x T + T^2) time: one walk down the tree keeps how many tokens of the current path
        lie in each key tile. Raises ValueError for a tile without tokens.
        """
        if tile < 1:
            raise ValueError(f"a tile needs at least one token a side; got {tile}")
        start = trie.start if order == "depth-first" else trie.areal_start
        side = -(-trie.n_tokens // tile)
        visible = np.zeros((side, side), dtype=np.int32)
        on_path = np.zeros(side, dtype=np.int32)
        open_runs: list[tuple[int, slice, npt.NDArray[np.int32]]] = []
        columns = (start, trie.lengths, trie.parent)
        for node, (first, length, parent) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            while open_runs and open_runs[-1][0] != parent:
                _, tiles, counts = open_runs.pop()
                on_path[tiles] -= counts
            tiles, counts = _run(first, length, tile)
            visible[tiles] += counts[:, None] * on_path
            # Within its own run a token sees the tiles before its own in whole, its own in half.
            own = np.tril(counts[:, None] * counts, -1)
            own[np.diag_indices(len(counts))] = counts * (counts + 1) // 2
            visible[tiles, tiles] += own
            on_path[tiles] += counts
            open_runs.append((node, tiles, counts))
        return cls(trie.n_tokens, tile, visible)

    @cached_property
    def area(self) -> npt.NDArray[np.int64]:
        """int64 ``(T, T)``: pairs in each tile; the last row and column may be narrower."""
        width = np.full(len(self.visible), self.tile, dtype=np.int64)
        if len(width):
            width[-1] = self.n_tokens - self.tile * (len(width) - 1)
        return width[:, None] * width

    @cached_property
    def states(self) -> npt.NDArray[np.uint8]:
        """uint8 ``(T, T)``: EMPTY, PARTIAL, or FULL where every query sees every key."""
        return np.where(self.visible == self.area, FULL, self.visible > 0).astype(np.uint8)

    @property
    def mask_area(self) -> int:
        """Pairs that attend."""
        return int(self.visible.sum(dtype=np.int64))

    @property
    def counts(self) -> tuple[int, int, int]:
        """Tiles that are empty, partial and full."""
        empty, partial, full = np.bincount(self.states.ravel(), minlength=3).tolist()
        return empty, partial, full

    @property
    def visited(self) -> int:
        """Tiles that a kernel must visit."""
        return sum(self.counts[PARTIAL:])

    @property
    def block_efficiency(self) -> float:
        """``mask_area`` over the pairs of the visited tiles, 0 … 1."""
        return self.mask_area / (self.visited * self.tile**2) if self.visited else 1.0

    def percent(self, most: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Visible share in percent, at most ``most`` a side, and how many tiles one cell pools.

        Returns uint8 ``(S, S)``, 0 only where every tile is empty and 100 only where every tile is
        full, so that the three states survive the pooling.
        """
        pooled = max(-(-len(self.visible) // most), 1)
        at = np.arange(0, len(self.visible), pooled)
        if not len(at):
            return np.empty((0, 0), dtype=np.uint8), pooled
        visible, area = (_pool(x.astype(np.int64), at) for x in (self.visible, self.area))
        share = np.clip(np.rint(100 * visible / area), 1, 99)
        share[visible == 0] = 0
        share[visible == area] = 100
        return share.astype(np.uint8), pooled


def _run(first: int, length: int, tile: int) -> tuple[slice, npt.NDArray[np.int32]]:
    """The tiles that hold tokens ``first … first + length - 1``, and how many each holds."""
    low, high = first // tile, (first + length - 1) // tile
    edges = np.arange(low, high + 2, dtype=np.int32) * tile
    edges[0], edges[-1] = first, first + length
    return slice(low, high + 1), np.diff(edges)


def _pool(values: npt.NDArray[np.int64], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.add.reduceat(np.add.reduceat(values, at, axis=0), at, axis=1)


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
