"""Batch: what a plan draws, and what AReaL does with it under the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from packing.batch.pipeline import simulate
from packing.batch.spec import BatchSpec
from packing.packers.flat import PaddingRule
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tuning.plan.batch import (
    Batch,
    CurvePoint,
    batch_rows,
    batch_spec,
    mended,
    sample_index,
    smallest_cap,
)
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


def test_the_simulation_is_the_plans_own_and_is_kept() -> None:
    rows = made_rows()
    plan = TuningPlan(
        dp_size=3, ppo_n_minibatches=2, dispatch="spmd", max_tokens_per_mb=256, packer="areal"
    )
    batch = Batch.of(rows, plan)
    simulation = batch.simulation(plan)
    assert batch.simulation(plan) is simulation
    direct = simulate(rows, BatchSpec(256, 3, 2, "spmd"))
    assert simulation.figures() == direct.figures()
    assert batch.simulation(plan, 512).spec.max_tokens_per_mb == 512


def test_prompts_arrive_in_random_order_and_areal_sorts_them() -> None:
    plan = TuningPlan(max_tokens_per_mb=256)
    same_size = Batch.of(Rows.from_lists([[g, 1, 2] for g in range(9)], list(range(9))), plan)
    fed = [same_size.shuffled(plan, seed).packing.arrival.tolist() for seed in range(3)]
    assert fed[0] == same_size.shuffled(plan, 0).packing.arrival.tolist() != fed[1]
    sizes = Batch.of(Rows.from_lists([[g] * (g + 1) for g in range(9)], list(range(9))), plan)
    fed = [sizes.shuffled(plan, seed).packing.arrival.tolist() for seed in range(3)]
    assert fed[0] == fed[1] == fed[2] == list(range(8, -1, -1))


def test_a_batch_refuses_a_plan_that_draws_another() -> None:
    plan = TuningPlan(prompts_per_step=4)
    batch = Batch.of(made_rows(), plan)
    assert batch.simulation(replace(plan, dp_size=2, max_tokens_per_mb=256)).n_trees
    for other in ({"prompts_per_step": 8}, {"samples_per_prompt": 2}, {"max_new_tokens": 9}):
        with pytest.raises(ValueError, match="drawn by another plan"):
            batch.simulation(replace(plan, **other))  # type: ignore[arg-type]


def test_a_refusal_has_a_mend_that_a_plan_can_take() -> None:
    plan = TuningPlan(dp_size=7)
    batch = Batch.of(made_rows(), plan)
    refused = batch.refusal(plan)
    assert refused is not None and batch.refusal(replace(plan, dp_size=6)) is None
    for fix in refused.fixes:
        changed = mended(plan, fix)
        assert Batch.of(made_rows(), changed).refusal(changed) is None, fix


def test_caps_run_from_the_longest_row_to_one_tree() -> None:
    plan = TuningPlan()
    batch = Batch.of(made_rows(), plan)
    caps = batch.caps(plan, 48)
    assert caps[0] == smallest_cap(batch.rows, plan)
    assert batch.simulation(plan, caps[-1]).n_trees == 1
    assert all(c % 128 == 0 for c in caps) and caps == sorted(set(caps))
    point = CurvePoint.of(batch.simulation(plan, caps[0]))
    assert point.paid_tokens == point.n_run * caps[0]
    assert point.flat == batch.simulation(plan, caps[0]).comparison.flat


@pytest.mark.parametrize(
    ("fields", "padding"),
    [
        ({"engine": "fsdp"}, PaddingRule()),
        ({"engine": "megatron", "tp_size": 4}, PaddingRule.megatron(4)),
        (
            {"engine": "archon", "model": "Qwen/Qwen3-8B", "dtype": "bfloat16"},
            PaddingRule.archon(4096, 2),
        ),
        ({"engine": "archon", "model": "nobody/knows", "tp_size": 2}, PaddingRule(False, 4)),
    ],
)
def test_the_flat_baseline_is_padded_by_the_plans_engine(
    fields: dict[str, Any], padding: PaddingRule
) -> None:
    assert batch_spec(TuningPlan(**fields)).padding == padding


def test_divergences_name_what_keeps_rows_apart() -> None:
    tail = list(range(100, 200))
    rows = Rows.from_lists([[1, 2, 50 + i, *tail, 7 + i] for i in range(6)])
    (found, *_) = Batch(rows, PrefixOrder.of(rows)).divergences(TuningPlan(max_tokens_per_mb=1024))
    assert found.position == 2 and found.equal_tokens >= 100
    assert found.tree_tokens[1] < found.tree_tokens[0]
