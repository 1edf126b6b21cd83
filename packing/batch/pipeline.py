"""AReaL's way of a batch: groups, ranks, PPO minibatches, trees, dummy trees, and what is paid.

Notable:
- ``compute_logp`` packs a rank's whole batch, ``ppo_update`` packs each minibatch by itself
- one PrefixOrder serves every pass: a rank's order is a selection from it, no token is sorted
  or read again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from packing import metrics
from packing.batch.dispatch import GroupTable, dispatch, ppo_minibatches
from packing.batch.simulation import BatchSimulation, BatchSpec, Comparison, Pass, RankPass
from packing.packers.areal import RowTooLong, pack_areal
from packing.packers.flat import MicroBatches, PaddedBatch, split_micro_batches, split_synchronised
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Trie, whole_trie

Int64s = npt.NDArray[np.int64]


def simulate(
    rows: Rows,
    plan: BatchSpec,
    order: PrefixOrder | None = None,
    groups: npt.ArrayLike | None = None,
) -> BatchSimulation:
    """What AReaL does with one batch.

    order:  ``PrefixOrder.of(rows)`` where it is known
    groups: group numbers of the batch in the order they arrive; all, ascending, by default

    Raises ValueError or RuntimeError, in AReaL's words, where AReaL would stop: the groups do not
    divide by the ranks, a rank has fewer rows than minibatches, a row is longer than the cap
    (RowTooLong, which names the row).
    """
    order = PrefixOrder.of(rows) if order is None else order
    table = GroupTable.of(rows, groups, plan.samples_per_prompt)
    dispatched = dispatch(table, plan.dp_size, plan.mode, plan.packing_algorithm)
    places = [table.places(groups_of_rank) for groups_of_rank in dispatched]
    ranks = [_RankBatch.of(order, table.rows[at]) for at in places]
    for rank in ranks:
        rank.refuse_too_long(plan.max_tokens_per_mb)
    whole = [np.arange(len(rank.rows)) for rank in ranks]
    scattered = [ppo_minibatches(rank.order.lengths, plan.ppo_n_minibatches) for rank in ranks]
    compute_logp = _run_pass("compute_logp", ranks, whole, plan)
    ppo_update: tuple[Pass, ...]
    if plan.ppo_n_minibatches == 1:  # the same rows in the same order
        ppo_update = (replace(compute_logp, name="ppo_update"),)
    else:
        ppo_update = tuple(
            _run_pass("ppo_update", ranks, [np.array(mb[i]) for mb in scattered], plan)
            for i in range(plan.ppo_n_minibatches)
        )
    sample_of = np.full(len(rows), -1, dtype=np.int64)
    sample_of[table.rows] = table.sample
    return BatchSimulation(
        plan=plan,
        parts=tuple(table.ids[np.asarray(at, dtype=np.int64)] for at in dispatched),
        rank_rows=tuple(rank.rows for rank in ranks),
        group_of=rows.group,
        sample_of=sample_of,
        compute_logp=compute_logp,
        ppo_update=ppo_update,
    )


@dataclass(frozen=True, eq=False)
class _RankBatch:
    """A rank's rows, numbered from 0 in the rank's order, with their own order and trie."""

    rows: Int64s
    order: PrefixOrder
    trie: Trie

    @classmethod
    def of(cls, order: PrefixOrder, rows: Int64s) -> _RankBatch:
        own = _selected(order, rows)
        return cls(rows, own, whole_trie(own))

    def refuse_too_long(self, max_tokens_per_mb: int) -> None:
        over = np.flatnonzero(self.order.lengths > max_tokens_per_mb)
        if len(over):
            row, length = int(self.rows[over[0]]), int(self.order.lengths[over[0]])
            raise RowTooLong(row, length, max_tokens_per_mb)


def _selected(order: PrefixOrder, rows: Int64s) -> PrefixOrder:
    """The order of some rows, numbered by their places in ``rows``."""
    by_rank = np.argsort(order.rank[rows])
    rank = np.empty_like(by_rank)
    rank[by_rank] = np.arange(len(rows))
    lcp = order.neighbour_lcps(order.rank[rows[by_rank]])
    return PrefixOrder(by_rank, rank, order.lengths[rows], lcp)


def _run_pass(
    name: str, ranks: Sequence[_RankBatch], members: Sequence[Int64s], plan: BatchSpec
) -> Pass:
    cap = plan.max_tokens_per_mb
    packings = [
        pack_areal(rank.order, cap, fed, rank.trie)
        for rank, fed in zip(ranks, members, strict=True)
    ]
    lengths = [rank.order.lengths[fed] for rank, fed in zip(ranks, members, strict=True)]
    trees = [packing.n_trees for packing in packings]
    baselines: list[MicroBatches | None] = [None] * len(ranks)
    flat, error = None, None
    try:
        baselines = [split_micro_batches(own, plan.spec, plan.padding) for own in lengths]
        in_step = split_synchronised(lengths, plan.spec, plan.padding)
        flat = len(ranks) * max(one.padded_tokens for one in in_step)
    except RuntimeError as refusal:
        error = str(refusal)
    rank_passes = tuple(
        RankPass(
            members=rank.rows[fed],
            tree_of_member=packing.tree_of_row[fed],
            tokens_per_tree=packing.tokens_per_tree,
            tokens=int(own.sum()),
            dummies=dummies,
            baseline=baseline,
        )
        for rank, fed, packing, own, dummies, baseline in zip(
            ranks,
            members,
            packings,
            lengths,
            metrics.dummy_trees(trees).tolist(),
            baselines,
            strict=True,
        )
    )
    comparison = Comparison(
        original_tokens=sum(one.tokens for one in rank_passes),
        tree=metrics.paid_tokens(trees, cap),
        flat=flat,
        padded=len(ranks) * max(PaddedBatch.of(own).tokens for own in lengths),
        flat_error=error,
    )
    return Pass(name, rank_passes, comparison)
