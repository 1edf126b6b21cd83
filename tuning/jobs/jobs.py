"""Jobs: slow work in a process of its own, followed through files.

Notable:
- a job is a folder: ``job.json`` (the question), ``events.jsonl`` (what the worker printed),
  ``log.txt`` (what went wrong); a server that restarts finds it again
- the worker leads its own process group, so that cancelling kills all of it and frees its memory
- a worker outlives the server or command line that started it: what it measures is stored as ever,
  another server over the same folder shows it running and can stop it. It is never forgotten
  for good: once it has its device it ends itself after ``timeout_s``, and so does whoever it
  waits for
- a worker that dies is noticed, whatever killed it, and what it was measuring is noted in the
  history; a point that the worker could not write there (a full disk) is added later
- math threads that wait sleep: where they spin, a busy machine makes a step many times slower
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from packing.rows import Rows
from tuning.jobs.checked import CheckError, parse_json, read_own
from tuning.jobs.files import read_events, read_object, read_text, save_rows, unkept_points
from tuning.jobs.folders import data_folder, jobs_folder
from tuning.jobs.host import host
from tuning.jobs.points import Point, plan_of
from tuning.jobs.processes import identity, kill_group, killed, members
from tuning.jobs.store import Store, StoreError
from tuning.plan.plan import TuningPlan

State = Literal["queued", "running", "done", "failed", "cancelled", "died"]
ENDED: tuple[State, ...] = ("done", "failed", "cancelled", "died")
# where the package of this module is found: the checkout, or site-packages
ROOT = Path(__file__).resolve().parents[__package__.count(".") + 1]
WORKER = __package__.replace("tuning.jobs", "tuning.worker")
_GRACE_S = 1.0
_children: dict[Path, subprocess.Popen[bytes]] = {}
"""Workers of this process by job folder: whoever asks first reaps them."""

_START_S = 10.0


@dataclass(frozen=True)
class JobView:
    """A job as it stands now.

    state:     "queued" (another worker has the device), "running", or how it ended
    arguments: what the kind of job was given beside the plan
    events:    everything the worker printed, in order
    message:   how it ended, or what it is doing, in one sentence
    origin:    where it was brought from; empty where it ran here
    stopped_by: who cancelled it, as ``cancel`` was told
    """

    id: str
    kind: str
    plan: TuningPlan
    arguments: Mapping[str, Any]
    state: State
    created_at: str
    events: tuple[Mapping[str, Any], ...]
    message: str
    origin: str = ""
    stopped_by: str = ""

    @property
    def active(self) -> bool:
        return self.state not in ENDED

    def last(self, kind: str) -> Mapping[str, Any] | None:
        """The newest event of a kind."""
        return next((e for e in reversed(self.events) if e["type"] == kind), None)


@dataclass(frozen=True)
class _Asked:
    """What ``job.json`` holds."""

    kind: str
    plan: dict[str, Any]
    arguments: dict[str, Any]
    created_at: str
    timeout_s: float = 0.0
    store: str = ""
    origin: str = ""


class Jobs:
    """The jobs of a data folder; every server and command line sees the same ones.

    unread: why a job cannot be read, or what of it, by its name, of those looked at so far
    """

    def __init__(self, folder: Path | None = None, store: Store | None = None) -> None:
        self.folder = folder or jobs_folder()
        self.store = store or Store()
        self.unread: dict[str, str] = {}

    def start(
        self,
        kind: str,
        plan: TuningPlan,
        rows: Rows,
        arguments: Mapping[str, Any] | None = None,
        timeout_s: float = 3600.0,
        others: Sequence[Rows] = (),
    ) -> str:
        """Start a worker over ``rows`` (the plan's batch); returns the job's id at once.

        others: the batches that follow it (at most nine), where a job counts them too
        """
        folder = self._folder()
        save_rows(folder / "rows.npz", rows)
        for number, other in enumerate(others, 1):
            save_rows(folder / f"rows-{number}.npz", other)
        self._write(folder, kind, plan, arguments or {}, timeout_s)
        with (folder / "events.jsonl").open("wb") as out, (folder / "log.txt").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", WORKER, str(folder)],
                stdout=out,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=_environment(),
                start_new_session=True,
            )
        _children[folder] = child
        (folder / "process.json").write_text(json.dumps(identity(child.pid)))
        return folder.name

    def add_ended(
        self,
        kind: str,
        plan: TuningPlan,
        arguments: Mapping[str, Any],
        events: Sequence[Mapping[str, Any]],
        origin: str,
    ) -> None:
        """Add a job that ended elsewhere, with what it said."""
        folder = self._folder()
        (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
        self._write(folder, kind, plan, arguments, 0.0, origin)

    def _folder(self) -> Path:
        """A new folder. Names sort by the time of their start, to the microsecond."""
        created = datetime.now(UTC)
        name = f"{created:%Y%m%d-%H%M%S}-{created.microsecond:05x}{secrets.token_hex(1)}"
        folder = self.folder / name
        folder.mkdir(parents=True)
        return folder

    def _write(
        self,
        folder: Path,
        kind: str,
        plan: TuningPlan,
        arguments: Mapping[str, Any],
        timeout_s: float,
        origin: str = "",
    ) -> None:
        """The question, whole or not at all: a folder is a job from the moment it is there."""
        question = {
            "kind": kind,
            "plan": plan.to_json(),
            "arguments": dict(arguments),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "timeout_s": timeout_s,
            "store": str(self.store.path),
            "origin": origin,
        }
        (folder / "job.part").write_text(json.dumps(question))
        (folder / "job.part").rename(folder / "job.json")

    def view(self, job: str) -> JobView:
        """Raises KeyError for a job that is not there or cannot be read."""
        folder = self.folder / job
        asked = self._asked(folder)
        if asked is None:
            raise KeyError(job)
        try:
            plan = plan_of(asked.plan)
        except ValueError as error:
            self.unread[job] = str(error)
            raise KeyError(job) from None
        alive = self._alive(job)
        events = self._events(folder)
        state, message = self._state(job, events, alive, asked.created_at)
        if state in ENDED and not (folder / "noted").exists():
            self._note_end(folder, plan, events, message if state == "died" else "")
        stopped_by = read_text(folder / "cancelled") if state == "cancelled" else ""
        return JobView(
            job,
            asked.kind,
            plan,
            asked.arguments,
            state,
            asked.created_at,
            tuple(events),
            message,
            asked.origin,
            stopped_by,
        )

    def _asked(self, folder: Path) -> _Asked | None:
        """The question of a job; None where there is none, or none that can be read."""
        path = folder / "job.json"
        if not path.is_file():
            return None
        try:
            return read_own(_Asked, parse_json(path.read_bytes(), path.name), path.name)
        except (CheckError, OSError) as error:
            self.unread[folder.name] = str(error)
            return None

    def newest(self, kind: str, foreign: bool = False, **arguments: Any) -> JobView | None:
        """The newest job of a kind, running or ended; with these arguments where given.

        foreign: of those that were brought from elsewhere, else of those that ran here
        """
        for folder in sorted(self.folder.iterdir(), reverse=True):
            asked = self._asked(folder)
            if asked is None or asked.kind != kind or bool(asked.origin) != foreign:
                continue
            if all(asked.arguments.get(name) == value for name, value in arguments.items()):
                with suppress(KeyError):
                    return self.view(folder.name)
        return None

    def active(self) -> list[JobView]:
        """Jobs that have not ended, oldest first: the queue."""
        found = []
        for folder in sorted(self.folder.iterdir()):
            if self._alive(folder.name):
                with suppress(KeyError):
                    found.append(self.view(folder.name))
        return [view for view in found if view.active]

    def unkept(self) -> dict[str, Point]:
        """Points by question that a full disk kept out of the history, as their jobs said them."""
        return {
            point.question.key: point
            for folder in sorted(self.folder.iterdir())
            if not (folder / "noted").exists()
            for point in unkept_points(self._events(folder))
            if point.outcome != "crashed" and point.host in ("", host())
        }

    def set_aside(self) -> None:
        """Move jobs that could not be read out of the way, into a folder beside."""
        aside = self.folder.with_name("aside")
        aside.mkdir(exist_ok=True)
        for job in self.unread:
            with suppress(OSError):
                (self.folder / job).rename(aside / job)
        self.unread.clear()

    def _events(self, folder: Path) -> list[Mapping[str, Any]]:
        events, broken = read_events(folder / "events.jsonl")
        if broken:
            self.unread[folder.name] = f"{broken:,} of the lines of events.jsonl"
        return events

    def cancel(self, job: str, by: str = "") -> None:
        """Stop a job and everything it started; returns when it is gone (about a second).

        by: who stops it; the first one is kept
        """
        folder = self.folder / job
        if not (folder / "cancelled").exists():
            (folder / "cancelled").write_text(by)
        known = read_object(folder / "process.json")
        if known and self._alive(job):
            pid = int(known["pid"])
            kill_group(pid, signal.SIGTERM)
            deadline = time.monotonic() + _GRACE_S
            while (self._alive(job) or members(pid)) and time.monotonic() < deadline:
                time.sleep(0.02)
            if self._alive(job) or members(pid):
                kill_group(pid, signal.SIGKILL)
                while self._alive(job):
                    time.sleep(0.02)

    def wait(self, job: str, timeout_s: float) -> JobView:
        """Follow a job to its end, or for so long."""
        deadline = time.monotonic() + timeout_s
        while self.view(job).active and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.view(job)

    def _alive(self, job: str) -> bool:
        child = _children.get(self.folder / job)
        if child is not None:
            return child.poll() is None
        known = read_object(self.folder / job / "process.json")
        return bool(known) and identity(known.get("pid", 0)) == known

    def _state(
        self, job: str, events: list[Mapping[str, Any]], alive: bool, created_at: str
    ) -> tuple[State, str]:
        last = {e["type"]: e for e in events}
        if "done" in last:
            return "done", str(last["done"].get("message", "finished"))
        if "failed" in last:
            return "failed", str(last["failed"].get("message", "it failed"))
        if (self.folder / job / "cancelled").exists():
            return "cancelled", "stopped; what was measured is kept"
        if alive:
            doing = last.get("progress", {}).get("message", "starting")
            waiting = last.get("queued", {}).get("message", "starting")
            return ("running", str(doing)) if "started" in last else ("queued", str(waiting))
        if not (self.folder / job / "process.json").exists() and _age_s(created_at) < _START_S:
            return "queued", "starting"  # whoever starts it has not written its number yet
        return "died", self._death(job)

    def _death(self, job: str) -> str:
        child = _children.get(self.folder / job)
        code = None if child is None else child.returncode
        log = read_text(self.folder / job / "log.txt").strip().splitlines()
        if code is not None and code < 0:
            return f"the worker {killed(code)}; what was measured is kept"
        reason = f": {log[-1]}" if log else ""
        return f"the worker ended without a result{reason}; what was measured is kept"

    def _note_end(
        self, folder: Path, plan: TuningPlan, events: list[Mapping[str, Any]], death: str
    ) -> None:
        """Once, after the end: what the worker measured and could not keep, and what killed it."""
        points = unkept_points(events)
        begun = next((e for e in reversed(events) if e["type"] in ("asking", "point")), None)
        if death and begun is not None and begun["type"] == "asking":
            with suppress(CheckError):
                asked, at = Point.from_json(begun["point"]), str(begun.get("at", ""))
                gone = Point(asked.question, "crashed", message=death, measured_at=at, host=host())
                points.append(gone)
        try:
            for point in points:
                self.store.add(folder.name, plan, point)
            (folder / "noted").touch()
        except (StoreError, OSError):
            return  # the disk is still full; the events keep the points, the next look tries again


def _environment() -> dict[str, str]:
    """Of a worker: threads that wait sleep, and the server's token stays with the server."""
    kept = {name: value for name, value in os.environ.items() if name != "ESPALIER_TOKEN"}
    return {"OMP_WAIT_POLICY": "PASSIVE"} | kept | {"ESPALIER_HOME": str(data_folder())}


def _age_s(created_at: str) -> float:
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(created_at)).total_seconds()
    except (ValueError, TypeError):
        return _START_S  # no date: nobody is starting it
