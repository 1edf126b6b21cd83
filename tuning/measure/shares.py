"""What one rank runs in a training step: its micro-batches in each mode, and what they hold.

Notable:
- with several ranks the share is that of the rank that the others wait for, dummy trees included
- rows are packed by their true tokens; what the model reads may be other ids of the same rows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernels.attention import TreeMask
from kernels.model import MicroBatch, flat_batches, padded_batches, row_layout, tree_batches
from packing.batch.passes import Pass
from packing.batch.simulation import BatchSimulation
from packing.layout import depth_first_layout
from packing.packers.flat import PaddedBatch
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import build_forest
from tuning.plan.plan import Layout

_TILE = 128


@dataclass(frozen=True, eq=False)
class Share:
    """Per PPO minibatch its micro-batches; tree_tokens and n_trees are 0 without trees."""

    minibatches: tuple[tuple[MicroBatch, ...], ...]
    tree_tokens: int
    n_trees: int

    @cached_property
    def batches(self) -> tuple[MicroBatch, ...]:
        """All micro-batches, in the order they run."""
        return tuple(b for minibatch in self.minibatches for b in minibatch)

    @cached_property
    def areas(self) -> tuple[int, ...]:
        """(query, key) pairs in the mask tiles that each micro-batch visits."""
        return tuple(m.visited_area(_TILE, _TILE) if m else 0 for m in self._masks)

    @cached_property
    def features(self) -> dict[str, float]:
        """What a step's time depends on; see ``costmodel``."""
        return {
            "steps": float(len(self.minibatches)),
            "micro_batches": float(len(self.batches)),
            "padded_tokens": float(sum(b.padded_tokens for b in self.batches)),
            "visited_area": float(sum(self.areas)),
            "nodes": float(sum(len(m.nodes) for m in self._masks if m)),
            "row_tokens": float(sum(len(b.layout.row_positions) for b in self.batches)),
        }

    @cached_property
    def _masks(self) -> tuple[TreeMask | None, ...]:
        ends = [b.layout.subtree_end for b in self.batches]
        return tuple(
            TreeMask.from_subtree_end(end) if end is not None and len(end) else None for end in ends
        )


def share_of(rows: Rows, simulation: BatchSimulation, mode: Layout) -> Share:
    """The micro-batches of ``ppo_update``, minibatch by minibatch.

    rows: what the model reads: those of the simulation, or other ids at the same places
    Raises RuntimeError, in AReaL's words, where it refuses the flat micro-batches.
    """
    return _share(rows, simulation.order, simulation.ppo_update, mode)


def logp_share_of(rows: Rows, simulation: BatchSimulation, mode: Layout) -> Share:
    """The micro-batches of ``compute_logp``: the whole batch, before minibatches."""
    return _share(rows, simulation.order, (simulation.compute_logp,), mode)


def _share(rows: Rows, order: PrefixOrder, passes: Sequence[Pass], mode: Layout) -> Share:
    minibatches, tree_tokens, n_trees = [], 0, 0
    for update in passes:
        if mode == "tree":
            batches = _trees(rows, order, update)
            tree_tokens += sum(b.layout.n_tokens for b in batches)
            n_trees += len(batches)
        else:
            batches = _rows(rows, update, mode)
        minibatches.append(tuple(batches))
    return Share(tuple(minibatches), tree_tokens, n_trees)


def _trees(rows: Rows, order: PrefixOrder, update: Pass) -> Sequence[MicroBatch]:
    heaviest = max(update.ranks, key=lambda one: (one.n_trees, one.tree_tokens))
    cap = update.spec.max_tokens_per_mb
    forest = build_forest(order, heaviest.packing(len(order), update.spec))
    layouts = [depth_first_layout(rows, forest.tree(t)) for t in range(len(forest))]
    dummies = [row_layout(rows, [])] * (update.trees_per_rank - len(layouts))
    return tree_batches([*layouts, *dummies], cap)


def _rows(rows: Rows, update: Pass, mode: Layout) -> Sequence[MicroBatch]:
    cap = update.spec.max_tokens_per_mb
    if mode == "padded":
        widest = max(update.ranks, key=lambda one: PaddedBatch.of(one.lengths).tokens)
        batch = PaddedBatch.of(widest.lengths)
        groups = [widest.members[list(g)] for g in batch.micro_batches(cap)]
        return padded_batches(rows, groups, batch.width)
    fullest, split = max(
        zip(update.ranks, update.flat, strict=True), key=lambda one: one[1].padded_tokens
    )
    batches = flat_batches(rows, [fullest.members[list(g)] for g in split.groups])
    return [
        MicroBatch(batch.layout, padded)
        for batch, padded in zip(batches, split.padded_to, strict=True)
    ]


def folded(rows: Rows, vocabulary: int) -> Rows:
    """The same rows with every token id modulo ``vocabulary``: same lengths, same cost."""
    tokens = (rows.tokens % vocabulary).astype(np.int32)
    return Rows(tokens, rows.offsets, rows.group, rows.loss_mask, rows.decoder)
