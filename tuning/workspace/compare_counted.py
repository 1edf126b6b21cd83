"""The exact figures of one side of a comparison, counted from rows or taken from a summary."""

from __future__ import annotations

from dataclasses import dataclass, replace

from packing.packers.areal import pack_areal
from packing.packers.prefix_aware import pack_prefix_aware
from tuning.plan.batch import Batch, batch_plan
from tuning.plan.plan import TuningPlan
from tuning.plan.summary import BatchSummary, Packed, refusal, row_counts


@dataclass(frozen=True)
class Counted:
    """The exact figures of a batch at its plan's cap, for one update over all ranks.

    tokens:  of the rows; trie_tokens: of one trie of them all; fed: of the rows that are trained on
    refused: AReaL's sentence where it would stop; then nothing below is known
    flat, padded: tokens computed without trees; None where refused
    """

    data: str
    rows: int
    groups: int
    tokens: int
    longest: int
    median: float
    trie_tokens: int
    max_tokens_per_mb: int
    refused: str = ""
    fed: int = 0
    packed: Packed | None = None
    flat: int | None = None
    padded: int | None = None

    @classmethod
    def of(cls, bench: Batch, plan: TuningPlan) -> Counted:
        """Counted from the rows; a batch that AReaL refuses has its sentence."""
        cap = plan.max_tokens_per_mb
        counted = cls(data=bench.rows.fingerprint, max_tokens_per_mb=cap, **row_counts(bench))
        try:
            packed = packed_at(bench, plan, cap)
            paid = bench.chain(batch_plan(plan)).comparison
        except (ValueError, RuntimeError) as error:
            return replace(counted, refused=refusal(error))
        return replace(
            counted,
            fed=paid.original_tokens,
            packed=packed,
            flat=paid.flat,
            padded=paid.padded,
        )

    @classmethod
    def from_summary(cls, batch: BatchSummary, packer: str) -> Counted:
        """What a workspace carries of its batch."""
        picture = batch.picture
        panels = {panel.mode: panel.tokens for panel in picture.panels} if picture else {}
        return cls(
            batch.fingerprint,
            batch.rows,
            batch.groups,
            batch.tokens,
            batch.longest,
            batch.median,
            batch.trie_tokens,
            batch.max_tokens_per_mb,
            batch.refused,
            picture.original_tokens if picture else 0,
            next((one for one in batch.packed if one.packer == packer), None),
            panels.get("flat"),
            panels.get("padded"),
        )


def packed_at(bench: Batch, plan: TuningPlan, cap: int) -> Packed:
    """The plan's trees at a cap, over all ranks and PPO minibatches of one update.

    Raises RowTooLong, or ValueError and RuntimeError in AReaL's words, where it would stop.
    """
    chain = bench.chain(batch_plan(plan, cap))
    pack = pack_areal if plan.packer == "areal" else pack_prefix_aware
    passes = [
        [pack(bench.order, cap, rank.members) for rank in one.ranks] for one in chain.ppo_update
    ]
    return Packed.of(plan.packer, passes, chain.comparison.original_tokens)
