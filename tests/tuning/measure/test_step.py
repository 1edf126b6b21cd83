"""A measured point: the same training in every mode, honest refusals, parts that say so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.model import MicroBatch, StepOptions, StepOutOfMemory, StepResult, accumulate_gradients
from packing.rows import Rows
from tests.tuning.sweep_cases import grpo_rows
from tuning.measure.batch import Prepared
from tuning.measure.shares import folded
from tuning.measure.step import Bench
from tuning.plan.plan import Layout, TuningPlan
from tuning.sweep.costmodel import MemoryFit

torch.set_num_threads(1)

MODES: tuple[Layout, ...] = ("tree", "flat", "padded")
PLAN = TuningPlan(max_tokens_per_mb=512)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(PLAN, grpo_rows(top=900))


def gradients(bench: Bench, mode: Layout, cap: int) -> tuple[float, dict[str, torch.Tensor]]:
    bench.model.zero_grad(set_to_none=True)
    loss, _ = accumulate_gradients(
        bench.model, bench.share(mode, cap).batches, bench.data, StepOptions()
    )
    return loss, {
        n: p.grad.clone() for n, p in bench.model.named_parameters() if p.grad is not None
    }


@pytest.mark.parametrize("packer", ["areal", "prefix-aware"])
def test_loss_and_gradients_are_those_of_flat_rows_in_every_mode(packer: str) -> None:
    made = Bench(replace(PLAN, packer=packer), grpo_rows(top=900))  # type: ignore[arg-type]
    expected_loss, expected = gradients(made, "flat", 512)
    others: tuple[tuple[Layout, int], ...] = (("tree", 256), ("tree", 2048), ("padded", 512))
    for mode, cap in others:
        loss, found = gradients(made, mode, cap)
        assert loss == pytest.approx(expected_loss, rel=1e-5, abs=1e-7)
        for name, gradient in expected.items():
            scale = float(gradient.abs().max())
            torch.testing.assert_close(found[name], gradient, rtol=0, atol=2e-5 * scale)


def test_a_point_counts_and_times_whole_steps(bench: Bench) -> None:
    heard: list[tuple[int, int]] = []
    point = bench.measure("tree", 512, repeat_s=0.0, progress=lambda *r: heard.append(r))
    assert point.outcome == "measured" and point.repeats == 2
    assert heard == [(0, 0), (1, 1), (2, 2)]
    assert point.step_s is not None and point.step_s > 0
    assert set(point.phases_s) == {
        "packing", "inputs", "mask", "forward", "backward", "optimizer",
    }  # fmt: skip
    assert sum(point.phases_s.values()) <= 1.5 * point.step_s
    assert point.original_tokens == bench.batch.rows.n_tokens
    assert point.n_trees == bench.batch.simulation(bench.plan, 512).n_trees
    assert point.tree_tokens == bench.batch.simulation(bench.plan, 512).tree_tokens
    assert point.padded_tokens == 512 * point.n_trees
    assert point.features["micro_batches"] == point.n_trees
    assert point.versions["threads"] == str(torch.get_num_threads())
    assert "load" in point.versions and point.memory_bytes and point.memory_bytes > 0


def test_the_logp_pass_is_timed_beside_every_step(bench: Bench) -> None:
    point = bench.measure("tree", 512, repeat_s=0.0)
    assert point.step_s and point.logp_s and point.logp_p20_s and point.logp_p80_s
    assert 0 < point.logp_p20_s <= point.logp_s <= point.logp_p80_s
    assert bench.model.training and all(p.grad is not None for p in bench.model.parameters())
    assert bench.in_turn([point], 2)[0].logp_s == point.logp_s


def test_the_logp_pass_packs_the_whole_batch_before_minibatches() -> None:
    made = Bench(replace(PLAN, ppo_n_minibatches=4), grpo_rows(groups=12, top=900))
    for mode in MODES:
        prepared = made.prepared(made.blank(mode, 512))
        assert isinstance(prepared, Prepared)
        assert len(prepared.share.minibatches) == 4 and len(prepared.logp.minibatches) == 1
        rows = sorted(r for b in prepared.logp.batches for r in b.layout.rows.tolist())
        assert rows == list(range(len(made.batch.rows)))
    chain = made.batch.simulation(made.plan, 512)
    trees = made.logp_share("tree", 512)
    assert trees.n_trees == chain.compute_logp.trees_per_rank
    assert trees.tree_tokens == chain.compute_logp.tree_tokens
    assert trees.n_trees < made.share("tree", 512).n_trees, "siblings stay together"


def test_a_share_of_several_ranks_says_that_it_ran_alone() -> None:
    point = Bench(replace(PLAN, dp_size=2), grpo_rows()).measure("tree", 512, repeat_s=0.0)
    assert point.outcome == "measured"
    (note,) = point.notes
    assert "slowest of 2 ranks, run alone on one device" in note and "not divided" in note


def test_a_cap_below_the_longest_row_is_refused_in_areals_words(bench: Bench) -> None:
    point = bench.measure("tree", 128)
    longest = bench.batch.rows.longest
    assert point.outcome == "refused" and point.step_s is None
    assert "exceeds max_tokens_per_tree 128" in point.message
    assert any(str(n) in point.message for n in bench.batch.rows.lengths if n > 128)
    assert longest > 128


def test_several_ranks_run_the_dummy_trees_that_they_wait_for() -> None:
    rows = grpo_rows(groups=4, samples=3)
    # One group is long: its rank has more trees, and is the one that is timed.
    long = Rows.from_lists(
        [list(row) * (3 if rows.group[i] == 0 else 1) for i, row in enumerate(rows)], rows.group
    )
    plan = TuningPlan(dp_size=2, ppo_n_minibatches=2)
    made = Bench(plan, long)
    share = made.share("tree", 512)
    chain = made.batch.simulation(plan, 512)
    assert [len(m) for m in share.minibatches] == [p.trees_per_rank for p in chain.ppo_update]
    assert all(b.padded_tokens == 512 for b in share.batches)
    assert share.features["steps"] == 2
    ours = Bench(replace(plan, dp_size=1, packer="prefix-aware"), long).share("tree", 512)
    assert all(b.layout.n_tokens > 0 for b in ours.batches)


def test_a_dummy_tree_is_run_and_changes_nothing() -> None:
    from packing.batch.simulation import BatchSimulation
    from tuning.measure.shares import share_of

    made = Bench(PLAN, grpo_rows())
    chain = made.batch.simulation(PLAN, 512)
    rank = replace(chain.ppo_update[0].ranks[0], dummies=2)
    waiting: BatchSimulation = replace(
        chain, ppo_update=(replace(chain.ppo_update[0], ranks=(rank,)),)
    )
    share = share_of(made.read, waiting, "tree")
    assert [b.layout.n_tokens for b in share.batches[-2:]] == [0, 0]
    loss, _ = gradients(made, "tree", 512)
    with_dummies, results = accumulate_gradients(made.model, share.batches, made.data)
    assert with_dummies == pytest.approx(loss, rel=1e-6)
    assert len(results) == rank.n_trees + 2


def test_a_step_too_long_for_the_time_is_run_in_part_and_says_so(bench: Bench) -> None:
    part = bench.measure("flat", 256, limit_s=1e-6)
    assert part.outcome == "estimated" and part.repeats == 0 and part.loss is None
    assert part.step_s and part.p20_s and part.p80_s
    assert part.p20_s <= part.step_s <= part.p80_s
    count = int(part.features["micro_batches"])
    assert part.message.startswith(f"1 of {count} micro-batches were run")


def test_more_time_runs_more_of_it_and_scales_less(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def one_second_each(self: Bench, batches: list[MicroBatch]) -> StepResult:
        ran.append(len(batches))
        return StepResult(0.0, (), 0.0, float(sum(b.padded_tokens for b in batches)) / 256)

    monkeypatch.setattr(Bench, "_train", one_second_each)
    count = len(bench.share("tree", 256).batches)
    assert count > 6
    point = bench.measure("tree", 256, limit_s=count - 1.5)
    assert point.outcome == "estimated"
    assert ran[0] == 1 and 2 <= ran[1] < count
    # Every tree is padded alike, so by tokens the scaled step is exact.
    assert point.p20_s is not None and point.p80_s is not None
    assert point.p20_s - 0.2 <= count <= point.p80_s + 0.2


def test_out_of_memory_is_a_result(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Bench, batches: object) -> StepResult:
        raise StepOutOfMemory("backward", 1, "can't allocate")

    monkeypatch.setattr(Bench, "_train", full)
    point = bench.measure("tree", 512)
    assert point.outcome == "out-of-memory" and point.step_s is None
    assert "does not fit: needs more than" in point.message
    assert point.message.endswith("at backward of micro-batch 2")


def test_times_in_turn_replace_times_and_keep_the_rest(bench: Bench) -> None:
    points = [bench.measure("tree", cap, repeat_s=0.0) for cap in (256, 512)]
    again = bench.in_turn(points, 3)
    assert [p.question for p in again] == [p.question for p in points]
    assert [p.repeats for p in again] == [3, 3]
    assert [p.memory_bytes for p in again] == [p.memory_bytes for p in points]


def test_tiny_folds_ids_and_packs_by_the_true_ones() -> None:
    rows = grpo_rows(top=150_000)
    made = Bench(PLAN, rows)
    assert made.model.config.vocab_size == 1024
    assert made.notes == ("token ids folded into a vocabulary of 1,024",)
    point = made.measure("tree", 512, repeat_s=0.0)
    assert point.notes == made.notes
    assert point.question.data == rows.fingerprint
    # Ids that fold onto each other make no branch go away.
    pair = Rows.from_lists([[5, 6, 7], [5, 6, 7 + 1024]])
    share = Bench(PLAN, pair).share("tree", 128)
    assert share.tree_tokens == 4
    assert share.batches[0].layout.input_ids.max() < 1024


def test_folding_keeps_lengths_groups_and_masks() -> None:
    rows = grpo_rows(top=100_000)
    out = folded(rows, 1024)
    assert out.tokens.max() < 1024
    np.testing.assert_array_equal(out.offsets, rows.offsets)
    np.testing.assert_array_equal(out.tokens, rows.tokens % 1024)


def test_memory_is_a_line_through_its_peaks() -> None:
    assert MemoryFit.of({}, 100).fits(5) is None
    one = MemoryFit.of({100: 1000}, 2500)
    assert (one.predict(200), one.fits(250), one.fits(251), one.largest) == (2000, True, False, 250)
    two = MemoryFit.of({100: 1000, 200: 1500}, 2500)
    assert two.predict(300) == 2000 and two.largest == 400
    flat = MemoryFit.of({100: 1000, 200: 900}, 2500)
    assert flat.predict(10_000) == 950 and flat.largest is None
