"""Realignment: where rows that part at a branch point become equal again.

Rows part at a branch point and follow different *pieces*; then the same tokens follow in all of
them. The pieces may differ in length: a date is some tokens, stripped reasoning is thousands on one
side and none on the other.

Notable:
- below a branch point only one row a *strand* is looked at: rows that are equal for the next
  SHORT_PIECE tokens are one strand
- strands meet where they hold the same RUN tokens: rolling hashes find them, tokens confirm them
- one of the pieces must be short, else any text that is used twice would look like a divergence
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import whole_trie

Int64s = npt.NDArray[np.int64]

RUN = 16  # equal tokens that make a realignment
SHORT_PIECE = 40  # longest shorter piece: a UUID or a timestamp, digit by digit
LONG_PIECE = 16_384  # longest longer piece: a long chain of thought
_CLUSTERS = 8  # realignments looked for at one branch point
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Strand:
    """Rows that follow one piece.

    row: the row looked at; piece: tokens in its piece; equal: tokens equal after it;
    rows: row numbers int64 ``(n,)`` of all rows of the strand, lexicographic
    """

    row: int
    piece: int
    equal: int
    rows: Int64s


@dataclass(frozen=True)
class Place:
    """One branch point whose strands become equal again.

    node:    node of the trie after which they part; -1: before the first token
    depth:   tokens before the parting
    strands: two or more, the shortest piece first (all others are compared with it)
    """

    node: int
    depth: int
    strands: tuple[Strand, ...]

    @property
    def gain(self) -> int:
        """About how many tokens would be shared."""
        return sum(strand.equal for strand in self.strands[1:])


class BranchPoints:
    """The branch points of the trie of all rows, and what could be gained at each at most."""

    def __init__(self, rows: Rows, order: PrefixOrder) -> None:
        self.rows, self.order = rows, order
        self.trie = trie = whole_trie(order)
        self.end_depth = trie.depth + trie.lengths
        self.sorted_at = np.full(len(rows), -1, dtype=np.int64)  # place among the sorted rows
        self.sorted_at[trie.sorted_rows] = np.arange(len(trie.sorted_rows))
        tokens = trie.subtree_end - trie.start
        above = trie.parent + 1  # 0: before the first token
        total = np.bincount(above, tokens, len(trie) + 1).astype(np.int64)
        largest = np.zeros(len(trie) + 1, dtype=np.int64)
        np.maximum.at(largest, above, tokens)
        self.potential = total - largest
        self.has_child = np.bincount(above, minlength=len(trie) + 1) > 0

    def by_potential(self) -> Iterator[int]:
        """Branch points with something to gain, the most promising first; -1 is the root."""
        order = np.argsort(-self.potential, kind="stable")
        for at in order[: int(np.count_nonzero(self.potential >= RUN))].tolist():
            yield at - 1

    def depth(self, node: int) -> int:
        return int(self.end_depth[node]) if node >= 0 else 0

    def below(self, node: int) -> tuple[int, int]:
        """Nodes below ``node`` are those in this range: depth-first order."""
        if node < 0:
            return 0, len(self.trie)
        end = int(np.searchsorted(self.trie.start, self.trie.subtree_end[node]))
        return node + 1, end

    def strand_nodes(self, node: int) -> tuple[Int64s, Int64s]:
        """The node at which each strand is complete, and the child of ``node`` it lies under."""
        first, end = self.below(node)
        depth = self.depth(node)
        until = depth + SHORT_PIECE
        starts, ends = self.trie.depth[first:end], self.end_depth[first:end]
        complete = (starts < until) & ((ends >= until) | ~self.has_child[first + 1 : end + 1])
        nodes = first + np.flatnonzero(complete & (ends >= depth + RUN))
        children = first + np.flatnonzero(self.trie.parent[first:end] == node)
        return nodes, np.searchsorted(children, nodes, side="right")

    def places(self, node: int) -> tuple[list[Place], int]:
        """Realignments after ``node``, and the number of tokens read to find them."""
        nodes, child = self.strand_nodes(node)
        if len(nodes) < 2:
            return [], 0
        depth = self.depth(node)
        members = [self.trie.rows_through(int(k)) for k in nodes]
        longest = [int(m[np.argmax(self.rows.lengths[m])]) for m in members]
        tails = [self.rows[row][depth:] for row in longest]
        grams = _Grams.of(tails, child)
        found: list[Place] = []
        while len(found) < _CLUSTERS and (cluster := grams.largest_cluster()):
            by_piece = sorted(cluster, key=lambda s: (cluster[s], -len(members[s]), s))
            base = tails[by_piece[0]][cluster[by_piece[0]] :]
            strands = []
            for s in by_piece:
                equal = common_prefix(base, tails[s][cluster[s] :])
                through = self._through(longest[s], depth + cluster[s], members[s])
                strands.append(Strand(longest[s], cluster[s], equal, through))
            real = tuple(strand for strand in strands if strand.equal >= RUN)
            if len(real) > 1:
                found.append(Place(node, depth, real))
            grams.drop(cluster)
        return found, sum(min(len(tail), LONG_PIECE) for tail in tails)

    def _through(self, row: int, end: int, members: Int64s) -> Int64s:
        """Those of ``members`` that are equal to ``row`` for its first ``end`` tokens."""
        rank = self.order.rank
        same: npt.NDArray[np.bool_] = self.order.lcp_between(rank[row], rank[members]) >= end
        return members[same]

    def rows_below(self, node: int) -> Int64s:
        """Row numbers int64 ``(n,)`` of all rows that run through ``node``."""
        return self.trie.rows_through(node) if node >= 0 else self.trie.sorted_rows

    def nodes_inside(self, node: int, places: list[Place]) -> set[int]:
        """Branch points at which strands of these places part again within their pieces."""
        first, end = self.below(node)
        depth = self.depth(node)
        near = first + np.flatnonzero(self.end_depth[first:end] < depth + SHORT_PIECE)
        low = self.trie.first_sorted[near]
        high = low + self.trie.row_count[near]
        inside = np.zeros(len(near), dtype=bool)
        for place in places:
            at = np.array([self.sorted_at[strand.row] for strand in place.strands])
            piece_end = np.array([depth + strand.piece for strand in place.strands])
            through = (at >= low[:, None]) & (at < high[:, None])
            longest = np.where(through, piece_end, 0).max(axis=1)
            inside |= (through.sum(axis=1) > 1) & (self.end_depth[near] < longest)
        return set(near[inside].tolist())


class _Grams:
    """Runs of RUN tokens that start within a short piece of some strand, wherever they occur."""

    def __init__(self, gram: npt.NDArray[np.uint64], strand: Int64s, offset: Int64s, child: Int64s):
        self.gram, self.strand, self.offset, self.child = gram, strand, offset, child

    @classmethod
    def of(cls, tails: list[npt.NDArray[np.int32]], child: Int64s) -> _Grams:
        hashes = [_rolling_hashes(tail[: LONG_PIECE + RUN]) for tail in tails]
        anchors = np.unique(np.concatenate([h[: SHORT_PIECE + 1] for h in hashes]))
        gram, strand, offset = [], [], []
        for number, h in enumerate(hashes):
            at = np.flatnonzero(anchors[np.searchsorted(anchors, h) % len(anchors)] == h)
            values, first = np.unique(h[at], return_index=True)
            gram.append(values)
            strand.append(np.full(len(values), number, dtype=np.int64))
            offset.append(at[first])
        return cls(np.concatenate(gram), np.concatenate(strand), np.concatenate(offset), child)

    def largest_cluster(self) -> dict[int, int]:
        """Strand -> length of its piece, for the run that most strands of two or more children
        hold; of several the one with the shortest pieces."""
        if not len(self.gram):
            return {}
        values, inverse = np.unique(self.gram, return_inverse=True)
        strands = np.bincount(inverse, minlength=len(values))
        low = np.full(len(values), np.iinfo(np.int64).max)
        high = np.full(len(values), -1, dtype=np.int64)
        np.minimum.at(low, inverse, self.child[self.strand])
        np.maximum.at(high, inverse, self.child[self.strand])
        # Only tokens that differ make a piece: the run may not start at the parting in all.
        lengths = np.bincount(inverse, self.offset, len(values)).astype(np.int64)
        good = np.flatnonzero((low < high) & (lengths > 0))
        if not good.size:
            return {}
        best = good[np.lexsort((lengths[good], -strands[good]))[0]]
        at = np.flatnonzero(inverse == best)
        return dict(zip(self.strand[at].tolist(), self.offset[at].tolist(), strict=True))

    def drop(self, strands: dict[int, int]) -> None:
        keep = ~np.isin(self.strand, list(strands))
        self.gram, self.strand = self.gram[keep], self.strand[keep]
        self.offset = self.offset[keep]


def _rolling_hashes(tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """uint64 ``(n - RUN + 1,)``: a polynomial hash of every RUN tokens, by doubling."""
    hashes = tokens.astype(np.uint64) + np.uint64(1)
    multiplier, width = np.array([_MULTIPLIER]), 1
    while width < RUN:
        hashes = hashes[:-width] * multiplier + hashes[width:]
        multiplier = multiplier * multiplier
        width *= 2
    return hashes


def common_prefix(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> int:
    """Tokens that two arrays share from their start."""
    shorter = min(len(a), len(b))
    differs = np.flatnonzero(a[:shorter] != b[:shorter])
    return int(differs[0]) if differs.size else shorter
