"""Several batches of the data: drawn in order, all counted, one measured, the worst judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from packing.rows import Rows
from packing.spec import aligned
from tests.tuning.sweep_cases import FormulaBench, RecordingTask, grpo_rows
from tuning.measure.step import Bench
from tuning.plan.batch import Batch, batch_rows
from tuning.plan.gpus import gpu_named
from tuning.plan.plan import TuningPlan
from tuning.sweep.batches import MOST_BATCHES, OtherBatches, counted, other_batches
from tuning.sweep.pick import recommend
from tuning.sweep.result import SweepResult
from tuning.sweep.roofline import estimate_sweep
from tuning.sweep.run import Sweep

torch.set_num_threads(1)

PLAN = TuningPlan(max_tokens_per_mb=512, prompts_per_step=4)


def data(groups: int = 18) -> Rows:
    """Groups interleaved in the file, every second batch with longer answers."""
    rows = grpo_rows(groups=groups, samples=4)
    longer = Rows.from_lists(
        [[*row, *row[: 12 * (rows.group[i] // 4 % 2)]] for i, row in enumerate(rows)], rows.group
    )
    return longer.take(np.argsort(np.arange(len(longer)) % 4, kind="stable"))


def swept(plan: TuningPlan, rows: Rows, folder: Path, **fields: Any) -> SweepResult:
    batch = batch_rows(rows, plan)
    task = RecordingTask.of(plan, batch, folder)
    object.__setattr__(task, "others", tuple(other_batches(rows, plan)))
    bench = FormulaBench(plan, batch, lambda mode, cap, f: 1e-4 * f["padded_tokens"], **fields)
    Sweep(task, cast(Bench, bench), 60.0, rows.longest).run()
    last = [f["result"] for kind, f in task.events if kind == "result"][-1]
    return SweepResult.from_json(last)


def test_batches_follow_one_another_and_a_last_one_that_is_not_full_is_dropped() -> None:
    rows = data()
    found = [batch_rows(rows, PLAN), *other_batches(rows, PLAN)]
    assert [np.unique(b.group).tolist() for b in found] == [
        list(range(start, start + 4)) for start in (0, 4, 8, 12)
    ]
    for one in found:
        inside = [i for i in range(len(rows)) if rows.group[i] in one.group]
        assert [list(row) for row in one] == [list(rows[i]) for i in inside], "file order"
    many = other_batches(grpo_rows(groups=50, samples=2), replace(PLAN, prompts_per_step=2))
    assert len(many) == MOST_BATCHES - 1


def test_samples_and_length_are_cut_in_every_batch() -> None:
    plan = replace(PLAN, samples_per_prompt=2, max_new_tokens=60)
    for one in other_batches(data(), plan):
        assert set(np.bincount(one.group)[np.unique(one.group)]) == {2}
        assert one.longest <= 60


def test_a_plan_that_takes_all_prompts_has_one_batch() -> None:
    rows = data()
    whole = replace(PLAN, prompts_per_step=0)
    assert other_batches(rows, whole) == []
    measured = counted(Batch.of(rows, whole), whole, 512)
    others = OtherBatches.of(whole, [])
    assert others.counted(measured) is measured and others.total == 1
    assert others.note(rows) == () and others.measured_name(rows) == ""


def test_counts_are_those_of_every_batch_by_itself(tmp_path: Path) -> None:
    rows = data()
    result = swept(PLAN, rows, tmp_path)
    assert result.n_batches == 4
    assert result.measured_batch == "the first of 4 batches (groups 0 to 3)"
    assert any("Steps are measured on the first of 4 batches" in note for note in result.notes)
    every = [batch_rows(rows, PLAN), *other_batches(rows, PLAN)]
    timed = [p for p in result.points if p.step_s]
    assert timed
    for point in timed:
        cap = point.max_tokens_per_mb
        alone = [counted(Batch.of(b, TuningPlan()), TuningPlan(), cap) for b in every]
        assert point.n_trees == alone[0].n_trees
        assert point.mean_n_trees == pytest.approx(np.mean([a.n_trees for a in alone]))
        assert point.worst_n_trees == max(a.n_trees or 0 for a in alone)
        paid = [a.padded_token_ratio or 0.0 for a in alone]
        assert point.mean_padded_token_ratio == pytest.approx(np.mean(paid))
        assert point.worst_padded_token_ratio == pytest.approx(max(paid))
        ratios = [a.tree_token_ratio or 0.0 for a in alone]
        assert point.worst_tree_token_ratio == pytest.approx(max(ratios))
    reached = [p for p in timed if p.mean_predicted_s is not None]
    assert reached, "the model reaches some"
    for point in reached:
        assert point.worst_predicted_s == pytest.approx(
            1e-4 * point.max_tokens_per_mb * (point.worst_n_trees or 0), rel=0.1
        )


def test_without_other_batches_nothing_is_added(tmp_path: Path) -> None:
    result = swept(replace(PLAN, prompts_per_step=0), data(), tmp_path)
    assert result.n_batches == 1 and result.measured_batch == ""
    for point in result.points:
        assert all(getattr(point, name) is None for name in vars(point) if "worst" in name)


def test_a_cap_below_the_longest_row_of_all_the_data_is_refused(tmp_path: Path) -> None:
    rows = data()
    plan = replace(PLAN, caps=(128, 256, 512))
    assert batch_rows(rows, plan).longest <= 256 < rows.longest + 128
    longest = 300
    row = np.arange(longest)
    more = Rows.from_lists([*rows, row], [*rows.group, 17])  # in the group that is dropped
    result = swept(plan, more, tmp_path)
    refused = {p.max_tokens_per_mb: p.message for p in result.points if p.refused}
    assert set(refused) == {128, 256}
    assert f"Sequence length {longest} exceeds max_tokens_per_tree 256" in refused[256]


def test_a_batch_that_accumulates_gradients_needs_more_memory(tmp_path: Path) -> None:
    """The first batch is one tree at this cap, others are two: gradients come on top."""
    rows = data()
    cap = aligned(Batch.of(rows, PLAN).trie.n_tokens, 128)
    plan = replace(PLAN, caps=(cap, cap + 1024))
    for name in "ab":
        (tmp_path / name).mkdir()
    free = swept(plan, rows, tmp_path / "a", gradient_bytes=1000, budget=2**30)
    first = free.points[0]
    assert first.n_trees == 1 and (first.worst_n_trees or 0) > 1
    assert first.worst_memory_bytes == (first.memory_bytes or 0) + 1000
    assert free.points[1].worst_n_trees == 1
    assert free.points[1].worst_memory_bytes == free.points[1].memory_bytes
    budget = 1000 * cap + 100_000
    tight = swept(plan, rows, tmp_path / "b", gradient_bytes=400_000, budget=budget)
    first = tight.points[0]
    assert (first.memory_bytes or 0) <= budget < (first.worst_memory_bytes or 0)
    assert first.fits is False and first.step_s is None and first.logp_s is None
    assert first.message.startswith("the worst batch needs 0.00 GiB")


def test_the_margin_of_the_pick_is_that_of_the_worst_batch(tmp_path: Path) -> None:
    free = swept(PLAN, data(), tmp_path)
    assert free.pick is not None
    points = [
        replace(p, worst_memory_bytes=10**9) if p.step_s else p
        for p in free.points
        if p.max_tokens_per_mb >= free.pick.max_tokens_per_mb
    ]
    pick = recommend(points, {}, 10**9)
    assert pick is not None and "on the worst batch" in pick.reason
    assert "hardly any margin" in pick.reason


def test_an_estimate_for_another_gpu_is_over_all_batches_too() -> None:
    rows = data()
    gpu = gpu_named("h100-80")
    assert gpu is not None
    others = other_batches(rows, PLAN)
    result = estimate_sweep(batch_rows(rows, PLAN), PLAN, gpu, rows.longest, others)
    timed = [p for p in result.points if p.step_s]
    assert timed and result.n_batches == 4
    for point in timed:
        assert point.mean_predicted_s is not None and point.worst_predicted_s is not None
        assert point.worst_predicted_s >= max(point.mean_predicted_s, point.step_s or 0.0)
        assert point.worst_n_trees is not None and point.worst_n_trees >= (point.n_trees or 0)
    alone = estimate_sweep(batch_rows(rows, PLAN), PLAN, gpu, rows.longest)
    assert {p.mean_predicted_s for p in alone.points} == {None}
