"""CascadePlan: a forest's mask as few large attention calls without a mask, or with a small one.

Notable:
- a node and its first child lie next to each other, so a chain of first children is one causal
  call: a forest has as many of them as it has leaves, not nodes
- a chain's ancestors form one path: one call for all of them, shared by the siblings in a row
- a long node with many descendants is attended to by its whole subtree in one call instead
- thin chains next to each other share one masked call, so thousands of them are no thousand calls
- the calls cover every visible pair exactly once; their index arrays are made while iterating, so
  a plan holds a few integers a node, whatever the depth
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from kernels.attention.mask import TreeMask

# Tuned on a CPU (fp32, D = 64): flash calls run at full speed from 768 queries and some 512 keys
# on, and a masked call of up to 128 tokens costs no more than its parts would one by one.
LONG_NODE = 512
LONG_SUBTREE = 768
OWN_SEGMENT = 80
SHARED_SEGMENT = 128

Index = slice | npt.NDArray[np.int64]


class Kind(Enum):
    """How the queries of a call see its keys."""

    CAUSAL = "the keys are the queries' own tokens, one node"
    FULL = "every query sees every key"
    MASKED = "compare with subtree_end"


@dataclass(frozen=True, eq=False)
class Call:
    """One attention call: contiguous ``queries`` against ``keys`` (token numbers, ascending)."""

    queries: slice
    keys: Index
    kind: Kind


@dataclass(frozen=True)
class _Node:
    start: int
    stop: int
    end: int
    above: int  # ancestors' tokens on the path, long nodes not counted
    is_long: bool


@dataclass(frozen=True)
class _Chain:
    """First children in a row; the last node has none."""

    nodes: list[_Node]

    @property
    def start(self) -> int:
        return self.nodes[0].start

    @property
    def stop(self) -> int:
        return self.nodes[-1].stop

    @property
    def above(self) -> int:
        return self.nodes[0].above


@dataclass(frozen=True)
class _Segment:
    chains: list[_Chain]
    common: int  # path tokens that every query of the segment sees

    @property
    def start(self) -> int:
        return self.chains[0].start

    @property
    def stop(self) -> int:
        return self.chains[-1].stop


class CascadePlan:
    """The calls of one mask; iterate ``calls()`` once forward and once backward."""

    def __init__(self, mask: TreeMask) -> None:
        chains = _chains(mask)
        self._segments = _segments(chains)
        self._path_length = max((chain.nodes[-1].above for chain in chains), default=0)

    def calls(self) -> Iterator[Call]:
        """Every call of the plan. Each visible pair is in exactly one of them.

        The call that holds a query's own key (causal or masked) comes before its full ones.
        """
        long_nodes: list[Call] = []
        path = np.empty(self._path_length, dtype=np.int64)
        group_start = group_stop = 0  # segments in a row that see the same path share a call
        group_common = 0
        for segment in self._segments:
            if segment.common != group_common:
                if group_common:
                    yield _full(slice(group_start, group_stop), path[:group_common])
                group_start, group_common = segment.start, segment.common
            group_stop = segment.stop
            own = slice(segment.start, segment.stop)
            if len(segment.chains) == 1:
                yield Call(own, own, Kind.CAUSAL)
            else:
                partial = path[segment.common : segment.chains[0].above]
                tokens = np.arange(own.start, own.stop)
                yield Call(own, _index(np.concatenate([partial, tokens])), Kind.MASKED)
            for chain in segment.chains:
                for node in chain.nodes[:-1]:
                    if node.is_long:
                        # The rest of the chain is in its causal call.
                        below = slice(chain.stop, node.end)
                        long_nodes.append(Call(below, slice(node.start, node.stop), Kind.FULL))
                    else:
                        stop = node.above + node.stop - node.start
                        path[node.above : stop] = np.arange(node.start, node.stop)
        if group_common:
            yield _full(slice(group_start, group_stop), path[:group_common])
        yield from long_nodes


def _full(queries: slice, keys: npt.NDArray[np.int64]) -> Call:
    return Call(queries, _index(keys.copy()), Kind.FULL)


def _index(tokens: npt.NDArray[np.int64]) -> Index:
    """A slice where the ascending ``tokens`` are contiguous: no gathering then."""
    first, last = int(tokens[0]), int(tokens[-1])
    return slice(first, last + 1) if last - first == len(tokens) - 1 else tokens


def _chains(mask: TreeMask) -> list[_Chain]:
    tree = mask.nodes
    count = np.arange(len(tree))
    first = np.flatnonzero((tree.parent < 0) | (tree.parent != count - 1))  # first children follow
    lengths = np.diff(first, append=len(tree))
    chain_stop = np.repeat(tree.stop[first + lengths - 1], lengths)
    is_long = (tree.stop - tree.start >= LONG_NODE) & (tree.end - chain_stop >= LONG_SUBTREE)
    nodes: list[_Node] = []
    columns = (tree.start, tree.stop, tree.end, tree.parent, is_long)
    for start, stop, end, parent, long in zip(*(c.tolist() for c in columns), strict=True):
        above = 0
        if parent >= 0:
            up = nodes[parent]
            above = up.above + (0 if up.is_long else up.stop - up.start)
        nodes.append(_Node(start, stop, end, above, long))
    ends = (first + lengths).tolist()
    return [_Chain(nodes[at:end]) for at, end in zip(first.tolist(), ends, strict=True)]


def _segments(chains: list[_Chain]) -> list[_Segment]:
    """Long enough chains alone; others in a row together, up to a bound on tokens and lost path."""
    segments: list[_Segment] = []
    row: list[_Chain] = []
    common = 0

    def close() -> None:
        if row:
            # A masked call takes a short path along at little cost: no call of its own then.
            absorbs = len(row) > 1 and row[0].above <= SHARED_SEGMENT
            segments.append(_Segment(row.copy(), 0 if absorbs else common))
            row.clear()

    for chain in chains:
        alone = chain.stop - chain.start >= OWN_SEGMENT
        joined = min(common, chain.above) if row else chain.above
        if row:
            too_long = chain.stop - row[0].start > SHARED_SEGMENT
            too_wide = row[0].above - joined > SHARED_SEGMENT
            if alone or too_long or too_wide:
                close()
                joined = chain.above
        common = joined
        row.append(chain)
        if alone:
            close()
    close()
    return segments
