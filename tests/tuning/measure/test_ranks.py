"""Ranks that run together: a point of all of them, deaths as results, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import tuning.measure.ranks
from packing.rows import Rows
from tests.tuning.sweep_cases import grpo_rows
from tuning.jobs.jobs import Jobs
from tuning.jobs.processes import identity
from tuning.measure.areal import bench_for
from tuning.measure.ranks import RankBench, together
from tuning.measure.step import Bench
from tuning.plan.plan import TuningPlan
from tuning.worker import _devices

torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parents[3]
PLAN = TuningPlan(dp_size=2, ppo_n_minibatches=2, max_tokens_per_mb=256)
PATIENCE_S = 120.0


def rows_of_ranks() -> Rows:
    """Ids beyond the tiny vocabulary; one rank has more trees than the other."""
    rows = grpo_rows(groups=4, samples=2, top=5000)
    return Rows.from_lists(
        [list(row) + [7] * (100 if rows.group[i] == 0 else 0) for i, row in enumerate(rows)],
        rows.group,
    )


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.process
def test_two_ranks_over_gloo_give_one_point_of_both() -> None:
    rows, heard = rows_of_ranks(), []
    bench = RankBench(PLAN, rows, device="cpu")
    point = bench.measure("tree", 256, repeat_s=0.0, progress=lambda *r: heard.append(r))
    assert point.outcome == "measured", point.message
    assert heard == [(0, 0), (1, 1), (2, 2)] and point.repeats == 2
    assert point.step_s and point.p20_s and point.p80_s and point.logp_s
    assert point.p20_s <= point.step_s <= point.p80_s and point.logp_s > 0
    assert point.memory_kind == "peak resident memory of the fullest rank"
    assert (point.memory_bytes or 0) > 2**20
    chain = bench.batch.simulation(PLAN, 256)
    dummies = [sum(one.ranks[rank].dummies for one in chain.ppo_update) for rank in range(2)]
    assert sum(dummies) > 0
    assert point.notes == (
        "token ids folded into a vocabulary of 1,024",
        "2 ranks ran together; times are the slowest one's",
        f"dummy micro-batches by rank: {dummies}",
    )
    assert point.n_trees == sum(one.trees_per_rank for one in chain.ppo_update)
    assert point.question.machine.startswith("2 × cpu")
    alone = Bench(replace(PLAN, dp_size=1), rows).measure("flat", 256, repeat_s=0.0)
    assert point.loss == pytest.approx(alone.loss, rel=0.05, abs=0.01)


@pytest.mark.process
def test_a_rank_that_runs_out_of_memory_is_a_result() -> None:
    plan = replace(PLAN, memory_budget_gib=0.05, max_tokens_per_mb=8192)
    point = RankBench(plan, grpo_rows(groups=40, samples=4), device="cpu").measure("tree", 8192)
    assert point.outcome == "out-of-memory" and point.step_s is None
    assert point.message.startswith("does not fit: needs more than 0.05 GiB at "), point.message
    assert point.message.endswith(("on rank 0", "on rank 1"))


def test_a_plan_that_is_refused_starts_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = RankBench(PLAN, rows_of_ranks(), device="cpu")

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("no rank may be started")

    monkeypatch.setattr(tuning.measure.ranks, "launch", never)
    point = bench.measure("tree", 128)
    assert point.outcome == "refused" and "exceeds max_tokens_per_tree 128" in point.message


def test_ranks_run_together_only_where_each_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = ["4", "5", "6"]
    monkeypatch.setattr(tuning.measure.ranks, "visible_gpus", lambda: gpus)
    assert together(TuningPlan(dp_size=3, device="cuda:0"))
    assert together(TuningPlan(dp_size=2, device="cuda:1"))
    assert not together(TuningPlan(dp_size=3, device="cuda:1"))
    assert not together(TuningPlan(dp_size=1, device="cuda:0"))
    assert not together(TuningPlan(dp_size=2, device="cpu"))
    assert isinstance(bench_for(PLAN, rows_of_ranks()), Bench)
    two = TuningPlan(dp_size=2, device="cuda:1")
    assert _devices("sweep", two) == ["cuda:1", "cuda:2"], "every GPU is waited for"
    assert _devices("kernels", two) == ["cuda:1"]
    bench = RankBench(PLAN, rows_of_ranks(), device="cpu")
    bench.device = torch.device("cuda:1")
    assert bench._gpus(2) == ["5", "6"]


def ranks_of(pid: int) -> list[psutil.Process]:
    """Everything below a process, whatever its session."""
    return [p for p in psutil.Process(pid).children(recursive=True) if p.is_running()]


@pytest.fixture
def measuring(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A worker that measures again and again, with two ranks at their steps."""
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.tuning.measure.test_ranks"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "measuring\n", (tmp_path / "worker.log").read_text()
    below = ranks_of(worker.pid)
    assert len(below) == 3, "torchrun and two ranks"
    yield worker, below
    for process in [*below, psutil.Process(worker.pid)] if worker.poll() is None else below:
        if process.is_running():
            process.kill()
    worker.stdout.close()
    worker.wait()


def gone(processes: list[psutil.Process]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.process
def test_a_killed_rank_is_a_result_and_cancelling_leaves_no_process(
    measuring: tuple[subprocess.Popen[str], list[psutil.Process]],
) -> None:
    worker, below = measuring
    assert worker.stdout is not None
    second = next(p for p in below if p.environ().get("RANK") == "1")
    second.send_signal(signal.SIGKILL)
    point = json.loads(worker.stdout.readline())
    assert point["outcome"] == "crashed", point
    assert point["message"].startswith("rank 1 was killed (SIGKILL)")
    assert gone(below), "torchrun ends the other rank"

    assert worker.stdout.readline() == "measuring\n", "the worker goes on"
    below[:] = ranks_of(worker.pid)
    assert len(below) == 3
    jobs = Jobs()
    folder = jobs.folder / "20260101-000000-abcdef"
    folder.mkdir(parents=True)
    (folder / "process.json").write_text(json.dumps(identity(worker.pid)))
    jobs.cancel(folder.name)
    assert gone(below), "ranks have sessions of their own"


@pytest.mark.process
def test_ranks_end_with_a_worker_that_is_killed_outright(
    measuring: tuple[subprocess.Popen[str], list[psutil.Process]],
) -> None:
    worker, below = measuring
    worker.kill()
    ranks = [p for p in below if "RANK" in p.environ()]
    assert len(ranks) == 2 and gone(ranks)
    assert gone(below), "and torchrun after them"


def keep_measuring() -> None:
    """A worker's part: says when ranks are at their steps, and how each measurement ended."""
    rows = grpo_rows(groups=64, samples=4)  # steps of seconds
    bench = RankBench(replace(PLAN, max_tokens_per_mb=512), rows, device="cpu")

    def said(repeat: int, _: int) -> None:
        if repeat == 1:
            print("measuring", flush=True)

    while True:
        point = bench.measure("tree", 512, repeat_s=1e6, progress=said)
        print(json.dumps({"outcome": point.outcome, "message": point.message}), flush=True)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    keep_measuring()
