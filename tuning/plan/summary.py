"""What is counted of a batch at its plan's cap, as plain values that a file can carry."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from packing.batch.refusal import BatchRefused
from packing.batch.simulation import BatchSimulation
from tuning.plan.batch import Batch
from tuning.plan.picture import BatchPicture, batch_picture
from tuning.plan.plan import PACKERS, TuningPlan

_BREAKS = 10


@dataclass(frozen=True)
class Packed:
    """One packer's trees of one update, over all ranks and PPO minibatches.

    trees without dummies; paid tokens with them; ratios as ``packing.metrics`` has them
    """

    packer: str
    trees: int
    tree_tokens: int
    paid_tokens: int
    tree_token_ratio: float
    padded_token_ratio: float
    prefix_reuse: float
    fill: float

    @classmethod
    def of(cls, simulation: BatchSimulation) -> Packed:
        return cls(
            simulation.spec.packer,
            simulation.n_trees,
            simulation.tree_tokens,
            simulation.paid_tokens,
            simulation.tree_token_ratio,
            simulation.padded_token_ratio,
            simulation.prefix_reuse,
            simulation.fill,
        )


@dataclass(frozen=True)
class PartingPlace:
    """A place where rows almost share (``packing.batch.divergence``), without its text.

    tree_tokens, paid_tokens: of one update as it is; those with ``_to`` without what parts the rows
    """

    position: int
    places: int
    rows: int
    groups: int
    tokens_saved: int
    tree_tokens: int
    tree_tokens_to: int
    paid_tokens: int
    paid_tokens_to: int


@dataclass(frozen=True)
class BatchSummary:
    """A batch and its packing at ``max_tokens_per_mb``.

    trie_tokens: tokens of one trie of all rows: no packer can need fewer
    refused:     AReaL's sentence and our mend where it would stop; then nothing below is known
    packed:      AReaL's packer and ours
    bound_trees, bound_tokens: what no packer can do without, given these ranks and minibatches
    trees, dummy_trees: of one update, over all ranks (dummies counted in ``trees``)
    flat, padded: tokens computed without trees; ``flat`` is None where AReaL refuses it
    picture:     the same update padded, flat and as trees
    breaks:      where rows almost share, the most to gain first
    """

    fingerprint: str
    rows: int
    groups: int
    tokens: int
    longest: int
    median: float
    trie_tokens: int
    max_tokens_per_mb: int
    refused: str = ""
    packed: tuple[Packed, ...] = ()
    bound_trees: int = 0
    bound_tokens: int = 0
    trees: int = 0
    dummy_trees: int = 0
    flat: int | None = None
    padded: int | None = None
    flat_error: str = ""
    picture: BatchPicture | None = None
    breaks: tuple[PartingPlace, ...] = ()

    @classmethod
    def of(cls, batch: Batch, plan: TuningPlan, detail: bool = True) -> BatchSummary:
        """Counted, never estimated; a batch that AReaL refuses is summarised with its refusal.

        detail: with the other packer, the picture and the places where rows part
        """
        rows = batch.rows
        counted = cls(
            fingerprint=rows.fingerprint,
            rows=len(rows),
            groups=rows.n_groups,
            tokens=rows.n_tokens,
            longest=rows.longest,
            median=float(np.median(rows.lengths)) if len(rows) else 0.0,
            trie_tokens=batch.trie.n_tokens,
            max_tokens_per_mb=plan.max_tokens_per_mb,
        )
        try:
            simulation = batch.simulation(plan)
            packers = PACKERS if detail else (plan.packer,)
            packed = [batch.simulation(replace(plan, packer=packer)) for packer in packers]
        except BatchRefused as refused:
            return replace(counted, refused=str(refused))
        comparison = simulation.comparison
        counted = replace(
            counted,
            packed=tuple(map(Packed.of, packed)),
            bound_trees=simulation.bounds.trees,
            bound_tokens=simulation.bounds.tokens,
            trees=simulation.n_trees + simulation.n_dummy_trees,
            dummy_trees=simulation.n_dummy_trees,
            flat=comparison.flat,
            padded=comparison.padded,
            flat_error=comparison.flat_error or "",
        )
        if not detail:
            return counted
        breaks = (
            PartingPlace(
                d.position,
                d.places,
                d.n_rows,
                d.n_groups,
                d.tokens_saved,
                *d.tree_tokens,
                *d.paid_tokens,
            )
            for d in batch.divergences(plan)[:_BREAKS]
        )
        return replace(counted, picture=batch_picture(simulation), breaks=tuple(breaks))

    def of_packer(self, packer: str) -> Packed | None:
        """What a packer makes of the batch; None where that was not counted."""
        return next((one for one in self.packed if one.packer == packer), None)
