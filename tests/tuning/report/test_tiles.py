"""Tiles of a tree's mask, in both orders, against the mask spelled out token by token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import TreeMask
from packing.layout import TreeLayout, areal_layout, depth_first_layout
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Trie, whole_trie
from tuning.report.figures.tiles import EMPTY, FULL, PARTIAL, Order, TileMap

# The smallest alphabet that branches, so that nested prefixes and duplicates are common.
row_lists = st.lists(st.lists(st.integers(0, 2), max_size=14), min_size=1, max_size=9)


def visible(layout: TreeLayout) -> npt.NDArray[np.bool_]:
    """bool ``(N, N)``: query sees key, by walking from every token up to its root."""
    seen = np.zeros((layout.n_tokens,) * 2, dtype=np.bool_)
    for query in range(layout.n_tokens):
        key = query
        while key >= 0:
            seen[query, key] = True
            key = int(layout.parent[key])
    return seen


def tile_by_tile(seen: npt.NDArray[np.bool_], tile: int) -> tuple[list[list[int]], list[list[int]]]:
    """Visible pairs and state of every tile, one tile at a time."""
    at = range(0, len(seen), tile)
    tiles = [[seen[i : i + tile, j : j + tile] for j in at] for i in at]
    counts = [[int(t.sum()) for t in row] for row in tiles]
    states = [[FULL if t.all() else PARTIAL if t.any() else EMPTY for t in row] for row in tiles]
    return counts, states


def trie_of(lists: list[list[int]]) -> tuple[Rows, Trie]:
    rows = Rows.from_lists(lists)
    return rows, whole_trie(PrefixOrder.of(rows))


@settings(deadline=None)
@given(row_lists, st.integers(1, 9))
def test_every_tile_in_both_orders_is_counted_exactly(lists: list[list[int]], tile: int) -> None:
    rows, trie = trie_of(lists)
    orders: list[tuple[Order, TreeLayout]] = [
        ("depth-first", depth_first_layout(rows, trie)),
        ("areal", areal_layout(rows, trie)),
    ]
    for order, layout in orders:
        found = TileMap.of(trie, order, tile)
        counts, states = tile_by_tile(visible(layout), tile)
        assert found.visible.tolist() == counts
        assert found.states.tolist() == states
        assert found.mask_area == trie.attention_area


@settings(deadline=None)
@given(row_lists, st.integers(1, 9))
def test_depth_first_tiles_are_those_of_the_kernels(lists: list[list[int]], tile: int) -> None:
    rows, trie = trie_of(lists)
    if not trie.n_tokens:
        return
    found = TileMap.of(trie, "depth-first", tile)
    ends = depth_first_layout(rows, trie).subtree_end
    assert ends is not None
    mask = TreeMask.from_subtree_end(ends)
    kernel = mask.tiles(tile, tile)
    assert found.counts[1:] == (kernel.n_partial, kernel.n_full)
    assert found.block_efficiency == pytest.approx(mask.block_efficiency(tile, tile))


@settings(deadline=None)
@given(row_lists, st.integers(1, 4), st.integers(1, 5))
def test_pooling_keeps_the_three_states(lists: list[list[int]], tile: int, most: int) -> None:
    _, trie = trie_of(lists)
    found = TileMap.of(trie, "areal", tile)
    percent, pooled = found.percent(most)
    assert percent.shape == (-(-len(found.states) // pooled),) * 2
    assert len(percent) <= most
    for i, row in enumerate(percent.tolist()):
        for j, share in enumerate(row):
            part = found.states[i * pooled : (i + 1) * pooled, j * pooled : (j + 1) * pooled]
            assert (share == 0) == bool((part == EMPTY).all())
            assert (share == 100) == bool((part == FULL).all())


def test_a_scattered_subtree_costs_tiles() -> None:
    """Two prompts whose samples arrive in turn: AReaL's order scatters them, ours does not."""
    lists = [[p] * 8 + [s] * 8 for s in range(2, 10) for p in (0, 1)]
    _, trie = trie_of(lists)
    areal, ours = TileMap.of(trie, "areal", 8), TileMap.of(trie, "depth-first", 8)
    assert areal.mask_area == ours.mask_area
    assert areal.visited == ours.visited == 2 + 16 * 2
    wide = [TileMap.of(trie, order, 16) for order in ("areal", "depth-first")]
    assert wide[0].visited > wide[1].visited
    assert wide[0].block_efficiency < wide[1].block_efficiency


def test_a_tree_without_tokens_and_a_tile_without_tokens() -> None:
    empty = TileMap.of(Trie.empty(), "areal")
    assert (empty.counts, empty.block_efficiency) == ((0, 0, 0), 1.0)
    assert empty.percent(4)[0].shape == (0, 0)
    with pytest.raises(ValueError, match="at least one token"):
        TileMap.of(Trie.empty(), "areal", 0)


def test_a_chain_of_two_thousand_nodes_is_walked_without_recursion() -> None:
    _, trie = trie_of([[1] * n + [2] for n in range(1, 2_001)])
    found = TileMap.of(trie, "depth-first")
    assert len(trie) > 2_000 and found.mask_area == trie.attention_area
