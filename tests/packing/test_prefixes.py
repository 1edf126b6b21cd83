"""PrefixOrder against sets of prefixes and pairwise comparison."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from packing.prefixes import PrefixOrder, range_minima, range_minimum
from packing.rows import Rows
from tests.packing.strategies import any_rows


def common(a: list[int], b: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))


def distinct_prefixes(sequences: list[list[int]]) -> int:
    return len({tuple(s[:n]) for s in sequences for n in range(1, len(s) + 1)})


@given(any_rows)
def test_order_is_lexicographic_and_stable(sequences: list[list[int]]) -> None:
    order = PrefixOrder.of(Rows.from_lists(sequences))
    assert order.order.tolist() == sorted(range(len(sequences)), key=lambda i: (sequences[i], i))
    assert order.rank[order.order].tolist() == list(range(len(sequences)))


@given(any_rows)
def test_lcp_of_any_two_rows(sequences: list[list[int]]) -> None:
    order = PrefixOrder.of(Rows.from_lists(sequences))
    n = len(sequences)
    a, b = np.divmod(np.arange(n * n), n)
    expected = [
        common(sequences[order.order[i]], sequences[order.order[j]])
        for i, j in zip(a, b, strict=True)
    ]
    assert order.lcp_between(a, b).tolist() == expected


@given(any_rows, st.data())
def test_tree_tokens_count_distinct_prefixes(
    sequences: list[list[int]], data: st.DataObject
) -> None:
    order = PrefixOrder.of(Rows.from_lists(sequences))
    assert order.tree_tokens() == distinct_prefixes(sequences)
    chosen = data.draw(st.sets(st.sampled_from(range(len(sequences)))))
    assert order.tree_tokens(list(chosen)) == distinct_prefixes([sequences[i] for i in chosen])


def test_large_token_ids_sort_as_numbers() -> None:
    sequences = [[2**31 - 1], [256], [1], [65536], [255, 1]]
    order = PrefixOrder.of(Rows.from_lists(sequences))
    assert [sequences[i] for i in order.order] == sorted(sequences)


def test_more_rows_than_one_block() -> None:
    sequences = [[i % 7, i % 5, i] for i in range(9000)]
    order = PrefixOrder.of(Rows.from_lists(sequences))
    assert [sequences[i] for i in order.order] == sorted(sequences)
    assert order.tree_tokens() == distinct_prefixes(sequences)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.data())
def test_range_minimum(values: list[int], data: st.DataObject) -> None:
    levels = range_minima(np.array(values, dtype=np.int32))
    start = data.draw(st.integers(0, len(values) - 1))
    stop = data.draw(st.integers(start + 1, len(values)))
    assert range_minimum(levels, [start], [stop]).tolist() == [min(values[start:stop])]
