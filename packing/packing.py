"""Packing: which tree each row went into, whatever packer put it there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Packing:
    """The outcome of a packer.

    tree_of_row:       int32 ``(rows,)``; -1 for an empty row or one that was not fed
    tokens_per_tree:   int64 ``(trees,)``, distinct prefixes in each tree, in order of creation
    max_tokens_per_mb: the cap no tree exceeds, and the length every tree is padded to
    packer:            name of the packer
    arrival:           int64 ``(fed,)``, row numbers in the order they were fed
    """

    tree_of_row: npt.NDArray[np.int32]
    tokens_per_tree: npt.NDArray[np.int64]
    max_tokens_per_mb: int
    packer: str
    arrival: npt.NDArray[np.int64]

    @property
    def n_trees(self) -> int:
        return len(self.tokens_per_tree)

    @property
    def tree_tokens(self) -> int:
        """Tokens in all trees, padding not counted."""
        return int(self.tokens_per_tree.sum())

    def rows_of_tree(self, tree: int) -> npt.NDArray[np.int64]:
        """Row numbers of one tree in the order they were fed."""
        inside: npt.NDArray[np.bool_] = self.tree_of_row[self.arrival] == tree
        return self.arrival[inside]
