"""What an icicle of a tree shows: at most 300 marks, small branches folded with their count."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from packing.trie import Trie

MAX_MARKS = 300


@dataclass(frozen=True)
class NodeMark:
    """One mark of an icicle: a node, or several small branches folded into one (``node`` -1).

    parent: id of the mark it stands in; tokens: in and below; own: in the node itself
    depth:  tokens above; folded: branches in it; closed: nodes below it are not drawn
    """

    id: str
    parent: str
    node: int
    tokens: int
    own: int
    depth: int
    folded: int = 0
    closed: bool = False


def subtree_tokens(trie: Trie, node: int) -> int:
    """Tokens in and below a node."""
    return int(trie.subtree_end[node] - trie.start[node])


def children(trie: Trie) -> Callable[[int], npt.NDArray[np.int64]]:
    """A function from a node (-1: the whole tree) to the nodes right below it, as they stand."""
    by_parent = np.argsort(trie.parent, kind="stable")
    parents = trie.parent[by_parent]

    def below(node: int) -> npt.NDArray[np.int64]:
        first, last = np.searchsorted(parents, [node, node + 1])
        return by_parent[first:last]

    return below


def choose_marks(
    trie: Trie,
    root: int,
    max_marks: int = MAX_MARKS,
    max_levels: int | None = None,
    smallest: float = 0.0,
) -> list[NodeMark]:
    """What to draw below ``root`` (-1: the whole tree): parents before children, root first.

    Always opened next is the branch with the most tokens that is still closed. Branches below
    ``smallest`` of the root's tokens are folded where there are two or more beside each other;
    what is deeper than ``max_levels`` below the root stays closed.
    """
    below, size = children(trie), trie.subtree_end - trie.start
    if root < 0:
        first = NodeMark("n-1", "", -1, trie.n_tokens, 0, 0)
    else:
        own = int(trie.lengths[root])
        first = NodeMark(
            f"n{root}", "", root, subtree_tokens(trie, root), own, int(trie.depth[root])
        )
    marks = [first]
    least = smallest * first.tokens
    heap = [(-first.tokens, root, 0)]
    closed: set[int] = set()
    while heap:
        _, node, level = heapq.heappop(heap)
        inside = below(node)
        inside = inside[np.argsort(-size[inside], kind="stable")]
        room = max_marks - len(marks)
        if not len(inside):
            continue
        if room <= 0 or level == max_levels:
            closed.add(node)
            continue
        large = int((size[inside] >= least).sum())
        wanted = len(inside) if len(inside) - large < 2 else large
        # A fold takes the last place, so that no branch is left out without a word.
        shown = inside[:wanted] if wanted + (wanted < len(inside)) <= room else inside[: room - 1]
        for child in sorted(shown.tolist()):
            tokens, own = int(size[child]), int(trie.lengths[child])
            marks.append(
                NodeMark(f"n{child}", f"n{node}", child, tokens, own, int(trie.depth[child]))
            )
            heapq.heappush(heap, (-tokens, child, level + 1))
        hidden = inside[len(shown) :]
        if len(hidden):
            tokens = int(size[hidden].sum())
            marks.append(NodeMark(f"f{node}", f"n{node}", -1, tokens, 0, 0, folded=len(hidden)))
    return [replace(m, closed=True) if m.node in closed else m for m in marks]


def nodes_below(trie: Trie, node: int) -> int:
    """How many nodes stand below a node."""
    return int(np.searchsorted(trie.start, trie.subtree_end[node])) - node - 1
