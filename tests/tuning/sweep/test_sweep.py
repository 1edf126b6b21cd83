"""A sweep measures where it matters, answers from the history, and never dresses up an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from tests.tuning.sweep_cases import Cost, FormulaBench, RecordingTask, grpo_rows
from tuning.jobs.points import Point
from tuning.measure.step import Bench
from tuning.plan.plan import Layout, TuningPlan
from tuning.sweep.result import SweepResult
from tuning.sweep.run import Sweep

torch.set_num_threads(1)

PLAN = TuningPlan(max_tokens_per_mb=512)


def cost(mode: Layout, cap: int, features: Mapping[str, float]) -> float:
    """A step with an overhead per micro-batch, and large micro-batches a little dear."""
    slow = 1 + cap / 20_000
    return slow * (
        0.02
        + 0.004 * features["micro_batches"]
        + 2e-5 * features["padded_tokens"]
        + 2e-9 * features["visited_area"]
    )


def swept(
    folder: Path, bench: FormulaBench, plan: TuningPlan = PLAN, budget_s: float = 60.0
) -> tuple[RecordingTask, SweepResult]:
    task = RecordingTask.of(plan, bench.rows, folder)
    Sweep(task, cast(Bench, bench), budget_s).run()
    return task, result_of(task)


def result_of(task: RecordingTask) -> SweepResult:
    last = [fields["result"] for kind, fields in task.events if kind == "result"][-1]
    return SweepResult.from_json(last)


def bench(cost_of: Cost = cost, plan: TuningPlan = PLAN, **fields: Any) -> FormulaBench:
    return FormulaBench(plan, grpo_rows(groups=24, samples=4), cost_of, **fields)


def test_the_pick_is_as_good_as_measuring_all(tmp_path: Path) -> None:
    made = bench()
    _, result = swept(tmp_path, made)
    assert len(result.points) >= 8 and result.finished
    every = {
        p.max_tokens_per_mb: cost(
            "tree", p.max_tokens_per_mb, made.share("tree", p.max_tokens_per_mb).features
        )
        for p in result.points
    }
    assert result.pick is not None
    assert every[result.pick.max_tokens_per_mb] <= 1.03 * min(every.values())
    assert result.holdout_error is not None and result.holdout_error < 0.1
    timed = [cap for mode, cap in made.asked if mode == "tree"]
    assert timed[:2] == [min(every), max(every)], "ends first"
    assert len(timed) == len(set(timed))


def test_candidates_are_aligned_and_start_at_the_longest_row(tmp_path: Path) -> None:
    made = bench()
    _, result = swept(tmp_path, made)
    caps = [p.max_tokens_per_mb for p in result.points]
    assert all(cap % 128 == 0 for cap in caps) and caps == sorted(caps)
    assert min(caps) - 128 < made.rows.longest <= min(caps)
    assert max(caps) >= made.batch.trie.n_tokens


def test_a_second_sweep_measures_nothing_and_says_from_when(tmp_path: Path) -> None:
    first, _ = swept(tmp_path, bench())
    kept = len(first.store.entries())
    again = bench()
    task, result = swept(tmp_path, again)
    assert again.asked == [] and len(task.store.entries()) == kept
    known = [fields for kind, fields in task.events if kind == "point"]
    assert known and all(fields["known"] for fields in known)
    measured = [p for p in result.points if p.step_kind == "measured"]
    assert measured and {p.known_from for p in measured} == {"2026-01-01"}


def test_a_stopped_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    class Stopped(RuntimeError):
        pass

    first = bench()
    honest = first.measure

    def until_three(*args: Any, **fields: Any) -> Point:
        if len(first.asked) == 3:
            raise Stopped
        return honest(*args, **fields)

    first.measure = until_three  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        swept(tmp_path, first)
    second = bench()
    _, result = swept(tmp_path, second)
    assert not set(first.asked) & set(second.asked)
    assert result.finished and result.pick is not None


def test_what_does_not_fit_has_no_speed_and_ends_the_range(tmp_path: Path) -> None:
    made = bench(budget=700_000)  # 700 tokens
    _, result = swept(tmp_path, made)
    beyond = [p for p in result.points if p.fits is False]
    assert beyond and all(p.step_s is None for p in beyond)
    assert min(p.max_tokens_per_mb for p in beyond) > 640
    inside = [p for p in result.points if p.fits]
    assert len(inside) >= 4, "the candidates are spread over what fits"
    assert result.pick is not None and result.pick.max_tokens_per_mb <= 640


def test_out_of_memory_at_a_cap_rules_out_larger_ones(tmp_path: Path) -> None:
    made = bench(plan=(plan := replace(PLAN, caps=(256, 512, 768, 1024, 1280))), budget=600_000)
    made.bytes_per_token = 1000
    # The first peak is small, so that the sweep believes that the largest fits.
    honest = made.measure

    def small_first(mode: Layout, cap: int, *args: Any, **fields: Any) -> Point:
        point = honest(mode, cap, *args, **fields)
        return replace(point, memory_bytes=1000) if cap == 256 else point

    made.measure = small_first  # type: ignore[method-assign]
    _, result = swept(tmp_path, made, plan)
    by_cap = {p.max_tokens_per_mb: p for p in result.points}
    assert by_cap[1280].fits is False and "does not fit" in by_cap[1280].message
    assert all(by_cap[cap].step_s is None for cap in by_cap if by_cap[cap].fits is False)


def test_a_step_run_in_part_stays_an_estimate(tmp_path: Path) -> None:
    def dear_flat(mode: Layout, cap: int, features: Mapping[str, float]) -> float:
        return 1000.0 if mode == "flat" else cost(mode, cap, features)

    _, result = swept(tmp_path, bench(dear_flat))
    flat = result.baselines["flat"]
    assert flat is not None and (flat.step_s, flat.step_kind) == (1000.0, "estimated")
    assert result.pick is not None and "flat packing (estimated)" in result.pick.reason


def test_no_time_left_leaves_the_others_to_the_model(tmp_path: Path) -> None:
    def slow(mode: Layout, cap: int, features: Mapping[str, float]) -> float:
        return 100 * cost(mode, cap, features)

    made = bench(slow)
    _, result = swept(tmp_path, made, budget_s=20.0)
    kinds = {p.step_kind for p in result.points}
    assert "estimated" in kinds
    assert len([a for a in made.asked if a[0] == "tree"]) < len(result.points)


def test_refused_caps_are_shown_as_refused(tmp_path: Path) -> None:
    made = bench(plan=(plan := replace(PLAN, caps=(128, 256, 512))))
    assert 128 < made.rows.longest <= 256
    _, result = swept(tmp_path, made, plan)
    first = result.points[0]
    assert first.refused and first.fits is False and first.step_s is None
    assert f"Sequence length {made.rows.longest} exceeds" in first.message or first.message
    assert ("tree", 128) not in made.asked


def test_a_question_that_killed_two_workers_is_not_asked_again(tmp_path: Path) -> None:
    made = bench()
    task = RecordingTask.of(PLAN, made.rows, tmp_path)
    sweep = Sweep(task, cast(Bench, made), 60.0)
    low = min(sweep.board.features)
    for _ in range(2):
        task.store.add("old", PLAN, Point(made.question("tree", low), "crashed"))
    sweep.run()
    assert ("tree", low) not in made.asked
    first = result_of(task).points[0]
    assert first.fits is False and "died 2 times" in first.message


def test_the_run_off_times_the_fastest_and_their_rival_in_turn(tmp_path: Path) -> None:
    _, result = swept(tmp_path, bench())
    assert result.pick is not None
    picked = next(p for p in result.points if p.max_tokens_per_mb == result.pick.max_tokens_per_mb)
    assert picked.repeats == 5
    flat = result.baselines["flat"]
    assert flat is not None and flat.repeats in (3, 5)


def test_a_step_timed_in_a_busy_spell_is_heard_again(tmp_path: Path) -> None:
    """The machine is a fifth slower while the largest cap is timed, which is the fastest."""

    class BusyAtFirst(FormulaBench):
        def measure(self, mode: Layout, cap: int, *given: Any) -> Point:
            point = super().measure(mode, cap, *given)
            busy = (mode, cap) == ("tree", largest)
            return replace(point, step_s=(point.step_s or 0.0) * (1.2 if busy else 1.0))

        def in_turn(self, points: list[Point], rounds: int, *given: Any) -> list[Point]:
            asked = [(p.question.mode, p.question.max_tokens_per_mb) for p in points]
            return [FormulaBench.measure(self, mode, cap) for mode, cap in asked]

    def cheaper_when_large(mode: Layout, cap: int, features: Mapping[str, float]) -> float:
        return 1.0 + 0.05 * features["micro_batches"] if mode == "tree" else 9.0

    plan = bench().plan
    made = BusyAtFirst(plan, bench().rows, cheaper_when_large)
    task = RecordingTask.of(plan, made.rows, tmp_path)
    sweep = Sweep(task, cast(Bench, made), 60.0)
    largest = max(sweep.board.features)
    sweep.run()
    pick = result_of(task).pick
    assert pick is not None
    steps = {p.max_tokens_per_mb: p.step_s for p in result_of(task).points}
    assert steps[pick.max_tokens_per_mb] == min(s for s in steps.values() if s)
    assert steps[largest] == pytest.approx(
        cheaper_when_large("tree", largest, made.share("tree", largest).features)
    )


def test_real_steps_of_the_tiny_model(tmp_path: Path) -> None:
    rows = grpo_rows(groups=4, samples=3, top=5000)
    plan = replace(PLAN, caps=(256, 512, 640))
    task = RecordingTask.of(plan, rows, tmp_path)
    Sweep(task, Bench(plan, rows), 3600.0).run()
    result = result_of(task)
    assert [p.step_kind for p in result.points] == ["measured"] * 3
    for point in (*result.points, *result.baselines.values()):
        assert point is not None and point.step_s and point.low_s and point.high_s
        assert point.low_s <= point.step_s <= point.high_s
        assert (point.memory_bytes or 0) > 0 and point.memory_kind == "measured"
    assert result.notes[0] == "token ids folded into a vocabulary of 1,024"
    assert "tiny" in result.model and result.pick is not None
    messages = [f["message"] for kind, f in task.events if kind == "progress"]
    assert any(m.startswith("cap 256 · repeat 1 of ") and m.endswith(" left") for m in messages)
    losses = {
        e.point.question.mode: e.point.loss
        for e in task.store.entries()
        if e.point.outcome == "measured"
    }
    assert set(losses) == {"tree", "flat", "padded"}
    assert losses == pytest.approx(dict.fromkeys(losses, losses["flat"]), rel=0.05, abs=0.01)
