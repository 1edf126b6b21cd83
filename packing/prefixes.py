"""PrefixOrder: sorted rows, longest common prefixes and range minimum. The heart of packing.

Notable:
- rows are sorted as big-endian bytes, so one memcmp compares whole rows
- everything after this file works on ranks and lengths: no token is read again
- a tree of any set of rows holds ``sum(len) - sum(lcp of neighbours in rank order)`` tokens
- adding a row to a set costs ``len - max(lcp with its two neighbours in the set)`` tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from packing.rows import Rows

Int64s = npt.NDArray[np.int64]
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class PrefixOrder:
    """Rows in lexicographic order (a prefix before its extensions, equal rows by row number).

    order:   int64 ``(rows,)``, row number at each rank
    rank:    int64 ``(rows,)``, rank of each row
    lengths: int64 ``(rows,)``, tokens of each row (by row number)
    lcp:     int64 ``(rows,)``, ``lcp[r]`` = tokens that ranks ``r - 1`` and ``r`` share; ``lcp[0]``
             is 0
    """

    order: Int64s
    rank: Int64s
    lengths: Int64s
    lcp: Int64s

    @classmethod
    def of(cls, rows: Rows) -> PrefixOrder:
        """Sort rows and measure each neighbour's common prefix: O(tokens) memory, one pass."""
        keys = _sort_keys(rows)
        order = sorted(range(len(keys)), key=keys.__getitem__)
        del keys
        lcp = np.zeros(len(order), dtype=np.int64)
        tokens, offsets = rows.tokens, rows.offsets.tolist()
        for r in range(1, len(order)):
            a, b = order[r - 1], order[r]
            lcp[r] = _common_prefix(
                tokens[offsets[a] : offsets[a + 1]], tokens[offsets[b] : offsets[b + 1]]
            )
        order_array = np.array(order, dtype=np.int64)
        rank = np.empty_like(order_array)
        rank[order_array] = np.arange(len(order_array))
        return cls(order_array, rank, rows.lengths, lcp)

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def _minima(self) -> list[npt.NDArray[np.int32]]:
        """Sparse table: level ``j`` at ``i`` is ``min(lcp[i : i + 2**j])``."""
        return range_minima(self.lcp.astype(np.int32))

    def lcp_between(self, ranks_a: npt.ArrayLike, ranks_b: npt.ArrayLike) -> Int64s:
        """Tokens shared by the rows at ``ranks_a`` and ``ranks_b``, element by element."""
        a, b = np.asarray(ranks_a, dtype=np.int64), np.asarray(ranks_b, dtype=np.int64)
        low, high = np.minimum(a, b), np.maximum(a, b)
        same = low == high
        out = np.asarray(range_minimum(self._minima, np.where(same, 0, low + 1), high + 1))
        return np.where(same, self.lengths[self.order[low]], out).astype(np.int64)

    def neighbour_lcps(self, ranks: npt.ArrayLike) -> Int64s:
        """For ascending ``ranks`` ``(n,)``: tokens each shares with the one before; first is 0."""
        r = np.asarray(ranks, dtype=np.int64)
        return self.neighbour_lcps_of_runs(r, np.array([0, len(r)]))

    def neighbour_lcps_of_runs(self, ranks: Int64s, run_offsets: Int64s) -> Int64s:
        """As ``neighbour_lcps`` for runs of ascending ranks one after the other.

        ``run_offsets`` ``(runs + 1,)``; the first of each run shares 0.
        """
        out = np.zeros(len(ranks), dtype=np.int64)
        inside = np.ones(len(ranks), dtype=bool)
        inside[run_offsets[:-1][run_offsets[:-1] < len(ranks)]] = False
        at = np.flatnonzero(inside)
        out[at] = self.lcp_between(ranks[at - 1], ranks[at])
        return out

    def tree_tokens(self, row_numbers: npt.ArrayLike | None = None) -> int:
        """Distinct prefixes of a set of rows = tokens of their trie; of all rows by default."""
        if row_numbers is None:
            return int(self.lengths.sum() - self.lcp.sum())
        ranks = np.sort(self.rank[np.asarray(row_numbers, dtype=np.int64)])
        return int(self.lengths[self.order[ranks]].sum() - self.neighbour_lcps(ranks).sum())


def _sort_keys(rows: Rows) -> list[bytes]:
    """Each row as big-endian bytes, which order like the (non-negative) integers they encode."""
    keys: list[bytes] = []
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        bounds = rows.offsets[first : first + _ROWS_AT_ONCE + 1]
        data = rows.tokens[bounds[0] : bounds[-1]].astype(">i4").tobytes()
        cuts = ((bounds - bounds[0]) * 4).tolist()
        keys.extend(data[a:b] for a, b in pairwise(cuts))
    return keys


def range_minima(values: npt.NDArray[np.int32]) -> list[npt.NDArray[np.int32]]:
    """Sparse table of range minima over ``values`` ``(n,)``: ``log2(n) + 1`` arrays."""
    levels = [values]
    width = 1
    while 2 * width <= len(values):
        last = levels[-1]
        levels.append(np.minimum(last[:-width], last[width:]))
        width *= 2
    return levels


def range_minimum(
    levels: list[npt.NDArray[np.int32]], start: npt.ArrayLike, stop: npt.ArrayLike
) -> npt.NDArray[np.int32]:
    """``min(values[start:stop])`` element by element; every range must hold a value."""
    a, b = np.asarray(start, dtype=np.int64), np.asarray(stop, dtype=np.int64)
    level = np.frexp((b - a).astype(np.float64))[1] - 1
    out = np.empty(np.broadcast(a, b).shape, dtype=np.int32)
    for j in np.unique(level):
        at = level == j
        table = levels[j]
        out[at] = np.minimum(table[a[at]], table[b[at] - (1 << int(j))])
    return out


def _common_prefix(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> int:
    shorter = min(len(a), len(b))
    differs = a[:shorter] != b[:shorter]
    if not shorter:
        return 0
    first = int(differs.argmax())
    return first if differs[first] else shorter
