"""Advice: its figures are the simulation's, its words follow from them, a time goes first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from packing.batch.refusal import BatchRefused
from packing.rows import Rows
from packing.sources.load import load
from packing.sources.spec import SourceSpec
from tests.packing.strategies import any_rows
from tests.tuning.sweep_cases import grpo_rows
from tuning.advice import Advice, advise, known_sweep, verdict_of
from tuning.areal.config import ArealConfig
from tuning.cli import app
from tuning.jobs.points import Point, Question
from tuning.plan.batch import Batch
from tuning.plan.plan import Layout, TuningPlan
from tuning.sweep.result import Candidate, Kind, Pick, SweepResult

PLAN = TuningPlan(max_tokens_per_mb=512)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch.of(grpo_rows(), PLAN)


def sweep_of(
    *measured: int, picked: int, spread: float = 0.01, layout: Layout = "tree"
) -> SweepResult:
    """A sweep in which so many caps have a time; ``spread``: of the pick's, to either side."""
    points = tuple(
        Candidate(
            cap,
            step_s=1.0,
            step_kind="measured" if cap in measured else "estimated",
            low_s=1.0 - spread,
            high_s=1.0 + spread,
            fits=True,
        )
        for cap in (256, 384, 512, 640)
    )
    flat = Candidate(512, step_s=2.0, step_kind="measured", fits=True)
    kind: Kind = "measured" if picked in measured else "estimated"
    pick = Pick(layout, picked, "It is so.", 2.0, 1.0, kind)
    model = "tiny: 188,992 parameters"
    return SweepResult(points, {"flat": flat}, pick, 0.02, model, "H200", 100, 50)


@settings(max_examples=60, deadline=None)
@given(
    any_rows, st.sampled_from([1, 20]), st.sampled_from([1, 2]), st.sampled_from([128, 256, 1024])
)
def test_the_figures_are_the_simulations_and_the_words_follow(
    lists: list[list[int]], longer: int, dp: int, cap: int
) -> None:
    rows = Rows.from_lists([row * longer for row in lists], group=np.arange(len(lists)) // 2)
    plan = TuningPlan(dp_size=dp, max_tokens_per_mb=cap)
    batch = Batch.of(rows, plan)
    advice = advise(batch, plan)
    json.loads(json.dumps(advice.to_json(), allow_nan=False))
    assert advice.text().startswith(advice.headline) and "None" not in advice.text()
    try:
        simulation = batch.simulation(plan)
    except BatchRefused as refused:
        assert (advice.answer, advice.next_step) == ("refused", "mend")
        assert advice.figures["paid"] is None and refused.mend in advice.text()
        return
    paid = simulation.comparison
    assert advice.figures["paid_tokens"] == paid.tree == advice.losses[-1].total
    assert advice.figures["flat_tokens"] == paid.flat
    best = advice.recommended
    assert best is not None and best.kind == "counted" and best.max_tokens_per_mb <= cap
    assert best.paid_tokens is not None
    base = paid.flat or paid.padded
    if advice.answer == "nothing to gain":
        assert simulation.ideal_tokens >= 0.9 * min(base, rows.n_tokens)
        assert best.layout != "tree" and advice.next_step == "leave off"
    elif advice.answer == "worth it":
        there = batch.simulation(plan, best.max_tokens_per_mb)
        assert there.paid_tokens == best.paid_tokens <= 1.01 * paid.tree
        assert there.paid_tokens < 0.9 * (there.comparison.flat or there.comparison.padded)
        again = advise(batch, replace(plan, max_tokens_per_mb=best.max_tokens_per_mb))
        assert again.recommended is not None
        assert again.recommended.max_tokens_per_mb == best.max_tokens_per_mb
        assert "fewer tokens" in advice.sentence and "× fewer" not in advice.text()


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ([[1] * 60], "nothing to gain"),
        ([[k] * 60 for k in range(1, 9)], "nothing to gain"),
        ([[1] * 50 + [k] * 10 for k in range(2, 40)], "worth it"),
        ([[1] * 100 + [k] * 100 for k in range(2, 5)], "not worth it"),
    ],
    ids=["one row", "nothing shared", "much shared", "shared, but lost in padding"],
)
def test_the_answer(rows: list[list[int]], answer: str) -> None:
    batch = Batch.of(Rows.from_lists(rows), replace(PLAN, max_tokens_per_mb=1024))
    plan = replace(PLAN, max_tokens_per_mb=2048 if answer == "not worth it" else 1024)
    simulation = batch.simulation(plan)
    assert verdict_of(simulation).answer == answer, simulation.comparison


