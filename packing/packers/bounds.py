"""Bounds: trees and tokens that no packer can do without.

Every tree that holds anything below a node must hold the node's own ``depth`` trunk tokens too,
so only ``cap - depth`` of its tokens can lie below the node. With ``need(v)`` a number of trees
that surely hold something below node ``v`` and ``len(v)`` the tokens of the edge into ``v``:

- the tokens below ``v``, counted once for every tree they are in, are at least
  ``below(v) = sum over descendants w of len(w) * need(w)``, because ``w`` is in at least
  ``need(w)`` trees;
- each tree takes at most ``cap - depth(v)`` of them, so
  ``need(v) >= ceil(below(v) / (cap - depth(v)))``;
- a tree that holds something below a child holds something below ``v``, so
  ``need(v) >= max of need(child)``;
- rows of lengths ``a`` and ``b`` that part at ``v`` fill ``a + b - depth(v)`` tokens together, so
  two rows longer than ``(cap + depth(v)) / 2`` cannot share a tree. Call a child *big* when it
  leads to such a row. ``clique(v) = max(1, sum over big children of clique(child))`` rows exclude
  one another pair by pair: those of one child by induction (two or more of them part deeper, so
  all are longer than ``(cap + depth(v)) / 2`` as well), those of two children by their lengths.
  Each needs a tree of its own: ``need(v) >= clique(v)``.

All follow from the leaves up, in one pass. At the root (``depth`` tokens that all rows share):
``trees >= need(root)``, ``tokens >= below(root) + depth(root) * need(root)``.

Notable:
- ``ceil(tree / cap)`` alone, the bound that packing by size gives, is too low wherever rows share
  a system prompt: 46 instead of 51 trees on multi-turn rows with a trunk of 1,273 tokens
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt

from packing.packers.leaves import Branches, Leaves
from packing.prefixes import PrefixOrder


@dataclass(frozen=True)
class Bounds:
    """Lower bounds for any packing of the same rows under the same cap.

    trees:       trees needed at least: all arguments together; never below the three that follow
    trees_trunk: by trunks that every tree must repeat
    trees_pairs: by rows of which no two fit into one tree
    trees_size:  ceil(tokens of the unsplit tree / cap)
    tokens:      tokens in all trees together, padding not counted
    """

    trees: int
    trees_trunk: int
    trees_pairs: int
    trees_size: int
    tokens: int


def bounds(
    order: PrefixOrder, max_tokens_per_mb: int, arrival: npt.ArrayLike | None = None
) -> Bounds:
    """Bounds on the packing of the rows ``arrival`` (row numbers; all rows by default).

    Raises RowTooLong at a row longer than the cap.
    """
    return bounds_of_leaves(Leaves.of(order, max_tokens_per_mb, arrival), max_tokens_per_mb)


def bounds_of_leaves(leaves: Leaves, max_tokens_per_mb: int) -> Bounds:
    """``bounds`` of leaves already found. O(leaves)."""
    if not len(leaves):
        return Bounds(0, 0, 0, 0, 0)
    branches = Branches.of(leaves.lengths.tolist(), leaves.shared.tolist())
    longest = _longest_below(branches, len(leaves))
    cliques = _cliques(branches, longest, max_tokens_per_mb)
    trunk, _ = _needs(branches, [1] * len(branches.parent), max_tokens_per_mb)
    trees, tokens = _needs(branches, cliques, max_tokens_per_mb)
    size = -(-leaves.tree_tokens // max_tokens_per_mb)
    return Bounds(trees, trunk, cliques[branches.root], size, tokens)


def _needs(branches: Branches, at_least: list[int], cap: int) -> tuple[int, int]:
    """Trees and tokens needed at the root, where node ``v`` needs ``at_least[v]`` trees or more."""
    parent, depth, root = branches.parent, branches.depth, branches.root
    need, below = list(at_least), [0] * len(parent)
    for node in branches.bottom_up():
        if below[node]:
            need[node] = max(need[node], -(-below[node] // (cap - depth[node])))
        if node != root:
            above = parent[node]
            need[above] = max(need[above], need[node])
            below[above] += below[node] + need[node] * (depth[node] - depth[above])
    return need[root], below[root] + depth[root] * need[root]


def _longest_below(branches: Branches, n_leaves: int) -> list[int]:
    longest = branches.depth[:n_leaves] + [0] * len(branches.post_order)
    for node in branches.bottom_up():
        if node != branches.root:
            above = branches.parent[node]
            longest[above] = max(longest[above], longest[node])
    return longest


def _cliques(branches: Branches, longest: list[int], cap: int) -> list[int]:
    """Rows below each node that exclude one another pair by pair."""
    big = [0] * len(branches.parent)
    for node in branches.bottom_up():
        big[node] = max(1, big[node])
        above = branches.parent[node]
        if node != branches.root and 2 * longest[node] > cap + branches.depth[above]:
            big[above] += big[node]
    return big
