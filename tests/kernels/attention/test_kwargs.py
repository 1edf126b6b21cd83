"""build_tree_attn_kwargs: each engine's form of the mask, in both orders, against the parents."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import BLOCK_SIZE, build_tree_attn_kwargs
from kernels.attention.kwargs import Intervals, _block_classes, dense_mask
from packing.layout import TreeLayout, areal_layout, depth_first_layout
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Trie, whole_trie
from tests.kernels.attention.test_flex import classes_of, expected_classes

CPU = torch.device("cpu")


def seen_of(layout: TreeLayout, padded_size: int) -> np.ndarray:
    """bool ``(N, N)`` by copying each token's row from its parent."""
    seen = np.zeros((padded_size, padded_size), dtype=bool)
    for token, parent in enumerate(layout.parent.tolist()):
        if parent >= 0:
            seen[token] = seen[parent]
        seen[token, token] = True
    return seen


@st.composite
def layouts(draw: st.DrawFn) -> tuple[TreeLayout, int]:
    """A tree of a few rows over a small alphabet, in either order, and its padded size."""
    stem = draw(st.lists(st.integers(0, 3), max_size=30))
    rows = []
    for _ in range(draw(st.integers(1, 8))):
        tail = draw(st.lists(st.integers(0, 2), min_size=1, max_size=14))
        rows.append(stem[: draw(st.integers(0, len(stem)))] + tail)
    data = Rows.from_lists([np.array(row) for row in rows])
    trie = whole_trie(PrefixOrder.of(data))
    layout = draw(st.sampled_from([areal_layout, depth_first_layout]))(data, trie)
    return layout, layout.n_tokens + draw(st.integers(0, 9))


def scattered() -> TreeLayout:
    """300 rows fed so that AReaL's order scatters subtrees over several blocks."""
    rng = np.random.default_rng(0)
    stems = [rng.integers(0, 50, 40) for _ in range(6)]
    rows = Rows.from_lists(
        [np.append(stems[i % 6][: rng.integers(5, 41)], rng.integers(0, 50, 9)) for i in range(60)]
    )
    return areal_layout(rows, whole_trie(PrefixOrder.of(rows)))


@given(layouts(), st.sampled_from([2, 5, 1024]))
@settings(deadline=None)
def test_dense_mask_is_the_matrix(case: tuple[TreeLayout, int], tile: int) -> None:
    layout, size = case
    seen = seen_of(layout, size)
    np.testing.assert_array_equal(dense_mask(Intervals.of(layout, size), CPU, tile).numpy(), seen)
    kwargs = build_tree_attn_kwargs(layout, size, "cpu", "dense")
    np.testing.assert_array_equal(kwargs["attention_mask"].numpy(), seen)


@given(layouts(), st.sampled_from([2, 4, 8, 16, 64]))
@settings(deadline=None)
def test_block_classes_are_exact_in_both_orders(case: tuple[TreeLayout, int], block: int) -> None:
    layout, size = case
    seen, full = _block_classes(Intervals.of(layout, size), layout.parent, block)
    expected = expected_classes(seen_of(layout, size), block)
    if size % block == 1:  # a last block of one token is left to the mask function
        expected[-1, -1] = min(expected[-1, -1], 1)
    np.testing.assert_array_equal(seen.astype(int) + full, expected)


@given(layouts())
@settings(deadline=None)
def test_interval_data_permutes_to_the_matrix(case: tuple[TreeLayout, int]) -> None:
    layout, size = case
    kwargs = build_tree_attn_kwargs(layout, size, "cpu", "intervals")
    seen, order = seen_of(layout, size), kwargs["tree_order"]
    assert (order is None) == (layout.subtree_end is not None)
    if order is not None:
        seen = seen[np.ix_(order.numpy(), order.numpy())]
    np.testing.assert_array_equal(kwargs["tree_mask"].visible(slice(None), slice(None)), seen)


@pytest.mark.parametrize("padding", [0, 37])
def test_block_mask_of_a_scattered_tree(padding: int) -> None:
    layout = scattered()
    size = layout.n_tokens + padding
    assert size > 3 * BLOCK_SIZE
    block_mask = build_tree_attn_kwargs(layout, size, "cpu", "flex")["tree_block_mask"]
    seen = seen_of(layout, size)
    np.testing.assert_array_equal(classes_of(block_mask), expected_classes(seen, BLOCK_SIZE))
    zero, token = torch.tensor(0), torch.arange(size)
    cells = block_mask.mask_mod(zero, zero, token[:, None], token[None])
    np.testing.assert_array_equal(cells.numpy(), seen)


@given(layouts())
@settings(deadline=None, max_examples=30)
def test_block_mask_function_in_both_orders(case: tuple[TreeLayout, int]) -> None:
    layout, size = case
    block_mask = build_tree_attn_kwargs(layout, size, "cpu", "flex")["tree_block_mask"]
    zero, token = torch.tensor(0), torch.arange(size)
    cells = block_mask.mask_mod(zero, zero, token[:, None], token[None])
    np.testing.assert_array_equal(cells.numpy(), seen_of(layout, size))


@pytest.mark.parametrize("order", [areal_layout, depth_first_layout])
def test_a_dummy_tree_is_all_padding(order: object) -> None:
    layout = order(Rows.from_lists([]), Trie.empty())  # type: ignore[operator]
    dense = build_tree_attn_kwargs(layout, 8, "cpu", "dense")["attention_mask"]
    assert dense.shape == (8, 8) and not dense.any()
    assert build_tree_attn_kwargs(layout, 8, "cpu", "intervals")["tree_mask"].n_real == 0
    block_mask = build_tree_attn_kwargs(layout, 8, "cpu", "flex")["tree_block_mask"]
    assert not classes_of(block_mask).any()


def test_what_is_not_dense_needs_no_matrix() -> None:
    rows = Rows.from_lists([np.arange(20_000), np.append(np.arange(9_000), np.arange(11_000))])
    for make in (areal_layout, depth_first_layout):
        layout = make(rows, whole_trie(PrefixOrder.of(rows)))
        tracemalloc.start()  # numpy's memory: the mask's N * N bytes would be 961 MB
        build_tree_attn_kwargs(layout, 31_000, "cpu", "intervals")
        Intervals.of(layout, 31_000)
        _block_classes(Intervals.of(layout, 31_000), layout.parent, BLOCK_SIZE)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20_000_000


def test_misuse_is_named() -> None:
    layout = scattered()
    with pytest.raises(ValueError, match=f"has {layout.n_tokens} tokens and does not fit 9"):
        build_tree_attn_kwargs(layout, 9, "cpu", "dense")
    with pytest.raises(ValueError, match="no backend 'sdpa'; there are flex, dense and intervals"):
        build_tree_attn_kwargs(layout, layout.n_tokens, "cpu", "sdpa")  # type: ignore[arg-type]
    parent = layout.parent.copy()
    parent[3] = 7
    broken = TreeLayout(**{**vars(layout), "parent": parent})
    with pytest.raises(ValueError, match="token 3 is packed before its parent, token 7"):
        build_tree_attn_kwargs(broken, layout.n_tokens, "cpu", "dense")
