"""CascadePlan: a forest's mask as few large attention calls without a mask, or with a small one.

Notable:
- each query's ancestors outside its own segment form one path: one call for all of them
- a long node with many descendants is attended to by its whole subtree in one call instead
- thin nodes next to each other share one masked call, so thousands of them are no thousand calls
- the calls cover every visible pair exactly once; their index arrays are made while iterating, so
  a plan holds a few integers a node, whatever the depth
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from kernels.mask import TreeMask

# Tuned on a CPU (fp32, D = 64): flash calls run at full speed from 768 queries and some 512 keys
# on, and a masked call of up to 128 tokens costs no more than its parts would one by one.
LONG_NODE = 512
LONG_SUBTREE = 768
OWN_SEGMENT = 64
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
class _Segment:
    nodes: range
    common: int  # path tokens that every query of the segment sees


class CascadePlan:
    """The calls of one mask; iterate ``calls()`` once forward and once backward."""

    def __init__(self, mask: TreeMask) -> None:
        self._nodes = _nodes(mask)
        self._segments = _segments(self._nodes)

    def calls(self) -> Iterator[Call]:
        """Every call of the plan. Each visible pair is in exactly one of them.

        The call that holds a query's own key (causal or masked) comes before its full ones.
        """
        nodes = self._nodes
        long_nodes: list[Call] = []
        path = np.empty(_path_length(nodes), dtype=np.int64)
        group_start, group_common = 0, 0  # segments in a row that see the same path share a call
        for segment in self._segments:
            first, last = nodes[segment.nodes[0]], nodes[segment.nodes[-1]]
            if segment.common != group_common:
                if group_common:
                    yield _full(slice(group_start, first.start), path[:group_common])
                group_start, group_common = first.start, segment.common
            own = slice(first.start, last.stop)
            if len(segment.nodes) == 1:
                yield Call(own, own, Kind.CAUSAL)
            else:
                tokens = np.arange(own.start, own.stop)
                partial = path[segment.common : first.above]
                yield Call(own, _index(np.concatenate([partial, tokens])), Kind.MASKED)
            for node in (nodes[i] for i in segment.nodes):
                if node.is_long:
                    below = slice(node.stop, node.end)
                    long_nodes.append(Call(below, slice(node.start, node.stop), Kind.FULL))
                elif node.end > node.stop:
                    stop = node.above + node.stop - node.start
                    path[node.above : stop] = np.arange(node.start, node.stop)
        if group_common:
            yield _full(slice(group_start, nodes[-1].stop), path[:group_common])
        yield from long_nodes


def _full(queries: slice, keys: npt.NDArray[np.int64]) -> Call:
    return Call(queries, _index(keys.copy()), Kind.FULL)


def _index(tokens: npt.NDArray[np.int64]) -> Index:
    """A slice where the ascending ``tokens`` are contiguous: no gathering then."""
    first, last = int(tokens[0]), int(tokens[-1])
    return slice(first, last + 1) if last - first == len(tokens) - 1 else tokens


def _nodes(mask: TreeMask) -> list[_Node]:
    tree = mask.nodes
    is_long = (tree.stop - tree.start >= LONG_NODE) & (tree.end - tree.stop >= LONG_SUBTREE)
    nodes: list[_Node] = []
    columns = (tree.start, tree.stop, tree.end, tree.parent, is_long)
    for start, stop, end, parent, long in zip(*(c.tolist() for c in columns), strict=True):
        above = 0
        if parent >= 0:
            up = nodes[parent]
            above = up.above + (0 if up.is_long else up.stop - up.start)
        nodes.append(_Node(start, stop, end, above, long))
    return nodes


def _segments(nodes: list[_Node]) -> list[_Segment]:
    """Long enough nodes alone; others in a row together, up to a bound on tokens and lost path."""
    segments: list[_Segment] = []
    first, common = 0, 0

    def close(stop: int) -> None:
        if stop > first:
            segments.append(_Segment(range(first, stop), common))

    for at, node in enumerate(nodes):
        joined = min(common, node.above) if at > first else node.above
        start = nodes[first]
        alone = node.stop - node.start >= OWN_SEGMENT
        too_long = node.stop - start.start > SHARED_SEGMENT
        too_wide = start.above - joined > SHARED_SEGMENT
        if at > first and (alone or too_long or too_wide):
            close(at)
            first, joined = at, node.above
        common = joined
        if alone:
            close(at + 1)
            first = at + 1
    close(len(nodes))
    return segments


def _path_length(nodes: list[_Node]) -> int:
    return max((n.above + n.stop - n.start for n in nodes if not n.is_long), default=0)
