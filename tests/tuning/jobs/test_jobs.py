"""Jobs outlive whatever happens to them: no measured point is lost, and the end is a sentence."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from packing.rows import Rows
from tests.tuning.sweep_cases import grpo_rows
from tuning.jobs.jobs import Jobs, JobView
from tuning.jobs.points import Point, Question
from tuning.jobs.processes import identity, members
from tuning.jobs.store import Store, StoreError
from tuning.plan.plan import TuningPlan

PLAN = TuningPlan(max_tokens_per_mb=512, caps=(256, 512))
PATIENCE_S = 240.0
# Whole steps on the busiest machine; none is timed more than five times.
ENOUGH_S = 3600.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def until(jobs: Jobs, job: str, ready: Callable[[JobView], Any]) -> JobView:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        view = jobs.view(job)
        if ready(view) or not view.active:
            return view
        time.sleep(0.02)
    raise AssertionError(f"still waiting: {jobs.view(job)}")


def log_of(jobs: Jobs, job: str) -> str:
    return (jobs.folder / job / "log.txt").read_text()


def kinds(view: JobView) -> list[str]:
    return [str(event["type"]) for event in view.events]


def test_a_killed_worker_loses_nothing_and_a_restarted_server_resumes() -> None:
    rows = grpo_rows(groups=4, samples=3)
    first = Jobs()
    job = first.start("sweep", PLAN, rows, {"budget_s": ENOUGH_S, "data": rows.fingerprint})
    seen = until(
        first, job, lambda v: "point" in kinds(v) and kinds(v)[-1] in ("asking", "progress")
    )
    assert seen.active, log_of(first, job)
    pid = json.loads((first.folder / job / "process.json").read_text())["pid"]
    os.killpg(pid, signal.SIGKILL)
    died = until(first, job, lambda v: not v.active)
    assert died.state == "died" and "SIGKILL" in died.message and "memory" in died.message
    kept = Store().entries(run=job)
    measured = [e.point for e in kept if e.point.outcome == "measured"]
    shown = [Point.from_json(e["point"]) for e in died.events if e["type"] == "point"]
    assert shown and sorted(measured, key=repr) == sorted(shown, key=repr)
    crashed = [e.point for e in kept if e.point.outcome == "crashed"]
    assert len(crashed) <= 1
    assert all(p.message == died.message for p in crashed)

    # another server over the same folder
    second = Jobs()
    found = second.newest("sweep", data=rows.fingerprint)
    assert found is not None and (found.id, found.state) == (job, "died")
    assert found.plan == PLAN and found.arguments["budget_s"] == ENOUGH_S
    assert second.newest("sweep", data="other") is None and second.active() == []
    assert len(Store().entries(run=job)) == len(kept), "noted once"

    again = second.start("sweep", PLAN, rows, {"budget_s": ENOUGH_S, "data": rows.fingerprint})
    done = until(second, again, lambda v: not v.active)
    assert done.state == "done", log_of(second, again)
    known = [e["point"] for e in done.events if e["type"] == "point" and e["known"]]
    assert {p["question"]["max_tokens_per_mb"] for p in known} >= {
        p.question.max_tokens_per_mb for p in measured
    }
    last = done.last("result")
    assert last is not None and last["result"]["finished"] and last["result"]["pick"]
    assert done.message == last["result"]["pick"]["reason"]


def test_out_of_memory_is_a_result_and_the_sweep_goes_on() -> None:
    rows = grpo_rows(groups=10, samples=4)
    plan = TuningPlan(caps=(256, 3072), memory_budget_gib=0.1, max_tokens_per_mb=256)
    jobs = Jobs()
    job = jobs.start("sweep", plan, rows, {"budget_s": ENOUGH_S})
    view = until(jobs, job, lambda v: not v.active)
    assert view.state == "done", log_of(jobs, job)
    points = {
        e.point.question.max_tokens_per_mb: e.point
        for e in Store().entries(run=job)
        if e.point.question.mode == "tree"
    }
    assert points[256].step_s, points
    last = view.last("result")
    assert last is not None
    large = last["result"]["points"][1]
    assert large["fits"] is False and large["step_s"] is None


def test_a_step_beyond_the_budget_runs_out_of_memory_and_says_where() -> None:
    rows = grpo_rows(groups=60, samples=4)
    plan = TuningPlan(max_tokens_per_mb=10_240, memory_budget_gib=0.1)
    jobs = Jobs()
    job = jobs.start("measure", plan, rows, {"budget_s": ENOUGH_S})
    view = until(jobs, job, lambda v: not v.active)
    assert view.state == "done", log_of(jobs, job)
    (point,) = [e.point for e in Store().entries(run=job)]
    assert point.outcome == "out-of-memory" and point.step_s is None
    assert point.message.startswith("does not fit: needs more than 0.10 GiB at ")
    assert view.message == point.message


def test_cancelling_returns_when_all_of_it_is_gone_and_keeps_the_state() -> None:
    jobs = Jobs()
    job = jobs.start("sweep", PLAN, grpo_rows(), {"budget_s": ENOUGH_S})
    until(jobs, job, lambda v: v.state == "running")
    pid = json.loads((jobs.folder / job / "process.json").read_text())["pid"]
    jobs.cancel(job)
    view = jobs.view(job)
    assert view.state == "cancelled" and "kept" in view.message
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)
    assert Jobs().view(job).state == "cancelled"


def started_elsewhere(kind: str, arguments: dict[str, Any]) -> str:
    """A job that another server started, which has ended since."""
    code = (
        "import json, sys\n"
        "from tests.tuning.sweep_cases import grpo_rows\n"
        "from tuning.jobs.jobs import Jobs\n"
        "from tuning.plan.plan import TuningPlan\n"
        "plan = TuningPlan(max_tokens_per_mb=512, caps=(256, 512))\n"
        "print(Jobs().start(sys.argv[1], plan, grpo_rows(), json.loads(sys.argv[2])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, kind, json.dumps(arguments)],
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.process
def test_a_worker_goes_on_when_its_server_stops_and_another_server_shows_it() -> None:
    job = started_elsewhere("measure", {"budget_s": ENOUGH_S, "data": "these"})
    jobs = Jobs()
    found = jobs.newest("measure", data="these")
    assert found is not None and found.id == job and found.plan == PLAN
    assert found.active and [view.id for view in jobs.active()] == [job]
    view = until(jobs, job, lambda v: not v.active)
    assert view.state == "done", log_of(jobs, job)
    (entry,) = Store().entries(run=job)
    assert entry.point.outcome == "measured" and entry.point.logp_s


@pytest.mark.process
def test_another_server_stops_a_worker() -> None:
    job = started_elsewhere("sweep", {"budget_s": ENOUGH_S})
    jobs = Jobs()
    assert until(jobs, job, lambda v: v.state == "running").state == "running"
    pid = json.loads((jobs.folder / job / "process.json").read_text())["pid"]
    jobs.cancel(job)
    assert jobs.view(job).state == "cancelled" and members(pid) == []


def test_a_second_job_waits_for_the_device_and_time_ends_a_job() -> None:
    jobs = Jobs()
    first = jobs.start("sweep", PLAN, grpo_rows(), {"budget_s": ENOUGH_S})
    until(jobs, first, lambda v: v.state == "running")
    second = jobs.start("sweep", PLAN, grpo_rows(), {"budget_s": ENOUGH_S}, timeout_s=0.2)
    waiting = until(jobs, second, lambda v: "queued" in kinds(v))
    assert waiting.state == "queued" and "this one waits" in waiting.message
    assert [view.id for view in jobs.active()] == [first, second]
    jobs.cancel(first)
    ended = until(jobs, second, lambda v: not v.active)
    assert ended.state == "failed" and ended.message.startswith("stopped after 0 s")


def test_an_unknown_kind_is_a_sentence() -> None:
    jobs = Jobs()
    job = jobs.start("dance", PLAN, grpo_rows())
    view = until(jobs, job, lambda v: not v.active)
    assert (view.state, view.message) == ("failed", "no kind of job is called 'dance'")
    with pytest.raises(KeyError):
        jobs.view("no-such-job")


def test_a_point_that_could_not_be_written_is_added_when_the_disk_has_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    from tuning.jobs.task import Task

    jobs = Jobs()
    folder = jobs.folder / "20260101-000000-abcdef"
    question = Question.of(PLAN, "tree", 256, "d" * 16, "cpu", "0")
    point = Point(question, "measured", step_s=1.0, measured_at="2026-01-01T00:00:00+00:00")
    store = Store()

    def full(*_: object) -> None:
        raise StoreError("the run history cannot be used (database or disk is full)")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "add", full)
        rows = Rows.from_lists([[1, 2]])
        with pytest.raises(StoreError):
            Task(folder.name, PLAN, rows, {}, store).answer(point)
        printed = capsys.readouterr().out
        folder.mkdir()
        (folder / "events.jsonl").write_text(
            printed + json.dumps({"type": "failed", "message": "the disk is full"}) + "\n"
        )
        job = {
            "kind": "sweep",
            "plan": PLAN.to_json(),
            "arguments": {},
            "created_at": "2026-01-01T00:00:00+00:00",
        }
        (folder / "job.json").write_text(json.dumps(job))
        assert jobs.view(folder.name).state == "failed"
        assert not (folder / "noted").exists(), "the disk is still full"
    assert store.entries() == []
    assert Jobs().view(folder.name).state == "failed"
    Jobs().view(folder.name)
    assert [replace(entry.point, host="") for entry in store.entries()] == [point], (
        "once, though looked at twice"
    )


def test_a_history_that_cannot_grow_says_so(home: Path) -> None:
    store = Store()
    with sqlite3.connect(store.path) as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
    question = Question.of(PLAN, "tree", 256, "d" * 16, "cpu", "0")

    def limited(*_: Any, **__: Any) -> Any:
        raise sqlite3.OperationalError(os.strerror(errno.ENOSPC))

    assert pages > 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite3, "connect", limited)
        with pytest.raises(StoreError, match=r"free disk space|moved? the file away"):
            store.add("run", PLAN, Point(question, "measured", step_s=1.0))


DAMAGE = {
    "job.json": [b"", b'{"kind": "swe', b"[]", b'{"kind": 3}', b"[" * 100_000, b"\xff\xfe"],
    "events.jsonl": [b'{"type": "poi\n', b'{"type": 3}\n', b"{}\n", b"{" * 100_000 + b"\n"],
    "process.json": [b"[1]", b'{"pid": "x"}', b'{"pid": 1e99}', b"null"],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_job_ends_nothing_and_is_named(name: str) -> None:
    jobs = Jobs()
    jobs.add_ended("sweep", PLAN, {"data": "d"}, [{"type": "done"}], "")
    (whole,) = jobs.folder.iterdir()
    for nth, content in enumerate(DAMAGE[name]):
        job = jobs.folder / f"9999{nth}"  # the newest
        shutil.copytree(whole, job)
        (job / name).write_bytes(content)
        found = jobs.newest("sweep", data="d")
        assert found is not None and jobs.active() == [], content
        assert (job.name in jobs.unread) == (name != "process.json"), content
    jobs.set_aside()
    found = Jobs().newest("sweep", data="d")
    assert found is not None and found.id in (whole.name, "99993")


def test_a_newer_plan_is_read_without_what_is_new() -> None:
    jobs = Jobs()
    jobs.add_ended("sweep", PLAN, {}, [{"type": "done", "new": 1}], "")
    (folder,) = jobs.folder.iterdir()
    asked = json.loads((folder / "job.json").read_text())
    asked["plan"]["cooling"] = asked["cooling"] = "water"
    (folder / "job.json").write_text(json.dumps(asked))
    found = jobs.newest("sweep")
    assert found is not None and found.plan == PLAN and not jobs.unread


def test_a_sweep_takes_what_a_full_disk_kept_out_of_the_history() -> None:
    jobs = Jobs()
    question = Question.of(PLAN, "tree", 256, "d" * 16, "cpu", "0")
    point = Point(question, "measured", step_s=1.0)
    said = {"type": "point", "point": point.to_json(), "kept": False}
    jobs.add_ended("sweep", PLAN, {}, [said, {"type": "failed", "message": "full"}], "")
    assert jobs.unkept() == {question.key: point}
    from tuning.jobs.task import Task

    task = Task("next", PLAN, Rows.from_lists([[1, 2]]), {}, Store(), unkept=jobs.unkept())
    assert task.known(question) == point
    assert task.known(replace(question, max_tokens_per_mb=512)) is None
    assert jobs.newest("sweep") is not None, "looked at: now the history has it"
    assert jobs.unkept() == {} and Store().answer(question.key) == point


def test_who_stopped_is_kept_and_only_the_first() -> None:
    jobs = Jobs()
    jobs.add_ended("sweep", PLAN, {}, [], "")
    (folder,) = jobs.folder.iterdir()
    jobs.cancel(folder.name, "a session")
    jobs.cancel(folder.name, "another")
    view = jobs.view(folder.name)
    assert (view.state, view.stopped_by) == ("cancelled", "a session")
    assert "you" not in view.message


def test_a_clock_that_is_set_changes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    known = identity(os.getpid())
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: 0.0)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time() + 3600)
    assert known is not None and identity(os.getpid()) == known
    assert identity(os.getppid()) != known
