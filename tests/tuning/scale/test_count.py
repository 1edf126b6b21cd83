"""All batches at many caps: as one batch after the other gives them, wherever they are counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from packing.batch import batches, simulate
from packing.rows import Rows
from tuning.cli.main import app
from tuning.plan.batch import batch_rows, batch_spec
from tuning.plan.plan import TuningPlan
from tuning.scale import Count, LauncherError, count
from tuning.scale.count import FIGURES
from tuning.scale.launchers import Workers

CAPS = (256, 512, 1024)
PLAN = TuningPlan(prompts_per_step=4, samples_per_prompt=3, dp_size=2, ppo_n_minibatches=2)


@pytest.fixture(scope="module")
def rows() -> Rows:
    """50 prompts of up to five samples, interleaved, with a long row in the seventh batch."""
    random = np.random.default_rng(3)
    made, group = [], []
    for prompt in random.permutation(50):
        head = random.integers(0, 50, random.integers(5, 60))
        for _ in range(random.integers(3, 6)):
            made.append(np.concatenate([head, random.integers(0, 50, random.integers(1, 120))]))
            group.append(prompt)
    made[group.index(27)] = random.integers(0, 50, 400)
    mixed = random.permutation(len(made))
    return Rows.from_lists([made[i] for i in mixed], [group[i] for i in mixed])


@pytest.fixture(scope="module")
def counted(rows: Rows) -> Count:
    return count(rows, PLAN, CAPS)


def test_each_figure_is_that_of_the_batches_one_by_one(rows: Rows, counted: Count) -> None:
    alone = replace(PLAN, prompts_per_step=0)
    of = [
        batch_rows(rows.take(np.flatnonzero(np.isin(rows.group, groups))), alone)
        for groups in batches(rows, PLAN.prompts_per_step)
    ]
    assert counted.exact and counted.n_batches == len(of) == 12
    longest = [one.longest for one in of]
    assert counted.longest_row == max(longest)
    assert counted.longest_batch == int(np.argmax(longest))
    for one in counted.caps[1:]:
        seen = [simulate(own, batch_spec(PLAN, one.max_tokens_per_mb)) for own in of]
        for name, figure in FIGURES.items():
            values = [figure(simulation) for simulation in seen]
            got = one.figures[name]
            assert got.mean == got.low == got.high == pytest.approx(np.mean(values))
            assert got.std == pytest.approx(np.std(values))
            assert (got.worst, got.worst_batch) == (max(values), int(np.argmax(values)))
    paid = {one.max_tokens_per_mb: one.figures["paid_tokens"].mean for one in counted.caps[1:]}
    assert counted.pick == min(paid, key=lambda cap: paid[cap])


def test_a_cap_that_one_batch_refuses_is_refused_there(counted: Count) -> None:
    refused = counted.caps[0]
    assert refused.refused == 1 and refused.refused_batch == counted.longest_batch
    assert "400" in refused.words and "512" in refused.mend
    assert not refused.figures and not refused.equal


def test_a_sample_is_cut_where_time_ends_and_says_so(rows: Rows) -> None:
    many = Rows.from_lists([[i % 7, i % 11, 3] for i in range(4000)], [i // 2 for i in range(4000)])
    plan = TuningPlan(prompts_per_step=5)
    found = count(many, plan, (128, 256), budget_s=1e-9)
    assert not found.exact and 16 <= found.n_counted < found.n_batches == 400
    for one in found.caps:
        assert one.figures["paid_tokens"].low <= one.figures["paid_tokens"].high
    assert found.pick == 128


def test_caps_are_told_apart_only_once_every_stratum_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many workers are asked at once, and the first answer is of one batch."""
    lengths = np.random.default_rng(1).integers(1, 90, 2000)
    many = Rows.from_lists([np.arange(n) for n in lengths], np.arange(2000))

    @contextmanager
    def wide(on: str, rows: Rows) -> Iterator[Workers]:
        with ThreadPoolExecutor(1) as pool:
            yield Workers(64, pool, lambda work, *given: work(rows, *given))

    module = import_module("tuning.scale.count")  # the face has the function of that name
    monkeypatch.setattr(module, "launched", wide)
    monkeypatch.setattr(module, "TASK_TOKENS", 1)
    found = count(many, TuningPlan(prompts_per_step=5), (128, 256), budget_s=60.0)
    assert found.n_counted < found.n_batches and found.pick is not None
    json.dumps(found.to_json(), allow_nan=False)


def test_what_cannot_be_counted_is_a_sentence(rows: Rows) -> None:
    with pytest.raises(ValueError, match="50 prompts are less than one batch of 64"):
        count(rows, replace(PLAN, prompts_per_step=64), CAPS)
    with pytest.raises(LauncherError, match="choose one of local, ray, slurm"):
        count(rows, PLAN, CAPS, on="cloud")


def same(found: Count, other: Count) -> bool:
    return replace(found, seconds=0.0) == replace(other, seconds=0.0)


def test_slurm_jobs_give_the_same(
    rows: Rows, counted: Count, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setenv("ESPALIER_SHARED", str(tmp_path))
    assert same(count(rows, PLAN, CAPS, on="slurm:local"), counted)
    assert not list(tmp_path.iterdir()), "what the jobs read is gone"
    with pytest.raises(LauncherError, match="no Slurm here"):
        count(rows, PLAN, CAPS, on="slurm")


@pytest.mark.deep
def test_rays_tasks_give_the_same(rows: Rows, counted: Count) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    assert same(count(rows, PLAN, CAPS, on="ray"), counted)
    with pytest.raises(LauncherError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        count(rows, PLAN, CAPS, on="ray:127.0.0.1:1")


def test_without_the_package_the_choice_says_how_to_get_it(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(LauncherError, match=r"pip install 'espalier\[ray\]'"):
        count(rows, PLAN, CAPS, on="ray")


def test_the_command_says_it_in_lines_and_in_json() -> None:
    words = ["count", "sample:agent-turns", "--prompts", "2", "--caps", "128,4096,8192"]
    lines = CliRunner().invoke(app, words)
    assert lines.exit_code == 0, lines.output
    assert "6 batches of 2 prompts, all of them counted" in lines.output
    assert "AReaL stops at batch 0" in lines.output
    told = CliRunner().invoke(app, [*words, "--json"])
    found = json.loads(told.stdout)
    assert found["exact"] and found["pick"] == 8192
    assert [one["refused"] for one in found["caps"]] == [6, 0, 0]
