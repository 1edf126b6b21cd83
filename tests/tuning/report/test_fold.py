"""The fold: its pieces are the rows, its nodes are the tree, and it stays small."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Forest, build_forest
from tests.packing.strategies import any_rows
from tuning.report.figures.fold import MAX_PIECES, MAX_ROWS, Fold, FoldNode, choose_fold


def forest_of(rows: Rows, cap: int) -> tuple[PrefixOrder, Forest]:
    order = PrefixOrder.of(rows)
    return order, build_forest(order, pack_areal(order, cap))


def folded(lists: list[list[int]], cap: int = 64) -> tuple[Forest, Fold | None]:
    order, forest = forest_of(Rows.from_lists(lists), cap)
    return forest, choose_fold(order, forest, cap)


def prefixes(lists: list[list[int]]) -> set[tuple[int, ...]]:
    """Every distinct beginning: a token of the tree each."""
    return {tuple(row[:n]) for row in lists for n in range(1, len(row) + 1)}


# Copies of a few stems with one token of their own: trees of more rows than can be watched.
crowds = st.lists(st.sampled_from([[1, 1, 2], [1, 1, 3, 3], [2]]), min_size=30, max_size=80).map(
    lambda stems: [[*stem, 9, n % 7] for n, stem in enumerate(stems)]
)
deep = st.integers(20, 40).map(lambda n: [[5] * (k + 1) for k in range(n)])


@settings(deadline=None)
@given(st.one_of(any_rows, crowds, deep))
def test_pieces_are_the_rows_and_nodes_are_the_tree(lists: list[list[int]]) -> None:
    _, fold = folded(lists)
    if fold is None:
        assert not any(lists), "only where every row is empty"
        return
    packed = np.full(fold.tokens, -1)
    read = []
    for place, row in enumerate(fold.rows):
        tokens, at = lists[row.row], 0
        for piece in row.pieces:
            node = fold.nodes[piece.node]
            assert piece.start == at == node.depth and piece.length == node.length
            assert node.first_row <= place < node.first_row + node.rows
            own = tokens[at : at + piece.length]
            stored = packed[node.start : node.start + node.length]
            assert all(new in (-1, old) for new, old in zip(stored, own, strict=True))
            packed[node.start : node.start + node.length] = own
            at += piece.length
        assert at == len(tokens) == row.length
        again = [packed[n.start : n.start + n.length].tolist() for n in nodes_of(fold, place)]
        assert [t for part in again for t in part] == tokens, "a row is read back from the strip"
        read.append(tokens)
    assert (packed >= 0).all(), "the nodes fill the strip without a gap"
    assert fold.tokens == len(prefixes(read)), "each shared piece is there once"
    assert fold.row_tokens == sum(map(len, read))
    assert sum(node.rows for node in fold.nodes) == sum(len(row.pieces) for row in fold.rows)


def nodes_of(fold: Fold, place: int) -> list[FoldNode]:
    """Nodes through which a row runs, by the rows that each says it has."""
    through = [n for n in fold.nodes if n.first_row <= place < n.first_row + n.rows]
    return sorted(through, key=lambda node: node.depth)


@settings(deadline=None)
@given(st.one_of(any_rows, crowds, deep))
def test_it_is_small_and_says_what_it_leaves_out(lists: list[list[int]]) -> None:
    forest, fold = folded(lists)
    if fold is None:
        return
    assert (
        1 <= len(fold.rows) <= MAX_ROWS and sum(len(row.pieces) for row in fold.rows) <= MAX_PIECES
    )
    trie = forest.tree(fold.tree)
    chosen = [row.row for row in fold.rows]
    at = trie.sorted_rows.tolist().index(chosen[0])
    assert trie.sorted_rows[at : at + len(chosen)].tolist() == chosen, "neighbours of one tree"
    assert fold.rows_left_out == len(trie.rows) - len(chosen) >= 0
    assert fold.tree_tokens == trie.n_tokens and fold.padding == 64 - trie.n_tokens
    if len(trie.rows) <= MAX_ROWS and trie.row_count.sum() <= MAX_PIECES:
        assert fold.rows_left_out == 0 and fold.tokens == trie.n_tokens


@settings(max_examples=20, deadline=None)
@given(any_rows)
def test_the_same_rows_give_the_same_fold(lists: list[list[int]]) -> None:
    assert folded(lists)[1] == folded(lists)[1]


def test_a_tree_with_sharing_goes_before_one_without() -> None:
    apart = [[100 + n] * 20 for n in range(6)]
    trunk = [7] * 12
    together = [[*trunk, *branch, n] for branch in ([8, 8, 8], [9, 9]) for n in range(40, 44)]
    _, fold = folded([*apart, *together])
    assert fold is not None and fold.row_tokens > fold.tokens
    assert {row.row for row in fold.rows} >= set(range(6, 14))
    trunks = [node for node in fold.nodes if node.length == 12 and node.rows == 8]
    assert len(trunks) == 1 and trunks[0].depth == 0


def test_a_tree_of_many_rows_is_cut_between_branches() -> None:
    lists = [[1, 2, *[30 + group] * 5, n] for group in range(5) for n in range(9)]
    _, fold = folded(lists, 512)
    assert fold is not None and fold.rows_left_out == len(lists) - len(fold.rows) > 0
    groups = [lists[row.row][2] for row in fold.rows]
    assert all(groups.count(group) == 9 for group in groups), "whole groups only"


def test_no_rows_no_fold() -> None:
    assert folded([[], []])[1] is None
