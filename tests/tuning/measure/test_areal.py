"""AReaL's engine in another Python: what is said where there is none, and a real step where it is.

The real step runs where ``scripts/areal_env`` has made an environment (see tests/areal).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.areal.conftest import areal_python  # noqa: F401 - a fixture
from tests.tuning.sweep_cases import grpo_rows
from tuning.measure.areal import ArealBench, areal_in, bench_for
from tuning.plan.plan import TuningPlan

PLAN = TuningPlan(step="areal-espalier", max_tokens_per_mb=512)


def python_that_says(folder: Path, words: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{words}'\n")
    path.chmod(0o755)
    return str(path)


def test_versions_are_what_that_python_says(tmp_path: Path) -> None:
    found = areal_in(python_that_says(tmp_path, '{"areal": "2.0.0", "torch": "2.10"}'))
    assert found == {"areal": "2.0.0", "torch": "2.10"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("hello", "is no Python that runs"),
        ('{"torch": "2.10"}', "has no AReaL: install areal==1.0.4 there"),
        ('{"areal": "1.0.4"}', "has no torch"),
        ('{"areal": "1.0.3", "torch": "2.10"}', "has AReaL 1.0.3; its step is measured from 1.0.4"),
    ],
)
def test_another_python_is_refused_in_a_sentence(tmp_path: Path, words: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refusal:
        areal_in(python_that_says(tmp_path, words))
    assert "areal" in str(refusal.value) and str(refusal.value).endswith(".")


def test_no_such_interpreter_and_a_step_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is no Python that runs.*scripts/areal_env"):
        areal_in(str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match="no backward pass"):
        ArealBench(replace(PLAN, step="areal"), grpo_rows(), "python")
    with pytest.raises(ValueError, match="--areal-python"):
        ArealBench(PLAN, grpo_rows(), "")


@pytest.mark.deep
@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("areal_python")
def test_trees_and_flat_run_through_areals_own_engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same gradients come out, so that the ratio of the times is of one and the same step."""
    monkeypatch.setenv("ESPALIER_AREAL_PYTHON", request.getfixturevalue("areal_python"))
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    rows, plan = grpo_rows(groups=4, samples=4), replace(PLAN, dp_size=2)
    bench = bench_for(plan, rows)
    assert isinstance(bench, ArealBench)
    heard: list[tuple[int, int]] = []
    tree = bench.measure("tree", 512, 60.0, 1.0, lambda *told: heard.append(told))
    flat = bench.measure("flat", 512, 60.0, 1.0)
    for point in (tree, flat):
        assert point.outcome == "measured", point.message
        assert point.question.step_of == "areal-espalier" and "AReaL" in point.question.torch
        assert point.step_s and point.logp_s and (point.memory_bytes or 0) > 0
    assert heard[0] == (0, 0) and heard[-1][0] == heard[-1][1]
    norms = [p.notes[-1].partition("grad_norm ")[2] for p in (tree, flat)]
    assert norms[0] == norms[1] != ""
    # AReaL's is the mean over ranks
    ranks = bench.batch.simulation(plan, 512).ppo_update[0].ranks
    ratio = sum(rank.tree_tokens / rank.tokens for rank in ranks) / len(ranks)
    assert f"tree_token_ratio {ratio:.4g}" in tree.notes[-1]
    assert bench.measure("padded", 512).outcome == "refused"
