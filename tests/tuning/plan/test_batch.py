"""The workbench: a plan's batch, and figures that are the packers' own."""

from __future__ import annotations

import numpy as np
import pytest

from packing.packers.areal import RowTooLong, pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tuning.plan.batch import Batch, aligned, batch_plan, batch_rows, sample_index
from tuning.plan.plan import TuningPlan


def made_rows() -> Rows:
    random = np.random.default_rng(5)
    sequences, groups = [], []
    for group in range(12):
        prompt = random.integers(0, 50, 20).tolist()
        for _ in range(4):
            sequences.append(prompt + random.integers(0, 50, random.integers(1, 60)).tolist())
            groups.append(group)
    return Rows.from_lists(sequences, group=groups)


def test_a_batch_is_the_first_prompts_and_their_first_samples() -> None:
    rows = Rows.from_lists([[1], [2], [3], [4], [5]], group=[9, 2, 9, 2, 9])
    plan = TuningPlan(prompts_per_step=1)
    assert [r.tolist() for r in batch_rows(rows, plan)] == [[2], [4]]
    plan = TuningPlan(samples_per_prompt=2)
    assert [r.tolist() for r in batch_rows(rows, plan)] == [[1], [2], [3], [4]]
    assert sample_index(rows.group).tolist() == [0, 0, 1, 1, 2]
    assert batch_rows(rows, TuningPlan()) is rows


def test_rollouts_are_cut_at_max_new_tokens() -> None:
    rows = Rows.from_lists([[1, 2, 3]])
    assert [r.tolist() for r in batch_rows(rows, TuningPlan(max_new_tokens=2))] == [[1, 2]]


def test_figures_are_those_of_the_packers_and_are_kept() -> None:
    bench = Batch.of(made_rows(), TuningPlan())
    packing = bench.packing(128)
    assert packing.tree_of_row.tolist() == pack_areal(bench.order, 128).tree_of_row.tolist()
    assert bench.packing(128) is packing
    assert bench.metrics(128).n_trees == packing.n_trees
    assert bench.packing(128, "prefix-aware").n_trees <= packing.n_trees
    assert bench.bounds(128).trees <= bench.packing(128, "prefix-aware").n_trees
    assert bench.replayed(128).packer == "areal"
    assert bench.row_tokens_per_tree(128).sum() == bench.rows.n_tokens
    shuffled = [bench.shuffled(128, seed).tree_of_row.tolist() for seed in range(3)]
    assert shuffled[0] == bench.shuffled(128, 0).tree_of_row.tolist() != shuffled[1]
    with pytest.raises(RowTooLong):
        bench.packing(16)


def test_caps_run_from_the_longest_row_to_one_tree() -> None:
    bench = Batch.of(made_rows(), TuningPlan())
    caps = bench.caps(128)
    assert caps[0] == aligned(bench.smallest_cap, 128)
    assert bench.metrics(caps[-1]).n_trees == 1
    assert all(c % 128 == 0 for c in caps) and caps == sorted(set(caps))
    point = bench.curve_point(caps[0], "areal")
    assert point.paid_tokens == point.n_trees * caps[0]
    assert bench.curve_point(caps[0], "flat").paid_tokens == bench.comparison(caps[0]).flat


def test_the_chain_follows_the_plan() -> None:
    bench = Batch.of(made_rows(), TuningPlan())
    plan = TuningPlan(dp_size=3, ppo_n_minibatches=2, dispatch="spmd", max_tokens_per_mb=256)
    chain = bench.chain(batch_plan(plan))
    assert len(chain.parts) == 3 and len(chain.ppo_update) == 2
    assert chain.plan.max_tokens_per_mb == 256 and chain.plan.mode == "spmd"
    assert bench.chain(batch_plan(plan, 512)).plan.max_tokens_per_mb == 512


def test_divergences_name_what_keeps_rows_apart() -> None:
    tail = list(range(100, 200))
    rows = Rows.from_lists([[1, 2, 50 + i, *tail, 7 + i] for i in range(6)])
    (found, *_) = Batch(rows, PrefixOrder.of(rows)).divergences(1024)
    assert found.position == 2 and found.equal_tokens >= 100
    assert found.ratio_to < found.ratio_from
