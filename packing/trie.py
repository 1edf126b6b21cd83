"""Tries as arrays, for all trees of a packing at once, from ranks and common prefixes alone.

Notable:
- in rank order, row ``i`` adds the tokens after ``lcp[i]`` to its tree: its *piece*. Pieces one
  after the other are the trie in depth-first order, children by token id
- a piece breaks where a later row leaves it and where a row ends: the breaks are the nodes
- the row that owns depth ``lcp[i]`` is the last one before ``i`` with a smaller ``lcp`` (a stack)
- no token is read, no Python object per token, no recursion
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from packing.packing import Packing
from packing.prefixes import PrefixOrder, range_minima, range_minimum
from packing.rows import offsets_of

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Trie:
    """One tree. K nodes in depth-first order, children by token id; R rows.

    start, end:  int64 ``(K,)``, packed positions ``[start, end)`` in depth-first order
    depth:       int64 ``(K,)``, tokens above the node
    parent:      int64 ``(K,)``, node number; -1 at a root
    subtree_end: int64 ``(K,)``, packed position where the node's subtree ends
    areal_start: int64 ``(K,)``, packed position of its first token in AReaL's insertion order
    first_row:   int64 ``(K,)``, row number of the first row fed that runs through the node
    row_count:   int64 ``(K,)``, rows that run through the node
    sorted_rows: int64 ``(R,)``, row numbers in lexicographic order
    shared:      int64 ``(R,)``, tokens each sorted row shares with the one before (first: 0)
    first_sorted: int64 ``(K,)``, the rows through node ``k`` are
                 ``sorted_rows[first_sorted[k]:first_sorted[k] + row_count[k]]``
    leaf:        int64 ``(R,)``, node in which each sorted row ends
    rows:        int64 ``(R,)``, row numbers in the order they were fed
    """

    start: Int64s
    end: Int64s
    depth: Int64s
    parent: Int64s
    subtree_end: Int64s
    areal_start: Int64s
    first_row: Int64s
    row_count: Int64s
    sorted_rows: Int64s
    shared: Int64s
    first_sorted: Int64s
    leaf: Int64s
    rows: Int64s

    def __len__(self) -> int:
        return len(self.start)

    @property
    def n_tokens(self) -> int:
        return int(self.end[-1]) if len(self.end) else 0

    @classmethod
    def empty(cls) -> Trie:
        """The trie of no rows: a dummy tree."""
        return cls(*[np.empty(0, dtype=np.int64)] * 13)

    @cached_property
    def lengths(self) -> Int64s:
        """int64 ``(K,)``, tokens in each node."""
        return self.end - self.start

    @cached_property
    def levels(self) -> int:
        """Nodes on the longest path from a root."""
        level = np.ones(len(self), dtype=np.int64)
        for node, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                level[node] = level[parent] + 1
        return int(level.max(initial=0))

    @property
    def attention_area(self) -> int:
        """Visible (query, key) pairs: sum over tokens of their depth + 1."""
        n, d = self.lengths, self.depth
        return int((n * d + n * (n + 1) // 2).sum())

    def rows_through(self, node: int) -> Int64s:
        """Row numbers that run through a node, in lexicographic order."""
        first = int(self.first_sorted[node])
        return self.sorted_rows[first : first + int(self.row_count[node])]

    def path(self, node: int) -> list[int]:
        """Node numbers from the root to ``node``, both included."""
        path = []
        while node >= 0:
            path.append(node)
            node = int(self.parent[node])
        return path[::-1]

    def areal_nodes(self) -> list[list[int]]:
        """Nodes as AReaL lists them: ``[start, end (inclusive), rows through it, first row]``."""
        columns = (self.areal_start, self.areal_start + self.lengths - 1, self.row_count)
        return np.stack([*columns, self.first_row], axis=1).tolist() if len(self) else []


@dataclass(frozen=True, eq=False)
class Forest:
    """All trees of a packing; node and row arrays as in ``Trie``, tree after tree.

    Packed positions count from each tree's own start, node numbers from its first node.
    """

    nodes: dict[str, Int64s]
    sorted_rows: Int64s
    shared: Int64s
    leaf: Int64s
    node_offsets: Int64s
    row_offsets: Int64s
    fed: Int64s

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    @property
    def nodes_per_tree(self) -> Int64s:
        return np.diff(self.node_offsets)

    @property
    def rows_per_tree(self) -> Int64s:
        return np.diff(self.row_offsets)

    def tree(self, index: int) -> Trie:
        """The trie of one tree; its arrays are views."""
        nodes = slice(int(self.node_offsets[index]), int(self.node_offsets[index + 1]))
        rows = slice(int(self.row_offsets[index]), int(self.row_offsets[index + 1]))
        return Trie(
            **{name: array[nodes] for name, array in self.nodes.items()},
            sorted_rows=self.sorted_rows[rows],
            shared=self.shared[rows],
            leaf=self.leaf[rows],
            rows=self.fed[rows],
        )


def forest_of(order: PrefixOrder, members: Sequence[npt.ArrayLike]) -> Forest:
    """The tries of chosen rows: int ``(rows,)`` of each tree, in the order they are fed."""
    chosen = [np.asarray(rows, dtype=np.int64) for rows in members]
    tree_of_row = np.full(len(order), -1, dtype=np.int32)
    for tree, rows in enumerate(chosen):
        tree_of_row[rows] = tree
    tokens = np.array([order.tree_tokens(rows) for rows in chosen], dtype=np.int64)
    fed = np.concatenate([np.empty(0, dtype=np.int64), *chosen])
    return build_forest(
        order, Packing(tree_of_row, tokens, int(tokens.max(initial=0)), "given", fed)
    )


def build_forest(order: PrefixOrder, packing: Packing) -> Forest:
    """The tries of every tree of a packing: O(rows log rows) time, no token read."""
    fed = packing.arrival[packing.tree_of_row[packing.arrival] >= 0]
    tree = packing.tree_of_row[fed].astype(np.int64)
    arrival_of_row = np.full(len(order), -1, dtype=np.int64)
    arrival_of_row[fed] = np.arange(len(fed))
    by_rank = np.lexsort((order.rank[fed], tree))
    sorted_rows, tree = fed[by_rank], tree[by_rank]
    row_offsets = np.searchsorted(tree, np.arange(packing.n_trees + 1))
    shared = order.neighbour_lcps_of_runs(order.rank[sorted_rows], row_offsets)
    length = order.lengths[sorted_rows]
    first_of_tree = np.zeros(len(sorted_rows), dtype=bool)
    first_of_tree[row_offsets[:-1]] = True

    skeleton = _break_into_nodes(length, shared, first_of_tree)
    owner, start_depth, end_depth = skeleton.owner, skeleton.start_depth, skeleton.end_depth
    arrival = arrival_of_row[sorted_rows].astype(np.int32)
    first_arrival = range_minimum(range_minima(arrival), owner, skeleton.last).astype(np.int64)

    pieces = offsets_of(length - shared)
    tree_start = pieces[row_offsets]
    node_tree = tree[owner]
    start = pieces[owner] + start_depth - shared[owner] - tree_start[node_tree]
    node_offsets = np.searchsorted(node_tree, np.arange(packing.n_trees + 1))
    local_parent = skeleton.parent - np.where(skeleton.parent < 0, 0, node_offsets[node_tree])

    in_tree = np.argsort(packing.tree_of_row[fed], kind="stable")
    fed_by_tree = fed[in_tree]
    nodes = {
        "start": start,
        "end": start + end_depth - start_depth,
        "depth": start_depth,
        "parent": local_parent,
        "subtree_end": pieces[skeleton.last] - tree_start[node_tree],
        "areal_start": _insertion_start(
            start_depth, end_depth, first_arrival, order.lengths[fed], in_tree, row_offsets
        ),
        "first_row": fed[first_arrival],
        "row_count": skeleton.last - owner,
        "first_sorted": owner - row_offsets[node_tree],
    }
    leaf = skeleton.leaf - node_offsets[tree]
    return Forest(nodes, sorted_rows, shared, leaf, node_offsets, row_offsets, fed_by_tree)


def whole_trie(order: PrefixOrder) -> Trie:
    """The trie of all rows together, as if one tree could hold them."""
    filled = np.flatnonzero(order.lengths > 0)
    tree_of_row = np.where(order.lengths > 0, 0, -1).astype(np.int32)
    total = np.array([order.tree_tokens()] if len(filled) else [], dtype=np.int64)
    packing = Packing(tree_of_row, total, int(total.sum()), "whole", filled)
    return build_forest(order, packing).tree(0) if len(filled) else Trie.empty()


@dataclass(frozen=True, eq=False)
class _Skeleton:
    """Nodes over sorted rows: who owns each, its depths, its parent, one past its last row."""

    owner: Int64s
    start_depth: Int64s
    end_depth: Int64s
    parent: Int64s
    last: Int64s
    leaf: Int64s


def _break_into_nodes(
    length: Int64s, shared: Int64s, first_of_tree: npt.NDArray[np.bool_]
) -> _Skeleton:
    n = len(length)
    # A tree's first row shares -1, below every depth, so that no search leaves its tree.
    height = np.where(first_of_tree, -1, shared)
    holder = _previous_smaller(height)
    stride = int(length.max(initial=0)) + 1
    index = np.arange(n)
    leaves = (holder >= 0) & (height > 0)
    # Where no new token is added (a duplicate), the row ends in a node of its holder.
    adds = length > shared
    end_key = np.where(adds, index * stride + length, holder * stride + height)
    branch_key = holder[leaves] * stride + height[leaves]
    keys = np.unique(np.concatenate([end_key[adds], branch_key]))
    owner, end_depth = keys // stride, keys % stride
    same_piece = np.zeros(len(keys), dtype=bool)
    same_piece[1:] = owner[1:] == owner[:-1]
    before = np.concatenate([[0], end_depth[:-1]]).astype(np.int64)
    start_depth = np.where(same_piece, before, shared[owner])
    attached = np.searchsorted(keys, holder[owner] * stride + height[owner])
    own_parent = np.where(height[owner] > 0, attached, -1)
    parent = np.where(same_piece, np.arange(len(keys)) - 1, own_parent)
    return _Skeleton(
        owner,
        start_depth,
        end_depth,
        parent,
        _next_smaller(height, owner + 1, end_depth),
        np.searchsorted(keys, end_key),
    )


def _previous_smaller(height: Int64s) -> Int64s:
    """For each index the last one before it with a smaller value, or -1."""
    out = np.full(len(height), -1, dtype=np.int64)
    stack: list[int] = []
    values = height.tolist()
    for i, h in enumerate(values):
        while stack and values[stack[-1]] >= h:
            stack.pop()
        if stack:
            out[i] = stack[-1]
        stack.append(i)
    return out


def _next_smaller(height: Int64s, start: Int64s, bound: Int64s) -> Int64s:
    """First index at or after ``start`` with ``height < bound``, or ``len(height)``."""
    levels = range_minima(height.astype(np.int32))
    at = start.copy()
    for j in range(len(levels) - 1, -1, -1):
        fits = at + (1 << j) <= len(height)
        clear = np.zeros(len(at), dtype=bool)
        clear[fits] = levels[j][at[fits]] >= bound[fits]
        at[clear] += 1 << j
    return at


def _insertion_start(
    start_depth: Int64s,
    end_depth: Int64s,
    first_arrival: Int64s,
    fed_lengths: Int64s,
    in_tree: Int64s,
    row_offsets: Int64s,
) -> Int64s:
    """AReaL numbers tokens as rows insert them: each row appends what no earlier row brought."""
    added = np.bincount(first_arrival, end_depth - start_depth, len(fed_lengths)).astype(np.int64)
    before = offsets_of(added[in_tree])
    base = np.empty(len(fed_lengths), dtype=np.int64)
    tree_first = np.repeat(before[row_offsets[:-1]], np.diff(row_offsets))
    base[in_tree] = before[:-1] - tree_first
    joined_at = fed_lengths - added
    return base[first_arrival] + start_depth - joined_at[first_arrival]
