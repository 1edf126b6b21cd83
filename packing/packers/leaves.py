"""Leaves of the whole trie, and the branches above them: what a packer has to place.

Notable:
- a row that another row starts with rides for free in the tree of its extension, so only the
  others (the leaves) need a place
- everything is a number per leaf (its length, what it shares with the leaf before); a packer
  never sees a token
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from packing.packers.areal import RowTooLong
from packing.prefixes import PrefixOrder

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Leaves:
    """Rows that no other fed row starts with, in lexicographic order. L leaves, F fed rows.

    ranks:    int64 ``(L,)``, rank of each leaf in the PrefixOrder
    lengths:  int64 ``(L,)``, tokens of each leaf
    shared:   int64 ``(L,)``, tokens each leaf shares with the one before (first: 0)
    fed:      int64 ``(F,)``, row numbers of the fed rows that hold a token, lexicographic
    leaf_of:  int64 ``(F,)``, the leaf that each of them is, or is a prefix of
    order:    the PrefixOrder they are taken from
    """

    ranks: Int64s
    lengths: Int64s
    shared: Int64s
    fed: Int64s
    leaf_of: Int64s
    order: PrefixOrder

    @classmethod
    def of(
        cls, order: PrefixOrder, max_tokens_per_mb: int, arrival: npt.ArrayLike | None
    ) -> Leaves:
        """The leaves among the rows ``arrival`` (row numbers; all rows by default).

        Raises RowTooLong at the first of them that is longer than ``max_tokens_per_mb``.
        """
        rows = np.arange(len(order)) if arrival is None else np.asarray(arrival, dtype=np.int64)
        too_long = np.flatnonzero(order.lengths[rows] > max_tokens_per_mb)
        if too_long.size:
            row = int(rows[too_long[0]])
            raise RowTooLong(row, int(order.lengths[row]), max_tokens_per_mb)
        ranks = np.sort(order.rank[rows[order.lengths[rows] > 0]])
        fed = order.order[ranks]
        lengths = order.lengths[fed]
        shared = order.neighbour_lcps(ranks)
        is_leaf = np.ones(len(ranks), dtype=bool)
        is_leaf[:-1] = shared[1:] < lengths[:-1]
        # A prefix comes before its extensions, so the next leaf in order is one of them.
        leaf_of = np.cumsum(is_leaf) - is_leaf
        leaves = ranks[is_leaf]
        return cls(leaves, lengths[is_leaf], order.neighbour_lcps(leaves), fed, leaf_of, order)

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def tree_tokens(self) -> int:
        """Tokens of all of them in one tree: no packing holds fewer."""
        return int(self.lengths.sum() - self.shared.sum())

    def shared_among(self, members: Int64s) -> Int64s:
        """For ascending leaf numbers ``(m,)``: tokens each shares with the one before."""
        return self.order.neighbour_lcps(self.ranks[members])

    def tokens_per_tree(self, trees: list[list[int]]) -> list[int]:
        """Tokens of trees given as ascending leaf numbers."""
        if not trees:
            return []
        members = np.concatenate([np.array(tree, dtype=np.int64) for tree in trees])
        starts = np.cumsum([0] + [len(tree) for tree in trees])
        shared = self.order.neighbour_lcps_of_runs(self.ranks[members], starts)
        tokens: list[int] = np.add.reduceat(self.lengths[members] - shared, starts[:-1]).tolist()
        return tokens


@dataclass(frozen=True, eq=False)
class Branches:
    """The branch points above L leaves: node ``i < L`` is leaf ``i``, the rest are branch points.

    parent:     node above each node; -1 at the root
    depth:      tokens from the start of the rows to the end of the node
    post_order: branch points, every one after all branch points below it; the root comes last
    """

    parent: list[int]
    depth: list[int]
    post_order: list[int]

    @classmethod
    def of(cls, lengths: list[int], shared: list[int]) -> Branches:
        """From leaf lengths ``(L,)`` and tokens shared with the leaf before ``(L,)``, L >= 1.

        The branch points are the intervals of equal minima of ``shared``; one pass with a stack.
        """
        n = len(lengths)
        parent, depth = [-1] * n, list(lengths)
        post_order: list[int] = []
        open_nodes: list[int] = []
        for leaf in range(1, n + 1):
            height = shared[leaf] if leaf < n else -1
            below = leaf - 1
            while open_nodes and depth[open_nodes[-1]] > height:
                node = open_nodes.pop()
                parent[below] = node
                post_order.append(node)
                below = node
            if leaf == n:
                break
            if not open_nodes or depth[open_nodes[-1]] < height:
                open_nodes.append(len(parent))
                parent.append(-1)
                depth.append(height)
            parent[below] = open_nodes[-1]
        return cls(parent, depth, post_order)

    @property
    def root(self) -> int:
        return self.post_order[-1] if self.post_order else 0

    def bottom_up(self) -> Iterator[int]:
        """All nodes, leaves first, every node before the one above it."""
        return chain(range(len(self.parent) - len(self.post_order)), self.post_order)
