"""One pass of AReaL over a batch: what each rank packs in it, and what the pass costs.

Notable:
- all ranks run as many trees as the rank with the most, each padded to the cap
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from packing import metrics
from packing.batch.spec import BatchSpec
from packing.packers.flat import (
    MicroBatches,
    PaddedBatch,
    split_micro_batches,
    split_synchronised,
)
from packing.packing import Packing

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Comparison:
    """Tree training against what a team runs today: the tokens each pays for the same rows.

    Over several ranks each figure is ``ranks x the most that any rank runs``: all wait for it.

    flat:       AReaL's micro-batches without a tree; None where AReaL would refuse them
    flat_error: AReaL's sentence in that case
    padded:     every row as wide as the longest
    """

    original_tokens: int
    tree: int
    flat: int | None
    padded: int
    flat_error: str | None = None

    @property
    def tree_over_flat(self) -> float | None:
        """``tree / flat``: below 1 the tree pays less; None where there is no flat batch."""
        return self.tree / self.flat if self.flat else None

    @property
    def tree_over_padded(self) -> float | None:
        """``tree / padded``: below 1 the tree pays less; None where there are no tokens."""
        return self.tree / self.padded if self.padded else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "tree_over_flat": self.tree_over_flat,
            "tree_over_padded": self.tree_over_padded,
        }


@dataclass(frozen=True, eq=False)
class RankPass:
    """What one rank packs in one pass. M members.

    members:         int64 ``(M,)``, row numbers in the order they are fed
    lengths:         int64 ``(M,)``, tokens of each
    tree_of_member:  int32 ``(M,)``, -1 for an empty row
    tokens_per_tree: int64 ``(trees,)``
    dummies:         empty trees run to stay in step with the rank that has the most
    """

    members: Int64s
    lengths: Int64s
    tree_of_member: Int32s
    tokens_per_tree: Int64s
    dummies: int

    @property
    def tokens(self) -> int:
        """Tokens of the members."""
        return int(self.lengths.sum())

    @property
    def n_trees(self) -> int:
        """Trees with tokens in them."""
        return len(self.tokens_per_tree)

    @property
    def tree_tokens(self) -> int:
        return int(self.tokens_per_tree.sum())

    @property
    def tree_token_ratio(self) -> float:
        """What AReaL logs as ``tree_token_ratio`` on this rank."""
        return metrics.tree_token_ratio(self.tree_tokens, self.tokens)

    def packing(self, rows: int, spec: BatchSpec) -> Packing:
        """The same as a Packing over so many rows of the batch."""
        tree_of_row = np.full(rows, -1, dtype=np.int32)
        tree_of_row[self.members] = self.tree_of_member
        cap = spec.max_tokens_per_mb
        return Packing(tree_of_row, self.tokens_per_tree, cap, spec.packer, self.members)

    @property
    def sequence_ids(self) -> list[list[int]]:
        """Places in ``members`` of each tree's rows."""
        return [np.flatnonzero(self.tree_of_member == t).tolist() for t in range(self.n_trees)]

    def to_json(self) -> dict[str, Any]:
        return {
            "n_trees": self.n_trees,
            "dummy_trees": self.dummies,
            "tree_tokens": self.tree_tokens,
            "tokens": self.tokens,
            "tree_token_ratio": self.tree_token_ratio,
            "group_lens": self.tokens_per_tree.tolist(),
            "sequence_ids": self.sequence_ids,
        }


@dataclass(frozen=True, eq=False)
class Pass:
    """One packed pass over all ranks: ``compute_logp``, or ``ppo_update`` of one minibatch."""

    name: str
    spec: BatchSpec
    ranks: tuple[RankPass, ...]

    @property
    def trees_per_rank(self) -> int:
        """Trees every rank runs once the counts are synchronised, dummies included."""
        return self.ranks[0].n_trees + self.ranks[0].dummies

    @property
    def n_trees(self) -> int:
        """Trees with tokens in them, over all ranks."""
        return sum(rank.n_trees for rank in self.ranks)

    @property
    def tree_tokens(self) -> int:
        return sum(rank.tree_tokens for rank in self.ranks)

    @property
    def tokens(self) -> int:
        return sum(rank.tokens for rank in self.ranks)

    @property
    def dummies(self) -> int:
        """Dummy trees over all ranks."""
        return sum(rank.dummies for rank in self.ranks)

    @property
    def paid_tokens(self) -> int:
        """What runs through the model: every tree padded to the cap, dummies included."""
        return len(self.ranks) * self.trees_per_rank * self.spec.max_tokens_per_mb

    @cached_property
    def flat(self) -> tuple[MicroBatches, ...]:
        """Flat micro-batches of the same rows, all ranks in step.

        Raises RuntimeError in AReaL's words where it would refuse them.
        """
        lengths = [rank.lengths for rank in self.ranks]
        return split_synchronised(lengths, self.spec.micro_batch, self.spec.padding)

    @cached_property
    def comparison(self) -> Comparison:
        flat, error = None, None
        try:
            flat = len(self.ranks) * max(one.padded_tokens for one in self.flat)
        except RuntimeError as refusal:
            error = str(refusal)
        padded = max(PaddedBatch.of(rank.lengths).tokens for rank in self.ranks)
        return Comparison(
            self.tokens, self.paid_tokens, flat, len(self.ranks) * padded, flat_error=error
        )

    def baseline(self, rank: int) -> MicroBatches | None:
        """Flat micro-batches of one rank by itself; None where AReaL refuses them."""
        try:
            return split_micro_batches(
                self.ranks[rank].lengths, self.spec.micro_batch, self.spec.padding
            )
        except RuntimeError:
            return None
