"""AReaL's packer, exactly: first fit in arrival order, each shared prefix counted once.

AReaL walks every existing tree token by token for every row (``_greedy_build_tries`` in
``areal/models/tree_attn/tree.py``). The same answer needs no token: a row fits tree ``t`` when
``len - shared(t) <= free(t)``, and ``shared(t)`` is the depth of the deepest trie node on the
row's path that the tree already holds.

Notable:
- trees that hold a node are nested along a path, so one walk from leaf to root meets every tree
  at the depth it shares
- free space only shrinks: a stale maximum of a chunk of trees stays an upper bound, and a chunk
  too full for the shortest row below its node is dropped for good
"""

from __future__ import annotations

from bisect import bisect_right, insort

import numpy as np
import numpy.typing as npt

from packing.packing import Packing
from packing.prefixes import PrefixOrder, range_minima, range_minimum
from packing.trie import Trie, whole_trie

_CHUNK = 64


class RowTooLong(ValueError):
    """A row is longer than the cap; the message is AReaL's own.

    row: its row number; length: its tokens.
    """

    def __init__(self, row: int, length: int, max_tokens_per_mb: int) -> None:
        super().__init__(
            f"Sequence length {length} exceeds max_tokens_per_tree {max_tokens_per_mb}; "
            "adjust limit or split sequences."
        )
        self.row = row
        self.length = length


def pack_areal(
    order: PrefixOrder,
    max_tokens_per_mb: int,
    arrival: npt.ArrayLike | None = None,
    trie: Trie | None = None,
) -> Packing:
    """First fit: each row into the first tree that has room for its new tokens.

    arrival: row numbers ``(fed,)`` in the order they are fed; all rows as they stand by default.
    trie:    ``whole_trie(order)``, where a caller packs the same rows many times.
    Raises RowTooLong (AReaL's ValueError) at the first row longer than the cap.
    """
    fed = np.arange(len(order)) if arrival is None else np.asarray(arrival, dtype=np.int64)
    trie = whole_trie(order) if trie is None else trie
    tree_of_row = np.full(len(order), -1, dtype=np.int32)
    paths = _Paths(order, trie)
    lengths = order.lengths.tolist()
    free: list[int] = []
    for row in fed.tolist():
        length = lengths[row]
        if length > max_tokens_per_mb:
            raise RowTooLong(row, length, max_tokens_per_mb)
        if length:
            tree_of_row[row] = paths.place(row, length, free, max_tokens_per_mb)
    tokens = max_tokens_per_mb - np.array(free, dtype=np.int64)
    return Packing(tree_of_row, tokens, max_tokens_per_mb, "areal", fed)


class _Paths:
    """Which trees hold each node of the whole trie; ``-1`` (the root) is held by every tree."""

    def __init__(self, order: PrefixOrder, trie: Trie) -> None:
        leaf = np.full(len(order), -1, dtype=np.int64)
        leaf[trie.sorted_rows] = trie.leaf
        self.leaf = leaf.tolist()
        self.parent = trie.parent.tolist()
        self.end_depth = (trie.depth + trie.lengths).tolist()
        lengths = order.lengths[trie.sorted_rows].astype(np.int32)
        first, last = trie.first_sorted, trie.first_sorted + trie.row_count
        shortest = range_minimum(range_minima(lengths), first, last)
        self.floor = (shortest - trie.depth - trie.lengths).tolist()
        # A node that only one row runs through is never met again.
        self.shareable = (trie.row_count > 1).tolist()
        self.holders: dict[int, _Holders] = {-1: _Holders(int(lengths.min(initial=1)))}

    def place(self, row: int, length: int, free: list[int], cap: int) -> int:
        """Put a row into the first tree with room and return the tree."""
        node, best, shared_node, shared = self.leaf[row], len(free), -1, 0
        holders, parent, end_depth = self.holders, self.parent, self.end_depth
        every_tree = holders[-1].count
        while True:
            held = holders.get(node)
            if held is not None:
                depth = end_depth[node] if node >= 0 else 0
                found = held.first_with_room(free, length - depth, best)
                if found < best:
                    best, shared_node, shared = found, node, depth
                if held.count == every_tree:
                    break
            node = parent[node]
        if best == len(free):
            free.append(cap)
            shared_node = -2
        free[best] -= length - shared
        self._hold(row, best, free[best], shared_node)
        return best

    def _hold(self, row: int, tree: int, room: int, above: int) -> None:
        """The tree now holds the row's nodes below ``above`` (-2: the root too)."""
        node = self.leaf[row]
        while node != above and node >= 0:
            if self.shareable[node]:
                held = self.holders.get(node)
                if held is None:
                    held = self.holders[node] = _Holders(self.floor[node])
                held.add(tree, room)
            node = self.parent[node]
        if above == -2:
            self.holders[-1].add(tree, room)


class _Holders:
    """Trees that hold one node, ascending, in chunks with an upper bound on their free space."""

    __slots__ = ("bounds", "chunks", "count", "floor")

    def __init__(self, floor: int) -> None:
        self.chunks: list[list[int]] = []
        self.bounds: list[int] = []
        self.count = 0
        self.floor = floor

    def first_with_room(self, free: list[int], need: int, limit: int) -> int:
        """The first tree below ``limit`` with ``free >= need``, or ``limit``."""
        bounds, at = self.bounds, 0
        while at < len(bounds):
            if bounds[at] < need:
                at += 1
                continue
            chunk = self.chunks[at]
            for tree in chunk:
                if tree >= limit:
                    return limit
                if free[tree] >= need:
                    return tree
            bounds[at] = max(map(free.__getitem__, chunk))
            if bounds[at] < self.floor:
                del bounds[at], self.chunks[at]
            else:
                at += 1
        return limit

    def add(self, tree: int, room: int) -> None:
        self.count += 1
        if room < self.floor:
            return
        chunks = self.chunks
        at = bisect_right(chunks, tree, key=lambda chunk: chunk[0]) - 1
        if at < 0 or len(chunks[at]) >= _CHUNK:
            at += 1
            if at == len(chunks) or at == 0:
                chunks.insert(at, [tree])
                self.bounds.insert(at, room)
                return
            half = chunks[at - 1][_CHUNK // 2 :]
            del chunks[at - 1][_CHUNK // 2 :]
            chunks.insert(at, half)
            self.bounds.insert(at, self.bounds[at - 1])
            at -= tree < half[0]
        insort(chunks[at], tree)
        self.bounds[at] = max(self.bounds[at], room)
