"""What came of a batch: per pass, rank and minibatch its trees, and in sum what is paid.

Notable:
- in every pass all ranks run as many trees as the rank with the most, each padded to the cap
- ``BatchSimulation.summary`` and ``BatchSimulation.to_json`` are plain dicts, ready for JSON
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from packing import metrics
from packing.batch.dispatch import Dispatch
from packing.packers.allocate import allocator
from packing.packers.flat import MicroBatches, PaddedBatch, PaddingRule, split_micro_batches
from packing.packing import Packing
from packing.rows import Rows
from packing.spec import MicroBatchSpec

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BatchSpec:
    """How one batch is trained; names and defaults are AReaL's.

    ``packing_algorithm`` shares groups over ranks in SPMD mode, and rows over flat micro-batches;
    ``n_mbs``, ``granularity``, ``n_mbs_divisor`` and ``padding`` matter to the flat baseline only.
    """

    max_tokens_per_mb: int
    dp_size: int = 1
    ppo_n_minibatches: int = 4
    mode: Dispatch = "controller"
    samples_per_prompt: int | None = None
    packing_algorithm: Literal["ffd", "kk"] = "ffd"
    n_mbs: int = 1
    granularity: int = 1
    n_mbs_divisor: int = 1
    padding: PaddingRule = field(default_factory=PaddingRule)

    def __post_init__(self) -> None:
        if self.max_tokens_per_mb < 1:
            raise ValueError(
                "MicroBatchSpec.max_tokens_per_mb must be a positive value for tree training."
            )
        if self.mode not in get_args(Dispatch):
            raise ValueError(f"mode is 'controller' or 'spmd', not '{self.mode}'.")
        allocator(self.packing_algorithm)
        for name in ("dp_size", "ppo_n_minibatches", "n_mbs", "granularity", "n_mbs_divisor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; the smallest is 1.")

    @property
    def spec(self) -> MicroBatchSpec:
        """The flat baseline's micro-batch spec."""
        return MicroBatchSpec(
            n_mbs=self.n_mbs,
            granularity=self.granularity,
            max_tokens_per_mb=self.max_tokens_per_mb,
            n_mbs_divisor=self.n_mbs_divisor,
            packing_algorithm=self.packing_algorithm,
        )


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

    @classmethod
    def of(
        cls,
        packing: Packing,
        rows: Rows,
        spec: MicroBatchSpec,
        padding: PaddingRule | None = None,
    ) -> Comparison:
        """One rank: ``packing`` against the flat micro-batches of the same rows under ``spec``."""
        lengths = rows.lengths[packing.arrival]
        flat, error = None, None
        try:
            flat = split_micro_batches(lengths, spec, padding).padded_tokens
        except RuntimeError as refusal:
            error = str(refusal)
        return cls(
            original_tokens=int(lengths.sum()),
            tree=metrics.paid_tokens(packing.n_trees, packing.max_tokens_per_mb),
            flat=flat,
            padded=PaddedBatch.of(lengths).tokens,
            flat_error=error,
        )

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
    tree_of_member:  int32 ``(M,)``, -1 for an empty row
    tokens_per_tree: int64 ``(trees,)``
    tokens:          tokens of the members
    dummies:         empty trees run to stay in step with the rank that has the most
    baseline:        flat micro-batches of the same rows on this rank alone; None where refused
    """

    members: Int64s
    tree_of_member: npt.NDArray[np.int32]
    tokens_per_tree: Int64s
    tokens: int
    dummies: int
    baseline: MicroBatches | None

    @property
    def n_trees(self) -> int:
        """Trees with rows in them."""
        return len(self.tokens_per_tree)

    @property
    def tree_tokens(self) -> int:
        return int(self.tokens_per_tree.sum())

    @property
    def tree_token_ratio(self) -> float:
        """What AReaL logs as ``tree_token_ratio`` on this rank."""
        return metrics.tree_token_ratio(self.tree_tokens, self.tokens)

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
    ranks: tuple[RankPass, ...]
    comparison: Comparison

    @property
    def trees_per_rank(self) -> int:
        """Trees every rank runs once the counts are synchronised, dummies included."""
        return self.ranks[0].n_trees + self.ranks[0].dummies

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


@dataclass(frozen=True, eq=False)
class BatchSimulation:
    """One batch from groups to trees.

    parts:        per rank its group numbers, in the rank's order
    rank_rows:    per rank its row numbers, in the rank's order
    group_of:     int32 ``(rows,)``, group number of a row, by row number
    sample_of:    int64 ``(rows,)``, place of a row in its group; -1 outside the batch
    compute_logp: the pass over the whole batch
    ppo_update:   one pass a minibatch
    """

    plan: BatchSpec
    parts: tuple[Int64s, ...]
    rank_rows: tuple[Int64s, ...]
    group_of: npt.NDArray[np.int32]
    sample_of: Int64s
    compute_logp: Pass
    ppo_update: tuple[Pass, ...]

    @cached_property
    def comparison(self) -> Comparison:
        """Tree, flat and padded tokens of one update of the model (``ppo_update``, all passes)."""
        parts = [update.comparison for update in self.ppo_update]
        flats = [part.flat for part in parts if part.flat is not None]
        return Comparison(
            original_tokens=sum(part.original_tokens for part in parts),
            tree=sum(part.tree for part in parts),
            flat=sum(flats) if len(flats) == len(parts) else None,
            padded=sum(part.padded for part in parts),
            flat_error=next((part.flat_error for part in parts if part.flat_error), None),
        )

    def summary(self) -> dict[str, Any]:
        """Ratios, trees and paid tokens; the first four fields as AReaL's own chain has them."""
        logp, update = self.compute_logp, self.comparison
        tree_tokens = sum(one.tree_tokens for one in self.ppo_update)
        tokens = update.original_tokens
        return {
            "ratio_compute_logp": metrics.tree_token_ratio(logp.tree_tokens, logp.tokens),
            "ratio_ppo_update": metrics.tree_token_ratio(tree_tokens, tokens),
            "trees_per_rank_ppo_update_after_dp_sync": sum(
                one.trees_per_rank for one in self.ppo_update
            ),
            "padded_ratio_ppo_update": metrics.padded_token_ratio(update.tree, tokens),
            "trees_per_rank_compute_logp_after_dp_sync": logp.trees_per_rank,
            "padded_ratio_compute_logp": metrics.padded_token_ratio(
                logp.comparison.tree, logp.tokens
            ),
            "original_tokens": tokens,
            "dummy_trees_compute_logp": logp.dummies,
            "dummy_trees_ppo_update": sum(one.dummies for one in self.ppo_update),
            "paid_compute_logp": logp.comparison.to_json(),
            "paid_ppo_update": update.to_json(),
        }

    def to_json(self) -> dict[str, Any]:
        """The whole chain; ``[group, sample]`` stands for a row."""
        ranks = [
            {
                "order": self._named(rows),
                "compute_logp": logp.to_json(),
                "baseline_full_batch": _baseline_json(logp),
                "ppo_update": [
                    {"members": self._named(one.members)}
                    | one.to_json()
                    | {"baseline": _baseline_json(one)}
                    for one in (update.ranks[rank] for update in self.ppo_update)
                ],
            }
            for rank, (rows, logp) in enumerate(
                zip(self.rank_rows, self.compute_logp.ranks, strict=True)
            )
        ]
        return {
            "plan": asdict(self.plan),
            "dp_parts": [part.tolist() for part in self.parts],
            "ranks": ranks,
            "summary": self.summary(),
        }

    def _named(self, rows: Int64s) -> list[list[int]]:
        pairs: list[list[int]] = np.stack(
            [self.group_of[rows], self.sample_of[rows]], axis=1
        ).tolist()
        return pairs


def _baseline_json(one: RankPass) -> dict[str, Any] | None:
    return None if one.baseline is None else one.baseline.to_json()
