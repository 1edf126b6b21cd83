"""Evidence is of this very plan and batch, or says that nothing was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packing.batch.refusal import BatchRefused
from packing.rows import Rows
from tuning.export.evidence import evidence_of
from tuning.jobs.points import Point, Question
from tuning.plan.batch import Batch
from tuning.plan.plan import Layout, TuningPlan

ROWS = Rows.from_lists([[1, 2, 3], [1, 2, 4, 5]], [0, 0])
PLAN = TuningPlan(max_tokens_per_mb=128)
BENCH = Batch.of(ROWS, PLAN)


def point(mode: Layout = "tree", **changes: object) -> Point:
    question = Question.of(
        PLAN,
        mode,
        128,
        BENCH.rows.fingerprint,
        "cpu",
        "2.9",
    )
    return Point(
        replace(question, **changes),  # type: ignore[arg-type]
        "measured",
        step_s=2.0,
        original_tokens=7,
        memory_bytes=2**30,
        versions={"torch": "2.9"},
    )


def test_figures_are_those_of_the_batch() -> None:
    found = evidence_of(BENCH, PLAN)
    assert (found.rows, found.tokens, found.measured) == (2, 7, None)
    assert found.packing["trees"] == 1 and found.packing["tree_token_ratio"] == 5 / 7
    assert found.data == ROWS.fingerprint and "numpy" in found.versions


def test_a_measured_step_of_this_plan_is_taken_with_its_flat_one() -> None:
    evidence = evidence_of(BENCH, PLAN, [point("flat"), point()])
    found = evidence.measured
    assert found is not None
    assert (found.step_s, found.tokens_per_s, found.memory_bytes) == (2.0, 3.5, 2**30)
    assert evidence.flat_s == 2.0


@pytest.mark.parametrize(
    "change", [{"max_tokens_per_mb": 256}, {"data": "other"}, {"dp_size": 2}, {"model": "small"}]
)
def test_a_step_of_another_question_is_passed_over(change: dict) -> None:
    assert evidence_of(BENCH, PLAN, [point(**change)]).measured is None


def test_a_flat_step_of_another_machine_is_passed_over() -> None:
    found = evidence_of(BENCH, PLAN, [point("flat", machine="H200"), point()])
    assert found.measured is not None and found.flat_s is None


def test_a_batch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BatchRefused):
        evidence_of(BENCH, replace(PLAN, max_tokens_per_mb=0))
