"""TreeMask: areas, nodes and tile classes against the explicit matrix; refusals name the place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import MaskError, TreeMask
from tests.kernels.forests import (
    caterpillar,
    forests,
    prompt_groups,
    random_forest,
    subtree_end_of,
    token_parents,
    visible,
)

SIZES = st.sampled_from([1, 3, 4, 8, 16, 64, 300])


@given(forests(), SIZES, SIZES)
@settings(deadline=None, max_examples=150)
def test_tile_classes_are_those_of_the_matrix(end: np.ndarray, tile_q: int, tile_k: int) -> None:
    mask, seen = TreeMask.from_subtree_end(end), visible(end)
    tiles = mask.tiles(tile_q, tile_k)
    by_query = np.zeros((-(-len(end) // tile_q), -(-len(end) // tile_k)), dtype=int)
    for i in range(len(by_query)):
        partial = tiles.partial_k[tiles.partial_offsets[i] : tiles.partial_offsets[i + 1]]
        full = tiles.full_k[tiles.full_offsets[i] : tiles.full_offsets[i + 1]]
        assert partial.tolist() == sorted(partial) and full.tolist() == sorted(full)
        by_query[i, partial.numpy()], by_query[i, full.numpy()] = 1, 2
    expected = np.zeros_like(by_query)
    for i, j in np.ndindex(*expected.shape):
        cell = seen[i * tile_q : (i + 1) * tile_q, j * tile_k : (j + 1) * tile_k]
        expected[i, j] = 2 if cell.all() else int(cell.any())
    np.testing.assert_array_equal(by_query, expected)
    assert (tiles.n_partial, tiles.n_full) == ((expected == 1).sum(), (expected == 2).sum())
    visited = int((expected > 0).sum()) * tile_q * tile_k
    assert mask.visited_area(tile_q, tile_k) == visited
    assert mask.block_efficiency(tile_q, tile_k) == mask.mask_area / visited


@given(forests(max_padding=5))
@settings(deadline=None)
def test_areas_depths_and_cells_are_those_of_the_matrix(end: np.ndarray) -> None:
    mask, seen = TreeMask.from_subtree_end(end), visible(end)
    assert mask.n == len(end)
    assert mask.n_real == np.count_nonzero(end)
    assert mask.mask_area == seen.sum()
    np.testing.assert_array_equal(mask.depth, np.maximum(seen.sum(1) - 1, 0))
    np.testing.assert_array_equal(mask.visible(slice(2, 9), slice(1, 5)), seen[2:9, 1:5])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), min_size=1, max_size=12))
@settings(deadline=None)
def test_nodes_are_the_runs_without_a_branch(draws: list[tuple[int, int]]) -> None:
    nodes = [(max(-1, i - 1 - back), tokens) for i, (back, tokens) in enumerate(draws)]
    parents = token_parents(nodes)
    children = np.bincount([p for p in parents if p >= 0], minlength=len(parents))
    goes_on = [t > 0 and parents[t] == t - 1 and children[t - 1] == 1 for t in range(len(parents))]
    found = TreeMask.from_subtree_end(subtree_end_of(nodes, 3)).nodes
    assert found.start.tolist() == [t for t, on in enumerate(goes_on) if not on]
    assert found.stop.tolist() == [*found.start[1:].tolist(), len(parents)]
    for node, start in enumerate(found.start.tolist()):
        above = parents[start]
        assert (found.parent[node] < 0) == (above < 0)
        assert above < 0 or found.stop[found.parent[node]] - 1 == above
        depth = 0
        while above >= 0:
            above, depth = parents[above], depth + 1
        assert found.depth[node] == depth


def test_ten_thousand_nested_nodes() -> None:
    end = caterpillar(10_000, 2, 1, branch_first=True)
    mask = TreeMask.from_subtree_end(end)
    # each turn has a leaf; the last turn has nothing else below it, so its leaf continues it
    assert len(mask.nodes) == 2 * 10_000 - 1
    assert mask.nodes.depth.max() == 2 * 9_999
    assert mask.mask_area == sum(4 * i + 3 + 2 * i + 3 for i in range(10_000))


def test_all_padding_sees_nothing() -> None:
    mask = TreeMask.from_subtree_end(np.zeros(10, dtype=np.int32))
    tiles = mask.tiles(4, 4)
    assert (mask.n_real, mask.mask_area, len(mask.nodes)) == (0, 0, 0)
    assert (tiles.n_partial, tiles.n_full, mask.visited_area(4, 4)) == (0, 0, 0)
    assert mask.block_efficiency(4, 4) == 1.0


def test_mask_data_of_65536_tokens_is_under_a_megabyte() -> None:
    groups = prompt_groups(32, 8, 256, 224)
    assert len(groups) == 65_536
    mask = TreeMask.from_subtree_end(groups)
    tiles = mask.tiles(128, 128)
    tensors = [mask.subtree_end, *(x for x in vars(tiles).values() if torch.is_tensor(x))]
    assert mask.on_host.ctypes.data == mask.subtree_end.data_ptr()
    assert sum(x.numel() * x.element_size() for x in tensors) < 1_000_000


def test_a_mask_of_262144_tokens_has_its_tiles() -> None:
    mask = TreeMask.from_subtree_end(np.full(262_144, 262_144, dtype=np.int32))
    tiles = mask.tiles(128, 128)
    assert (tiles.n_partial, tiles.n_full) == (2048, 2048 * 2047 // 2)
    assert mask.mask_area == 262_144 * 262_145 // 2


def test_tiles_are_made_once() -> None:
    mask = TreeMask.from_subtree_end(random_forest(np.random.default_rng(0), 9, 9))
    assert mask.tiles(4, 8) is mask.tiles(4, 8)
    assert mask.tiles(4, 8) is not mask.tiles(8, 4)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ([3, 0, 3], r"subtree_end\[1\] = 0 is padding before the last real token"),
        ([2, 1, 3], r"subtree_end\[1\] = 1 does not lie in 2 … 3"),
        ([4, 2, 3], r"subtree_end\[0\] = 4 does not lie in 1 … 3"),
        ([-1, 2], r"subtree_end\[0\] = -1"),
        ([2, 3, 3, 0], r"subtree of token 1 \(up to 3\) is not inside .* \(token 0, up to 2\)"),
        ([5, 3, 4, 4, 5], r"subtree of token 2 \(up to 4\) is not inside"),
        ([[1]], "one flat array"),
        ([1.0], "float"),
        (np.empty(0, dtype=np.int32), "1 … 2147483647 tokens"),
    ],
)
def test_ends_that_are_no_forest_are_refused(end: object, message: str) -> None:
    with pytest.raises(MaskError, match=message):
        TreeMask.from_subtree_end(np.asarray(end))


@given(st.lists(st.integers(1, 7), min_size=1, max_size=7))
@settings(deadline=None, max_examples=300)
def test_exactly_the_nested_ends_are_accepted(ends: list[int]) -> None:
    end = np.array([max(i + 1, min(e, len(ends))) for i, e in enumerate(ends)], dtype=np.int32)
    nested = all(
        end[j] <= end[i] for i in range(len(end)) for j in range(i + 1, min(end[i], len(end)))
    )
    if nested:
        assert TreeMask.from_subtree_end(end).n_real == len(end)
    else:
        with pytest.raises(MaskError, match="depth-first"):
            TreeMask.from_subtree_end(end)


def test_tensors_are_taken_and_moved() -> None:
    end = torch.tensor([3, 2, 3, 0])
    mask = TreeMask.from_subtree_end(end)
    assert mask.subtree_end.dtype == torch.int32 and mask.device == end.device
    end[0] = 1  # the mask has its own copy
    assert mask.on_host.tolist() == [3, 2, 3, 0]
    with pytest.raises(ValueError, match="0 x 4"):
        mask.tiles(0, 4)
