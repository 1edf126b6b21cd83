"""What is counted of a batch at its plan's cap, as plain values that a file can carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from packing import metrics
from packing.packers.areal import RowTooLong, pack_areal
from packing.packers.bounds import bounds
from packing.packers.prefix_aware import pack_prefix_aware
from packing.packing import Packing
from tuning.plan.batch import Batch, batch_plan
from tuning.plan.picture import BatchPicture, batch_picture
from tuning.plan.plan import TuningPlan

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
    def of(cls, packer: str, passes: Sequence[Sequence[Packing]], tokens: int) -> Packed:
        """From the packings of each rank, by pass."""
        every = [one for ranks in passes for one in ranks]
        cap = every[0].max_tokens_per_mb
        trees = sum(one.n_trees for one in every)
        tree_tokens = sum(one.tree_tokens for one in every)
        paid = sum(metrics.paid_tokens([one.n_trees for one in ranks], cap) for ranks in passes)
        return cls(
            packer,
            trees,
            tree_tokens,
            paid,
            metrics.tree_token_ratio(tree_tokens, tokens),
            metrics.padded_token_ratio(paid, tokens),
            metrics.prefix_reuse(tree_tokens, tokens),
            metrics.fill(tree_tokens, trees, cap),
        )


@dataclass(frozen=True)
class PartingPlace:
    """A place where rows almost share (``packing.batch.divergence``), without its text."""

    position: int
    places: int
    rows: int
    groups: int
    tokens_saved: int
    ratio_from: float
    ratio_to: float


@dataclass(frozen=True)
class BatchSummary:
    """A batch and its packing at ``max_tokens_per_mb``.

    trie_tokens: tokens of one trie of all rows: no packer can need fewer
    refused:     AReaL's sentence where it would stop; then nothing below is known
    packed:      AReaL's packer and ours
    bound_trees, bound_tokens: what no packer can do without, given these ranks and minibatches
    trees, dummy_trees: of one update, over all ranks (dummies counted in ``trees``)
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
    flat_error: str = ""
    picture: BatchPicture | None = None
    breaks: tuple[PartingPlace, ...] = ()

    @classmethod
    def of(cls, bench: Batch, plan: TuningPlan) -> BatchSummary:
        """Counted, never estimated; a batch that AReaL refuses is summarised with its refusal."""
        counted = cls(
            fingerprint=bench.rows.fingerprint,
            max_tokens_per_mb=plan.max_tokens_per_mb,
            **row_counts(bench),
        )
        try:
            return _packed(counted, bench, plan)
        except (ValueError, RuntimeError) as error:
            return replace(counted, refused=refusal(error))


def row_counts(bench: Batch) -> dict[str, Any]:
    """What is known of the rows before they are packed, by the names of the summary's fields."""
    rows = bench.rows
    return {
        "rows": len(rows),
        "groups": rows.n_groups,
        "tokens": rows.n_tokens,
        "longest": rows.longest,
        "median": float(np.median(rows.lengths)) if len(rows) else 0.0,
        "trie_tokens": bench.trie.n_tokens,
    }


def refusal(error: ValueError | RuntimeError) -> str:
    """AReaL's sentence, after the row where it is about one."""
    return f"row {error.row}: {error}" if isinstance(error, RowTooLong) else str(error)


def _packed(counted: BatchSummary, bench: Batch, plan: TuningPlan) -> BatchSummary:
    cap = plan.max_tokens_per_mb
    chain = bench.chain(batch_plan(plan))
    members = [[rank.members for rank in one.ranks] for one in chain.ppo_update]
    least = [bounds(bench.order, cap, fed) for ranks in members for fed in ranks]
    tokens = chain.comparison.original_tokens
    known = {
        "packed": tuple(
            Packed.of(
                name, [[pack(bench.order, cap, m) for m in ranks] for ranks in members], tokens
            )
            for name, pack in (("areal", pack_areal), ("prefix-aware", pack_prefix_aware))
        ),
        "bound_trees": sum(one.trees for one in least),
        "bound_tokens": sum(one.tokens for one in least),
        "trees": plan.dp_size * sum(one.trees_per_rank for one in chain.ppo_update),
        "dummy_trees": sum(one.dummies for one in chain.ppo_update),
        "flat_error": chain.comparison.flat_error or "",
        "picture": batch_picture(bench.order, chain, plan.packer),
        "breaks": tuple(
            PartingPlace(
                d.position,
                d.places,
                d.n_rows,
                d.n_groups,
                d.tokens_saved,
                d.ratio_from,
                d.ratio_to,
            )
            for d in bench.divergences(cap)[:_BREAKS]
        ),
    }
    return BatchSummary(**vars(counted) | known)
