"""Every ratio on screen, defined once.

Notable:
- *original tokens* are those of the rows, *tree tokens* the distinct prefixes in the trees, *paid
  tokens* what runs through the model: padding, and waiting for the slowest rank, counted
- a ratio over no tokens at all is 1: nothing is there to save
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import offsets_of

Int64s = npt.NDArray[np.int64]


def tree_token_ratio(tree_tokens: int, original_tokens: int) -> float:
    """``tree tokens / original tokens``: AReaL's own figure of this name; lower is better."""
    return tree_tokens / original_tokens if original_tokens else 1.0


def prefix_reuse(tree_tokens: int, original_tokens: int) -> float:
    """``original tokens / tree tokens``: how many times a token of a tree is used; x on screen."""
    return original_tokens / tree_tokens if tree_tokens else 1.0


def paid_tokens(trees_per_rank: npt.ArrayLike, max_tokens_per_mb: int) -> int:
    """``ranks x max over ranks of trees x max_tokens_per_mb``: what runs through the model.

    Every tree is padded to the cap, and ranks with fewer trees run dummy trees.
    """
    trees = np.atleast_1d(np.asarray(trees_per_rank, dtype=np.int64))
    return len(trees) * int(trees.max(initial=0)) * max_tokens_per_mb


def padded_token_ratio(paid: int, original_tokens: int) -> float:
    """``paid tokens / original tokens``: what is paid; lower is better."""
    return paid / original_tokens if original_tokens else 1.0


def fill(tree_tokens: int, n_trees: int, max_tokens_per_mb: int) -> float:
    """``tree tokens / (trees x max_tokens_per_mb)``: the part of the trees that is not padding."""
    return tree_tokens / (n_trees * max_tokens_per_mb) if n_trees else 1.0


def dummy_trees(trees_per_rank: npt.ArrayLike) -> Int64s:
    """``max over ranks of trees - trees``, ``(ranks,)``: empty trees each runs to stay in step."""
    trees = np.atleast_1d(np.asarray(trees_per_rank, dtype=np.int64))
    missing: Int64s = trees.max(initial=0) - trees
    return missing


def block_efficiency(mask_area: int, visited_area: int) -> float:
    """``mask area / visited area``: visible pairs over pairs in the tiles a kernel computes."""
    return mask_area / visited_area if visited_area else 1.0


def sharing_lost(tree_tokens: int, ideal_tokens: int) -> float:
    """``tree tokens / tokens of one trie of the same rows``: 1 where no boundary cost anything."""
    return tree_tokens / ideal_tokens if ideal_tokens else 1.0


def flat_attention_area(lengths: npt.ArrayLike) -> int:
    """``sum of n (n + 1) / 2`` over rows of ``lengths``: causal pairs where nothing is shared."""
    n = np.asarray(lengths, dtype=np.int64)
    return int((n * (n + 1) // 2).sum())


def tree_attention_area(order: PrefixOrder, packing: Packing) -> Int64s:
    """``sum of depth`` over the tokens of each tree, ``(trees,)``; a first token has depth 1.

    In rank order, row ``i`` adds the tokens after the ``l`` it shares with the row before it in
    its tree: depths ``l + 1 … n``, in sum ``n (n + 1) / 2 - l (l + 1) / 2``.
    """
    fed = packing.arrival[packing.tree_of_row[packing.arrival] >= 0]
    tree = packing.tree_of_row[fed].astype(np.int64)
    by_tree = np.lexsort((order.rank[fed], tree))
    fed, tree = fed[by_tree], tree[by_tree]
    run_offsets = np.searchsorted(tree, np.arange(packing.n_trees + 1))
    shared = order.neighbour_lcps_of_runs(order.rank[fed], run_offsets)
    n = order.lengths[fed]
    area = n * (n + 1) // 2 - shared * (shared + 1) // 2
    return np.diff(offsets_of(area)[run_offsets])
