"""Tries and layouts: nodes, slices and gathers against the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from packing.layout import TreeLayout, areal_layout, depth_first_layout
from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Trie, build_forest, whole_trie
from tests.packing.strategies import any_rows


def trees_of(sequences: list[list[int]], cap: int = 40) -> tuple[Rows, list[Trie]]:
    rows = Rows.from_lists(sequences)
    order = PrefixOrder.of(rows)
    forest = build_forest(order, pack_areal(order, max(cap, rows.longest)))
    return rows, [forest.tree(t) for t in range(len(forest))]


@given(any_rows)
def test_nodes_break_where_rows_part_or_end(sequences: list[list[int]]) -> None:
    _, tries = trees_of(sequences)
    for trie in tries:
        members = [sequences[r] for r in trie.rows]
        prefixes = {tuple(s[:n]) for s in members for n in range(1, len(s) + 1)}
        children = {p: {q[-1] for q in prefixes if q[:-1] == p} for p in prefixes}
        ends = {tuple(s) for s in members}
        breaks = {p for p in prefixes if p in ends or len(children[p]) != 1}
        assert trie.n_tokens == len(prefixes)
        node_prefixes = []
        for k in range(len(trie)):
            through = trie.rows_through(k)
            depth = int(trie.depth[k] + trie.lengths[k])
            found = {tuple(sequences[r][:depth]) for r in through}
            assert len(found) == 1
            prefix = found.pop()
            node_prefixes.append(prefix)
            assert sorted(through.tolist()) == sorted(
                r for r in trie.rows.tolist() if tuple(sequences[r][:depth]) == prefix
            )
            assert trie.first_row[k] == next(r for r in trie.rows.tolist() if r in through)
            above = trie.path(k)[:-1]
            assert int(trie.depth[k]) == sum(int(trie.lengths[a]) for a in above)
        assert set(node_prefixes) == breaks and len(node_prefixes) == len(breaks)
        assert node_prefixes == sorted(node_prefixes)
        ends_in = dict(zip(trie.sorted_rows.tolist(), trie.leaf.tolist(), strict=True))
        for row, node in ends_in.items():
            assert node_prefixes[node] == tuple(sequences[row])
        depths = [len(p) for p in prefixes]
        assert trie.attention_area == sum(depths)


def check_layout(layout: TreeLayout, rows: Rows) -> None:
    assert sorted(layout.position_ids[layout.parent < 0].tolist()) == [0] * int(
        (layout.parent < 0).sum()
    )
    for i, row in enumerate(layout.rows):
        at = layout.positions_of(i)
        assert layout.input_ids[at].tolist() == rows[row].tolist()
        assert layout.position_ids[at].tolist() == list(range(len(at)))
        assert layout.parent[at].tolist() == [-1, *at[:-1].tolist()]
    assert np.unique(layout.row_positions).tolist() == list(range(layout.n_tokens))


@given(any_rows)
def test_every_row_reads_back_from_its_tree(sequences: list[list[int]]) -> None:
    rows, tries = trees_of(sequences)
    for trie in tries:
        check_layout(depth_first_layout(rows, trie), rows)
        check_layout(areal_layout(rows, trie), rows)


@given(any_rows)
def test_a_subtree_is_one_slice(sequences: list[list[int]]) -> None:
    rows, tries = trees_of(sequences)
    for trie in tries:
        layout = depth_first_layout(rows, trie)
        assert layout.subtree_end is not None
        q, k = np.mgrid[: layout.n_tokens, : layout.n_tokens]
        seen = (k <= q) & (q < layout.subtree_end[k])
        for token in range(layout.n_tokens):
            ancestors, at = set(), token
            while at >= 0:
                ancestors.add(at)
                at = int(layout.parent[at])
            assert set(np.flatnonzero(seen[token]).tolist()) == ancestors


@given(any_rows)
def test_areal_numbers_tokens_as_rows_insert_them(sequences: list[list[int]]) -> None:
    rows, tries = trees_of(sequences)
    for trie in tries:
        numbers: dict[tuple[int, ...], int] = {}
        for row in trie.rows.tolist():
            for n in range(1, len(sequences[row]) + 1):
                numbers.setdefault(tuple(sequences[row][:n]), len(numbers))
        layout = areal_layout(rows, trie)
        for i, row in enumerate(trie.rows.tolist()):
            expected = [numbers[tuple(sequences[row][: n + 1])] for n in range(len(sequences[row]))]
            assert layout.positions_of(i).tolist() == expected


def test_whole_trie_ignores_empty_rows() -> None:
    trie = whole_trie(PrefixOrder.of(Rows.from_lists([[], [1, 2], [1, 3], []])))
    assert trie.n_tokens == 3 and sorted(trie.rows.tolist()) == [1, 2]
    assert len(whole_trie(PrefixOrder.of(Rows.from_lists([[]])))) == 0


@pytest.mark.parametrize("length", [1, 7])
def test_duplicates_share_one_leaf(length: int) -> None:
    _, (trie,) = trees_of([list(range(length))] * 3)
    assert len(trie) == 1 and trie.row_count.tolist() == [3] and trie.leaf.tolist() == [0, 0, 0]
