"""What every rank runs: the trees of AReaL's chain, in step, and the same rows in every mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels.ranks.job import Pieces
from packing.batch.simulation import BatchSimulation
from packing.packers.flat import split_synchronised
from packing.rows import Rows
from tests.tuning.sweep_cases import grpo_rows
from tuning.measure.rank_pieces import rank_pieces
from tuning.plan.batch import Batch
from tuning.plan.plan import Layout, Packer, TuningPlan

PLAN = TuningPlan(dp_size=2, ppo_n_minibatches=2, max_tokens_per_mb=512)


def uneven() -> Rows:
    """One group is far longer: its rank has more trees."""
    rows = grpo_rows(groups=4, samples=4)
    return Rows.from_lists(
        [list(row) * (3 if rows.group[i] == 0 else 1) for i, row in enumerate(rows)], rows.group
    )


def simulated(packer: Packer = "areal") -> BatchSimulation:
    return Batch.of(uneven(), PLAN).simulation(replace(PLAN, packer=packer))


def pieces_of(mode: Layout, packer: Packer = "areal") -> list[Pieces]:
    chain = simulated(packer)
    return [rank_pieces(one, mode) for one in (*chain.ppo_update, chain.compute_logp)]


@pytest.mark.parametrize("packer", ["areal", "prefix-aware"])
@pytest.mark.parametrize("mode", ["tree", "flat", "padded"])
def test_every_row_is_run_once_by_its_own_rank_and_ranks_are_in_step(
    mode: Layout, packer: Packer
) -> None:
    chain = simulated(packer)
    *updates, logp = pieces_of(mode, packer)
    for ranks, one in zip((*updates, logp), (*chain.ppo_update, chain.compute_logp), strict=True):
        assert len({len(own) for own in ranks}) == 1
        for own, rank in zip(ranks, one.ranks, strict=True):
            fed = sorted(row for piece in own for row in piece.rows)
            assert fed == sorted(rank.members.tolist())


def test_trees_are_those_of_the_chain_with_its_dummies() -> None:
    chain = simulated()
    assert sum(one.dummies for one in chain.ppo_update) > 0
    for ranks, one in zip(pieces_of("tree"), chain.ppo_update, strict=False):
        for own, rank in zip(ranks, one.ranks, strict=True):
            filled = [piece for piece in own if piece.rows]
            assert len(own) == one.trees_per_rank and len(own) - len(filled) == rank.dummies
            assert {piece.padded_to for piece in own} == {512}
            sizes = [chain.order.tree_tokens(np.array(piece.rows)) for piece in filled]
            assert sizes == rank.tokens_per_tree.tolist()


def test_flat_rows_are_split_as_areal_keeps_ranks_in_step() -> None:
    chain = simulated()
    for ranks, one in zip(pieces_of("flat"), chain.ppo_update, strict=False):
        lengths = [rank.lengths for rank in one.ranks]
        expected = split_synchronised(lengths, one.spec.micro_batch, one.spec.padding)
        assert [[p.padded_to for p in own] for own in ranks] == [
            list(e.padded_to) for e in expected
        ]
        paid = len(ranks) * max(sum(p.padded_to for p in own) for own in ranks)
        assert paid == one.comparison.flat


def test_padded_rows_pay_their_rectangle() -> None:
    bench = Batch.of(uneven(), replace(PLAN))
    lengths = bench.order.lengths
    for ranks in pieces_of("padded"):
        for own in ranks:
            width = max(int(lengths[list(p.rows)].max()) for p in own if p.rows)
            assert [p.padded_to for p in own if p.rows] == [
                len(p.rows) * width for p in own if p.rows
            ]