def test_a_counted_cap_is_no_larger_than_the_one_in_use(batch: Batch) -> None:
    advice = advise(batch, PLAN)
    assert advice.recommended is not None
    every = {cap: batch.simulation(PLAN, cap).paid_tokens for cap in range(256, 513, 128)}
    least = min(every.values())
    near = [cap for cap, tokens in every.items() if tokens <= 1.01 * least]
    assert advice.recommended.max_tokens_per_mb == max(near)
    assert "Nothing was timed" in advice.recommended.rests_on


@pytest.mark.parametrize(
    ("sweep", "step", "says"),
    [
        (sweep_of(256, 384, 512, picked=512), "export", "model tiny: 188,992 parameters"),
        (sweep_of(256, 384, 512, picked=384), "use", "on H200"),
        (sweep_of(512, picked=512), "measure more", "only 1 cap of 4 timed"),
        (sweep_of(256, 384, 512, picked=512, spread=0.5), "measure more", "varies by ±50%"),
        (sweep_of(picked=512), "measure", "Nothing was measured there"),
        (sweep_of(256, picked=512, layout="flat"), "leave off", "It is so."),
    ],
)
def test_what_a_sweep_knows_goes_first_and_says_how_sure_it_is(
    batch: Batch, sweep: SweepResult, step: str, says: str
) -> None:
    advice = advise(batch, PLAN, sweep)
    assert advice.recommended is not None and advice.next_step == step
    assert says in advice.recommended.rests_on
    assert (advice.answer == "worth it") is (step != "leave off")


def test_hours_saved_are_those_of_all_devices(batch: Batch) -> None:
    plan = replace(PLAN, dp_size=2, tp_size=2)
    advice = advise(batch, plan, sweep_of(256, 384, 512, picked=512), price=3.0)
    assert advice.figures["saved_hours"] == pytest.approx(1000 * 1.0 * 4 / 3600)
    assert "1.11 GPU-hours" in advice.saved and "3.33 at 3 an hour" in advice.saved
    assert "measured" in advice.saved and advise(batch, plan).saved == ""


def test_points_of_the_history_are_enough(batch: Batch) -> None:
    asked: list[tuple[Layout, int, float]] = [
        ("tree", 512, 1.0),
        ("tree", 384, 2.0),
        ("flat", 512, 3.0),
    ]
    data = batch.rows.fingerprint
    points = [
        Point(Question.of(PLAN, layout, cap, data, "cpu", "2"), "measured", step_s=step)
        for layout, cap, step in asked
    ]
    sweep = known_sweep(batch, PLAN, None, points)
    assert sweep is not None and sweep.pick is not None and sweep.machine == "cpu"
    assert (sweep.pick.max_tokens_per_mb, sweep.pick.speedup_vs_flat) == (512, 3.0)
    assert known_sweep(batch, PLAN, None, []) is None


def test_the_command_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path))
    source, config = SourceSpec("sample", "math-grpo"), Path("examples/grpo.yaml")
    words = ["advise", "sample:math-grpo", "--config", str(config), "--cap", "4096", "--json"]
    done = CliRunner().invoke(app, [*words, "--fail-if", "paid>0.5", "--fail-if", "trees<1"])
    plan = TuningPlan(
        source,
        64,
        8,
        4,
        max_tokens_per_mb=4096,
        model="Qwen/Qwen3-1.7B",
        gradient_checkpointing=True,
        max_new_tokens=1024,
        dtype="bfloat16",
    )
    own = advise(Batch.of(load(source).rows, plan), plan, config=ArealConfig.read(config))
    assert isinstance(own, Advice) and "-    max_tokens_per_mb: 8192" in own.changes
    told = json.loads(done.stdout)
    assert told.pop("broken_gates") == [f"paid>0.5: paid is {own.figures['paid']:.10g}."]
    assert done.exit_code == 1 and told == json.loads(json.dumps(own.to_json()))
    refused = CliRunner().invoke(app, ["advise", "sample:math-grpo", "--cap", "128"])
    assert refused.exit_code == 1 and "choose max_tokens_per_mb 1,664" in refused.stdout
    wrong = CliRunner().invoke(app, ["advise", "sample:math-grpo", "--fail-if", "nope>1"])
    assert wrong.exit_code == 1 and "nope is no figure" in wrong.stderr
