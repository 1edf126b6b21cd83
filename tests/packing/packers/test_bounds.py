"""Bounds: never above the true optimum, and tight where trunks or long rows decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.packers.areal import RowTooLong
from packing.packers.bounds import Bounds, bounds
from packing.packers.prefix_aware import pack_prefix_aware
from packing.prefixes import PrefixOrder
from packing.rows import Rows

# Few tokens and lengths of 1 … 9: rows that share, nest and repeat.
_row = st.lists(st.integers(0, 1), min_size=1, max_size=9)
_trunk = st.lists(st.integers(0, 1), max_size=6)


@st.composite
def few_rows(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """At most 7 rows, most of them behind a common trunk, and a cap that holds the longest."""
    trunk = draw(_trunk)
    rows = draw(st.lists(_row, min_size=1, max_size=7))
    behind = [trunk + row if draw(st.integers(0, 3)) else row for row in rows]
    return behind, max(map(len, behind)) + draw(st.integers(0, 12))


def tokens_of(rows: list[list[int]]) -> int:
    """Distinct prefixes, counted one by one."""
    return len({tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)})


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """Every way to divide the items into sets."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for parts in partitions(rest):
        yield [[first], *parts]
        for i, part in enumerate(parts):
            yield [*parts[:i], [first, *part], *parts[i + 1 :]]


def optimum(rows: list[list[int]], cap: int) -> tuple[int, int]:
    """Fewest trees and (possibly of another packing) fewest tokens, by trying everything."""
    size: dict[tuple[int, ...], int] = {}
    trees, tokens = len(rows), sum(map(len, rows))
    for parts in partitions(list(range(len(rows)))):
        sizes = []
        for part in parts:
            key = tuple(part)
            if key not in size:
                size[key] = tokens_of([rows[i] for i in part])
            sizes.append(size[key])
        if max(sizes) <= cap:
            trees, tokens = min(trees, len(parts)), min(tokens, sum(sizes))
    return trees, tokens


@given(few_rows())
@settings(max_examples=150, deadline=None)
def test_bounds_never_exceed_the_optimum(case: tuple[list[list[int]], int]) -> None:
    rows, cap = case
    order = PrefixOrder.of(Rows.from_lists(rows))
    bound = bounds(order, cap)
    trees, tokens = optimum(rows, cap)
    assert max(bound.trees_trunk, bound.trees_pairs, bound.trees_size) <= bound.trees <= trees
    assert bound.tokens <= tokens
    ours = pack_prefix_aware(order, cap)
    assert trees <= ours.n_trees
    assert tokens <= ours.tree_tokens


@given(few_rows())
@settings(max_examples=100, deadline=None)
def test_a_cap_that_holds_everything_needs_one_tree(case: tuple[list[list[int]], int]) -> None:
    rows, _ = case
    order = PrefixOrder.of(Rows.from_lists(rows))
    whole = order.tree_tokens()
    assert bounds(order, whole) == Bounds(1, 1, 1, 1, whole)


def test_a_trunk_is_repeated_in_every_tree() -> None:
    # 60 tokens of trunk, eight rows of 20 more: only two rows fit beside the trunk.
    rows = [list(range(60)) + [1000 + row] * 20 for row in range(8)]
    bound = bounds(PrefixOrder.of(Rows.from_lists(rows)), 100)
    assert (bound.trees, bound.trees_trunk, bound.trees_size) == (4, 4, 3)
    assert bound.tokens == 4 * 60 + 8 * 20


def test_a_trunk_deep_in_the_trie_counts_as_often_as_it_must_be_repeated() -> None:
    # Two domains of 50 tokens; beside one only two of its rows fit, so each trunk is needed
    # twice: 4 x 50 + 8 x 25 = 400 tokens.
    rows = [[domain] * 50 + [10 + row] * 25 for domain in (1, 2) for row in range(4)]
    bound = bounds(PrefixOrder.of(Rows.from_lists(rows)), 100)
    assert bound == Bounds(4, 4, 2, 3, 400)


def test_rows_of_which_no_two_fit_need_a_tree_each() -> None:
    rows = [[1, 1, 1] + [row] * 57 for row in range(5)]
    bound = bounds(PrefixOrder.of(Rows.from_lists(rows)), 116)
    assert bound == Bounds(5, 3, 5, 3, 5 * 60)
    assert bounds(PrefixOrder.of(Rows.from_lists(rows)), 117).trees_pairs == 1


def test_only_the_rows_fed_count() -> None:
    rows = [[row] * 10 for row in range(6)]
    order = PrefixOrder.of(Rows.from_lists(rows))
    assert bounds(order, 20).trees == 3
    assert bounds(order, 20, arrival=[4, 0]) == Bounds(1, 1, 1, 1, 20)
    assert bounds(order, 20, arrival=[]) == Bounds(0, 0, 0, 0, 0)


def test_empty_rows_need_no_tree() -> None:
    assert bounds(PrefixOrder.of(Rows.from_lists([[], []])), 4) == Bounds(0, 0, 0, 0, 0)


def test_a_row_longer_than_the_cap_is_named() -> None:
    order = PrefixOrder.of(Rows.from_lists([[1], [2] * 9, [3] * 8]))
    with pytest.raises(RowTooLong) as error:
        bounds(order, 8)
    assert (error.value.row, error.value.length) == (1, 9)
    assert bounds(order, 8, arrival=[0, 2]).trees == 2


@pytest.mark.parametrize(
    ("name", "caps", "trees", "ratios"),
    [
        ("tau_airline_turns", (12288, 16384, 32768), (51, 37, 18), (0.0803, 0.0780, 0.0748)),
        ("gsm8k_solutions", (2048, 4096, 8192), (442, 221, 111), (0.6981, 0.6973, 0.6970)),
    ],
)
def test_bounds_on_real_rollouts(
    golden_rows: Any,
    name: str,
    caps: tuple[int, ...],
    trees: tuple[int, ...],
    ratios: tuple[float, ...],
) -> None:
    rows = golden_rows(name)
    order = PrefixOrder.of(rows)
    found = [bounds(order, cap) for cap in caps]
    assert tuple(bound.trees for bound in found) == trees
    assert np.round([bound.tokens / rows.n_tokens for bound in found], 4).tolist() == list(ratios)
