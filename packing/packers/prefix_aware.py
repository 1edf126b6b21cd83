"""Our packer: subtrees stay together, and it never needs more trees than AReaL's.

It places the leaves of the whole trie by subtrees (``_filling``), takes the best of a few recipes
and of AReaL's own result, and improves it (``_local_search``) until the bound on trees is met.

Notable:
- AReaL has no switch for this packing, and no order of rows brings it about: AReaL keeps groups
  whole and sorts them. It is what AReaL does with this packer inside
- the search is bounded by work, not by time: the same rows give the same trees on every machine
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packing.packers.areal import pack_areal
from packing.packers.bounds import bounds_of_leaves
from packing.packers.filling import Recipe, fill_trees
from packing.packers.leaves import Leaves
from packing.packers.local_search import improve
from packing.packing import Packing
from packing.prefixes import PrefixOrder

Int64s = npt.NDArray[np.int64]

# Recipes beyond the first are tried while leaves x recipes stay below this (~0.4 s).
_PORTFOLIO_LEAVES = 60_000
# The local search packs each leaf again so many times, this many leaves (~0.6 s) in all.
_SEARCH_ROUNDS = 1_000
_SEARCH_LEAVES = 200_000


def pack_prefix_aware(
    order: PrefixOrder,
    max_tokens_per_mb: int,
    arrival: npt.ArrayLike | None = None,
) -> Packing:
    """Fewest trees first, then fewest tokens, of what the portfolio and the search find.

    arrival:  row numbers ``(fed,)`` that are packed; all rows by default. Their order matters only
              to AReaL's own packing, which ours is never worse than.
    Raises RowTooLong (AReaL's ValueError) at the first row longer than the cap.
    """
    leaves = Leaves.of(order, max_tokens_per_mb, arrival)
    areal = pack_areal(order, max_tokens_per_mb, arrival)
    trees = _leaf_trees(leaves, areal)
    if len(leaves):
        enough = bounds_of_leaves(leaves, max_tokens_per_mb).trees
        trees = _best_of_portfolio(leaves, trees, max_tokens_per_mb, enough)
        work = min(_SEARCH_LEAVES, _SEARCH_ROUNDS * len(leaves))
        found = improve(leaves, trees, max_tokens_per_mb, enough, work)
        trees = min(trees, found, key=lambda t: (len(t), sum(leaves.tokens_per_tree(t))))
    return _as_packing(leaves, trees, max_tokens_per_mb, areal.arrival)


def _best_of_portfolio(
    leaves: Leaves, trees: list[list[int]], cap: int, enough: int
) -> list[list[int]]:
    """The best of ``trees`` and of each recipe's result; stops where the bound is met."""
    best, best_tokens = trees, sum(leaves.tokens_per_tree(trees))
    lengths, shared = leaves.lengths.tolist(), leaves.shared.tolist()
    for recipe in _portfolio(cap)[: max(1, _PORTFOLIO_LEAVES // len(leaves))]:
        found = fill_trees(lengths, shared, cap, recipe)
        tokens = sum(leaves.tokens_per_tree(found))
        if (len(found), tokens) < (len(best), best_tokens):
            best, best_tokens = found, tokens
        if len(best) <= enough:
            break
    return best


def _portfolio(cap: int) -> list[Recipe]:
    edges_and_tolerances = [(256, 50), (16, 50), (cap + 1, 200), (256, 200), (256, 20), (16, 20)]
    recipes = [Recipe(cap // edge, cap // room, True) for edge, room in edges_and_tolerances]
    return [*recipes, Recipe(0, cap // 50, False), Recipe(cap // 16, cap // 50, False)]


def _leaf_trees(leaves: Leaves, packing: Packing) -> list[list[int]]:
    """The leaves of each tree; trees that hold only prefixes of leaves elsewhere are dropped."""
    tree = packing.tree_of_row[leaves.order.order[leaves.ranks]]
    by_tree = np.argsort(tree, kind="stable")
    cuts = np.flatnonzero(np.diff(tree[by_tree])) + 1
    return [part.tolist() for part in np.split(by_tree, cuts) if len(part)]


def _as_packing(leaves: Leaves, trees: list[list[int]], cap: int, fed: Int64s) -> Packing:
    tokens = np.array(leaves.tokens_per_tree(trees), dtype=np.int64)
    fullest_first = np.argsort(-tokens, kind="stable")
    tree_of_leaf = np.empty(len(leaves), dtype=np.int32)
    for number, tree in enumerate(fullest_first.tolist()):
        tree_of_leaf[trees[tree]] = number
    tree_of_row = np.full(len(leaves.order), -1, dtype=np.int32)
    tree_of_row[leaves.fed] = tree_of_leaf[leaves.leaf_of]
    return Packing(tree_of_row, tokens[fullest_first], cap, "prefix-aware", fed)
