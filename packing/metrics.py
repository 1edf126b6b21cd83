"""Every ratio on screen, defined once.

Notable:
- *original tokens* are those of the rows, *tree tokens* the distinct prefixes in the trees, *paid
  tokens* what runs through the model: padding, and waiting for the slowest rank, counted
- a ratio over no tokens at all is 1: nothing is there to save
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import Rows, offsets_of

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


@dataclass(frozen=True, eq=False)
class PackingMetrics:
    """The figures of one packing on one rank.

    tokens_per_tree: int64 ``(trees,)``; tree_of_row: int32 ``(rows,)``, as in ``Packing``
    original_tokens: tokens of the rows that were fed
    ideal_tokens:    tokens of one trie of them all, whatever the cap
    tree_area, flat_area: visible (query, key) pairs in the trees, and without any tree
    """

    packer: str
    max_tokens_per_mb: int
    original_tokens: int
    ideal_tokens: int
    tokens_per_tree: Int64s
    tree_of_row: npt.NDArray[np.int32]
    tree_area: int
    flat_area: int

    @classmethod
    def of(cls, packing: Packing, rows: Rows, order: PrefixOrder | None = None) -> PackingMetrics:
        """Figures of ``packing`` of ``rows``; pass their ``order`` where it is known."""
        order = PrefixOrder.of(rows) if order is None else order
        lengths = rows.lengths[packing.arrival]
        return cls(
            packer=packing.packer,
            max_tokens_per_mb=packing.max_tokens_per_mb,
            original_tokens=int(lengths.sum()),
            ideal_tokens=order.tree_tokens(packing.arrival),
            tokens_per_tree=packing.tokens_per_tree,
            tree_of_row=packing.tree_of_row,
            tree_area=int(tree_attention_area(order, packing).sum()),
            flat_area=flat_attention_area(lengths),
        )

    @property
    def n_trees(self) -> int:
        return len(self.tokens_per_tree)

    @property
    def tree_tokens(self) -> int:
        return int(self.tokens_per_tree.sum())

    @property
    def paid_tokens(self) -> int:
        return paid_tokens(self.n_trees, self.max_tokens_per_mb)

    @property
    def tree_token_ratio(self) -> float:
        return tree_token_ratio(self.tree_tokens, self.original_tokens)

    @property
    def padded_token_ratio(self) -> float:
        return padded_token_ratio(self.paid_tokens, self.original_tokens)

    @property
    def prefix_reuse(self) -> float:
        return prefix_reuse(self.tree_tokens, self.original_tokens)

    @property
    def fill(self) -> float:
        return fill(self.tree_tokens, self.n_trees, self.max_tokens_per_mb)

    @property
    def sharing_lost(self) -> float:
        return sharing_lost(self.tree_tokens, self.ideal_tokens)

    def to_json(self) -> dict[str, Any]:
        """The fields that ``python -m tuning pack`` prints; AReaL's names where it has them."""
        return {
            "packer": self.packer,
            "max_tokens_per_mb": self.max_tokens_per_mb,
            "n_trees": self.n_trees,
            "tree_tokens": self.tree_tokens,
            "original_tokens": self.original_tokens,
            "ideal_tokens": self.ideal_tokens,
            "paid_tokens": self.paid_tokens,
            "tree_token_ratio": self.tree_token_ratio,
            "padded_token_ratio": self.padded_token_ratio,
            "prefix_reuse": self.prefix_reuse,
            "fill": self.fill,
            "sharing_lost": self.sharing_lost,
            "tree_attention_area": self.tree_area,
            "flat_attention_area": self.flat_area,
            "tokens_per_tree": self.tokens_per_tree.tolist(),
            "tree_of_row": self.tree_of_row.tolist(),
        }
