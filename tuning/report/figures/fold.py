"""The fold: one tree of a packing as rows whose shared pieces merge, small enough to be watched.

Notable:
- a row is cut where the tree branches; a piece is the part of a row in one node
- typical rather than best: of trees with some depth, one that saves and fills about what all do
- a tree too large to be watched gives neighbouring rows, and says how many it leaves out
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packing.prefixes import PrefixOrder
from packing.trie import Forest, Trie, forest_of

Int64s = npt.NDArray[np.int64]

MAX_ROWS = 24
MAX_PIECES = 120
_TREES_READ = 256
_DEEP = 3
_SHALLOW_COSTS = 0.1
_PART_COSTS = 0.05
_ROOM_COSTS = 0.3
_FEW_ROWS = 3


@dataclass(frozen=True)
class FoldPiece:
    """``length`` tokens of a row from token ``start`` on, which are those of a node."""

    node: int
    start: int
    length: int


@dataclass(frozen=True)
class FoldRow:
    """A row of the batch, cut into pieces; together they are the row."""

    row: int
    pieces: tuple[FoldPiece, ...]

    @property
    def length(self) -> int:
        return sum(piece.length for piece in self.pieces)


@dataclass(frozen=True)
class FoldNode:
    """A node of the folded tree.

    start: packed position of its first token; depth: tokens above it
    first_row, rows: the rows through it are ``rows`` neighbours from place ``first_row`` on
    """

    start: int
    length: int
    depth: int
    parent: int
    first_row: int
    rows: int


@dataclass(frozen=True)
class Fold:
    """Rows of one tree, neighbours in sorted order, and the tree that they make.

    tree:         number of the tree they are taken from
    rows_in_tree: rows of that tree; tree_tokens: its tokens, without padding
    """

    tree: int
    rows: tuple[FoldRow, ...]
    nodes: tuple[FoldNode, ...]
    rows_in_tree: int
    tree_tokens: int
    max_tokens_per_mb: int

    @property
    def row_tokens(self) -> int:
        """Tokens of the rows, before anything is shared."""
        return sum(row.length for row in self.rows)

    @property
    def tokens(self) -> int:
        """Tokens after the fold: each shared piece once."""
        return sum(node.length for node in self.nodes)

    @property
    def rows_left_out(self) -> int:
        return self.rows_in_tree - len(self.rows)

    @property
    def padding(self) -> int:
        """Padding of the whole tree, rows left out included."""
        return self.max_tokens_per_mb - self.tree_tokens


def choose_fold(order: PrefixOrder, forest: Forest, max_tokens_per_mb: int) -> Fold | None:
    """The tree to show, and its rows; None where there are no trees.

    forest: of ``build_forest``; the same forest gives the same fold
    """
    lengths = order.lengths[forest.sorted_rows]
    saved = _saved(lengths, forest.shared)
    filled = float((lengths - forest.shared).sum()) / max(len(forest), 1)  # tokens of a tree
    best: tuple[float, int, int, int] | None = None
    for tree in _spread(len(forest)):
        trie = forest.tree(tree)
        atypical = abs(trie.n_tokens - filled) / max_tokens_per_mb
        for first, last in _runs(trie):
            score = atypical + _score(order, trie, first, last, saved)
            if best is None or (score, tree, first, last) < best:
                best = (score, tree, first, last)
    if best is None:
        return None
    _, tree, first, last = best
    whole = forest.tree(tree)
    shown = forest_of(order, [whole.sorted_rows[first:last]]).tree(0)
    while int(shown.row_count.sum()) > MAX_PIECES:
        last -= 1
        shown = forest_of(order, [whole.sorted_rows[first:last]]).tree(0)
    return Fold(
        tree=tree,
        rows=tuple(_row(shown, i) for i in range(len(shown.sorted_rows))),
        nodes=tuple(_node(shown, k) for k in range(len(shown))),
        rows_in_tree=len(whole.sorted_rows),
        tree_tokens=whole.n_tokens,
        max_tokens_per_mb=max_tokens_per_mb,
    )


def _spread(n_trees: int) -> list[int]:
    """Trees that are looked at: all, or so many evenly spread."""
    some = np.linspace(0, n_trees - 1, min(n_trees, _TREES_READ))
    numbers: list[int] = np.unique(some.astype(np.int64)).tolist()
    return numbers


def _runs(trie: Trie) -> Iterator[tuple[int, int]]:
    """Runs ``[first, last)`` of sorted rows that may be shown: the whole tree if it is small.

    Otherwise runs between the highest branchings, so that no branch is cut where that can be.
    """
    n = len(trie.sorted_rows)
    if n <= MAX_ROWS and int(trie.row_count.sum()) <= MAX_PIECES:
        yield 0, n
        return
    top = int(trie.shared[1:].min())
    starts = np.flatnonzero(trie.shared <= top)  # the first row shares nothing: it is one of them
    ends = np.append(starts[1:], n)
    for first in starts.tolist():
        last = min(first + MAX_ROWS, n)
        inside = ends[(ends > first) & (ends <= last)]
        yield first, int(inside[-1]) if len(inside) else last


def _score(order: PrefixOrder, trie: Trie, first: int, last: int, saved: float) -> float:
    """How far a run is from typical and instructive; less is better."""
    n = last - first
    shared = trie.shared[first:last].copy()
    shared[:1] = 0
    branchings = len(np.unique(shared[shared > 0]))
    return (
        abs(_saved(order.lengths[trie.sorted_rows[first:last]], shared) - saved)
        + _SHALLOW_COSTS * (_DEEP - min(branchings, _DEEP))
        + _PART_COSTS * (n < len(trie.sorted_rows))
        + _ROOM_COSTS * (1 - n / min(MAX_ROWS, len(trie.sorted_rows)))
        + max(_FEW_ROWS - n, 0)
    )


def _saved(lengths: Int64s, shared: Int64s) -> float:
    """Part of the rows' tokens that their tree does without."""
    return float(shared.sum() / max(int(lengths.sum()), 1))


def _row(trie: Trie, place: int) -> FoldRow:
    path = trie.path(int(trie.leaf[place]))
    pieces = (FoldPiece(k, int(trie.depth[k]), int(trie.lengths[k])) for k in path)
    return FoldRow(int(trie.sorted_rows[place]), tuple(pieces))


def _node(trie: Trie, k: int) -> FoldNode:
    return FoldNode(
        start=int(trie.start[k]),
        length=int(trie.lengths[k]),
        depth=int(trie.depth[k]),
        parent=int(trie.parent[k]),
        first_row=int(trie.first_sorted[k]),
        rows=int(trie.row_count[k]),
    )
