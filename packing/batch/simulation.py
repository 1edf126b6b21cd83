"""What AReaL does with a batch: per pass, rank and minibatch its trees, and in sum what is paid.

Notable:
- in every pass all ranks run as many trees as the rank with the most, each padded to the cap
- a row is in one tree of an update, whatever rank and minibatch: ``packing`` numbers the trees of
  an update minibatch by minibatch, rank by rank, and every figure and picture follows from it
- ``figures``, ``summary`` and ``to_json`` are plain dicts, ready for JSON; none is worked out twice
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from packing import metrics
from packing.batch.passes import Comparison, Pass, RankPass
from packing.batch.spec import BatchSpec
from packing.packers.bounds import Bounds, bounds
from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.trie import Forest, build_forest

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class BatchSimulation:
    """One batch from groups to trees.

    order:        of all rows that were given; row numbers below are its own
    parts:        per rank its group numbers, in the rank's order
    rank_rows:    per rank its row numbers, in the rank's order
    group_of:     int32 ``(rows,)``, group number of a row
    sample_of:    int64 ``(rows,)``, place of a row in its group; -1 outside the batch
    compute_logp: the pass over the whole batch
    ppo_update:   one pass a minibatch
    """

    spec: BatchSpec
    order: PrefixOrder
    parts: tuple[Int64s, ...]
    rank_rows: tuple[Int64s, ...]
    group_of: Int32s
    sample_of: Int64s
    compute_logp: Pass
    ppo_update: tuple[Pass, ...]

    @cached_property
    def _trees(self) -> list[tuple[int, int, RankPass]]:
        """Minibatch, rank and what it packs, in the order in which trees are numbered."""
        return [
            (minibatch, rank, packed)
            for minibatch, update in enumerate(self.ppo_update)
            for rank, packed in enumerate(update.ranks)
        ]

    @cached_property
    def packing(self) -> Packing:
        """All trees of one update; the rows in the order in which they are fed."""
        tree_of_row = np.full(len(self.order), -1, dtype=np.int32)
        before = 0
        for _, _, packed in self._trees:
            inside = packed.tree_of_member >= 0
            tree_of_row[packed.members[inside]] = packed.tree_of_member[inside] + before
            before += packed.n_trees
        return Packing(
            tree_of_row,
            np.concatenate([packed.tokens_per_tree for _, _, packed in self._trees]),
            self.spec.max_tokens_per_mb,
            self.spec.packer,
            np.concatenate([packed.members for _, _, packed in self._trees]),
        )

    @cached_property
    def rank_of_tree(self) -> Int64s:
        """int64 ``(trees,)``."""
        return np.repeat([rank for _, rank, _ in self._trees], self._counts)

    @cached_property
    def minibatch_of_tree(self) -> Int64s:
        """int64 ``(trees,)``."""
        return np.repeat([minibatch for minibatch, _, _ in self._trees], self._counts)

    @property
    def _counts(self) -> list[int]:
        return [packed.n_trees for _, _, packed in self._trees]

    @cached_property
    def forest(self) -> Forest:
        """The tries of all trees of one update."""
        return build_forest(self.order, self.packing)

    @property
    def n_trees(self) -> int:
        """Trees with tokens in them, over all ranks and minibatches of one update."""
        return self.packing.n_trees

    @property
    def n_dummy_trees(self) -> int:
        """Empty trees of one update, run so that ranks stay in step."""
        return sum(update.dummies for update in self.ppo_update)

    @property
    def tree_tokens(self) -> int:
        return self.packing.tree_tokens

    @cached_property
    def original_tokens(self) -> int:
        """Tokens of the batch's rows."""
        return sum(update.tokens for update in self.ppo_update)

    @property
    def paid_tokens(self) -> int:
        """Tokens that run through the model in one update."""
        return sum(update.paid_tokens for update in self.ppo_update)

    @property
    def tree_token_ratio(self) -> float:
        return metrics.tree_token_ratio(self.tree_tokens, self.original_tokens)

    @property
    def padded_token_ratio(self) -> float:
        return metrics.padded_token_ratio(self.paid_tokens, self.original_tokens)

    @property
    def prefix_reuse(self) -> float:
        return metrics.prefix_reuse(self.tree_tokens, self.original_tokens)

    @property
    def fill(self) -> float:
        """Part of the trees that hold tokens that is not padding."""
        return metrics.fill(self.tree_tokens, self.n_trees, self.spec.max_tokens_per_mb)

    @cached_property
    def ideal_tokens(self) -> int:
        """Tokens of one trie of all rows: no packer can need fewer."""
        return self.order.tree_tokens(self.packing.arrival)

    @cached_property
    def tree_area(self) -> int:
        """Visible (query, key) pairs in all trees."""
        return int(metrics.tree_attention_area(self.order, self.packing).sum())

    @cached_property
    def flat_area(self) -> int:
        """Visible pairs without any tree."""
        return metrics.flat_attention_area(self.order.lengths[self.packing.arrival])

    @property
    def row_tokens_per_tree(self) -> Int64s:
        """int64 ``(trees,)``: tokens of the rows in each tree, shared ones counted per row."""
        fed = self.packing.arrival
        tree = self.packing.tree_of_row[fed]
        inside = tree >= 0
        lengths = self.order.lengths[fed[inside]]
        return np.bincount(tree[inside], lengths, self.n_trees).astype(np.int64)

    @cached_property
    def bounds(self) -> Bounds:
        """What no packer can do without, given these ranks and minibatches."""
        cap = self.spec.max_tokens_per_mb
        least = [bounds(self.order, cap, packed.members) for _, _, packed in self._trees]
        names = (one.name for one in fields(Bounds))
        return Bounds(**{name: sum(getattr(one, name) for one in least) for name in names})

    @cached_property
    def comparison(self) -> Comparison:
        """Tree, flat and padded tokens of one update of the model (``ppo_update``, all passes)."""
        parts = [update.comparison for update in self.ppo_update]
        flats = [part.flat for part in parts if part.flat is not None]
        return Comparison(
            original_tokens=self.original_tokens,
            tree=self.paid_tokens,
            flat=sum(flats) if len(flats) == len(parts) else None,
            padded=sum(part.padded for part in parts),
            flat_error=next((part.flat_error for part in parts if part.flat_error), None),
        )

    @property
    def areal_log(self) -> dict[str, float]:
        """What AReaL logs: means over its calls, where the figures here are of the sums."""
        return {
            "tree_token_ratio": _mean_ratio([self.compute_logp]),
            "ppo_actor/update/tree_token_ratio": _mean_ratio(self.ppo_update),
            "ppo_actor/update/num_micro_batches": float(
                np.mean([update.trees_per_rank for update in self.ppo_update])
            ),
        }

    def figures(self) -> dict[str, Any]:
        """The figures of one update; AReaL's names where it has them."""
        return {
            "packer": self.spec.packer,
            "max_tokens_per_mb": self.spec.max_tokens_per_mb,
            "n_trees": self.n_trees,
            "n_dummy_trees": self.n_dummy_trees,
            "tree_tokens": self.tree_tokens,
            "original_tokens": self.original_tokens,
            "ideal_tokens": self.ideal_tokens,
            "paid_tokens": self.paid_tokens,
            "tree_token_ratio": self.tree_token_ratio,
            "padded_token_ratio": self.padded_token_ratio,
            "prefix_reuse": self.prefix_reuse,
            "fill": self.fill,
            "sharing_lost": metrics.sharing_lost(self.tree_tokens, self.ideal_tokens),
            "tree_attention_area": self.tree_area,
            "flat_attention_area": self.flat_area,
            "paid_flat": self.comparison.flat,
            "paid_padded": self.comparison.padded,
            "bound_trees": self.bounds.trees,
            "bound_tokens": self.bounds.tokens,
            "areal_log": self.areal_log,
            "tokens_per_tree": self.packing.tokens_per_tree.tolist(),
            "rank_of_tree": self.rank_of_tree.tolist(),
            "minibatch_of_tree": self.minibatch_of_tree.tolist(),
            "tree_of_row": self.packing.tree_of_row.tolist(),
        }

    def summary(self) -> dict[str, Any]:
        """Ratios, trees and paid tokens; the first four fields as AReaL's own chain has them."""
        logp = self.compute_logp
        return {
            "ratio_compute_logp": metrics.tree_token_ratio(logp.tree_tokens, logp.tokens),
            "ratio_ppo_update": self.tree_token_ratio,
            "trees_per_rank_ppo_update_after_dp_sync": sum(
                update.trees_per_rank for update in self.ppo_update
            ),
            "padded_ratio_ppo_update": self.padded_token_ratio,
            "trees_per_rank_compute_logp_after_dp_sync": logp.trees_per_rank,
            "padded_ratio_compute_logp": metrics.padded_token_ratio(logp.paid_tokens, logp.tokens),
            "original_tokens": self.original_tokens,
            "dummy_trees_compute_logp": logp.dummies,
            "dummy_trees_ppo_update": self.n_dummy_trees,
            "paid_compute_logp": logp.comparison.to_json(),
            "paid_ppo_update": self.comparison.to_json(),
        }

    def to_json(self) -> dict[str, Any]:
        """The whole way of the batch; ``[group, sample]`` stands for a row."""
        ranks = [
            {
                "order": self._named(rows),
                "compute_logp": self.compute_logp.ranks[rank].to_json(),
                "baseline_full_batch": _baseline_json(self.compute_logp, rank),
                "ppo_update": [
                    {"members": self._named(update.ranks[rank].members)}
                    | update.ranks[rank].to_json()
                    | {"baseline": _baseline_json(update, rank)}
                    for update in self.ppo_update
                ],
            }
            for rank, rows in enumerate(self.rank_rows)
        ]
        plan = asdict(self.spec)
        plan["mode"] = plan.pop("dispatch")
        return {
            "plan": plan,
            "dp_parts": [part.tolist() for part in self.parts],
            "ranks": ranks,
            "summary": self.summary(),
        }

    def _named(self, rows: Int64s) -> list[list[int]]:
        pairs: list[list[int]] = np.stack(
            [self.group_of[rows], self.sample_of[rows]], axis=1
        ).tolist()
        return pairs


def _mean_ratio(passes: Sequence[Pass]) -> float:
    return float(np.mean([rank.tree_token_ratio for one in passes for rank in one.ranks]))


def _baseline_json(one: Pass, rank: int) -> dict[str, Any] | None:
    flat = one.baseline(rank)
    return None if flat is None else flat.to_json()
