"""The worker: ``python -m tuning.worker JOB_FOLDER``, a question in, JSON lines out.

Notable:
- it waits for its device: one measurement at a time, whoever asks
- it ends itself when its time is over, even where a kernel hangs
- a sentence for everything that can be foreseen; what cannot goes to ``log.txt`` as a traceback
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from packing.rows import Rows
from tuning.folders import data_folder
from tuning.jobs import load_rows
from tuning.plan import TuningPlan
from tuning.points import Point
from tuning.store import Store

_KINDS = {
    "sweep": "tuning.sweep",
    "measure": "tuning.measure_run",
    "kernels": "tuning.kernel_runs",
    "equivalence": "tuning.equivalence_runs",
}


@dataclass(frozen=True)
class Task:
    """What a kind of job is given; ``others`` are batches of the data that come after ``rows``."""

    job: str
    plan: TuningPlan
    rows: Rows
    arguments: Mapping[str, Any]
    store: Store
    others: tuple[Rows, ...] = ()

    def emit(self, kind: str, **fields: Any) -> None:
        """Print one event."""
        _emit(kind, **fields)

    def asking(self, point: Point) -> None:
        """Say what is measured next, so that a death over it can be noted."""
        _emit("asking", point=point.to_json())

    def answer(self, point: Point, known: bool = False) -> None:
        """Keep a point and show it; ``known`` ones are in the history already.

        Where the history cannot be written the event still holds the point, and ``Jobs`` adds it
        later. Raises StoreError then.
        """
        kept = known
        try:
            if not known:
                self.store.add(self.job, self.plan, point)
                kept = True
        finally:
            _emit("point", point=point.to_json(), known=known, kept=kept)


class Kind(Protocol):
    """A module that does one kind of job."""

    def run(self, task: Task) -> str: ...


def main(folder: Path) -> int:
    question = json.loads((folder / "job.json").read_text())
    plan = TuningPlan.from_json(question["plan"])
    if question["kind"] not in _KINDS:
        _emit("failed", message=f"no kind of job is called {question['kind']!r}")
        return 1
    with ExitStack() as held:
        for device in _devices(question["kind"], plan):
            held.enter_context(_device_lock(device))
        _emit("started", pid=os.getpid())
        _end_after(float(question["timeout_s"]))
        task = Task(
            folder.name,
            plan,
            load_rows(folder / "rows.npz"),
            question["arguments"],
            Store(Path(question["store"])),
            tuple(load_rows(path) for path in sorted(folder.glob("rows-*.npz"))),
        )
        module: Any = importlib.import_module(_KINDS[question["kind"]])
        try:
            message = module.run(task)
        except (ValueError, RuntimeError, OSError, MemoryError) as error:
            _emit("failed", message=str(error) or type(error).__name__)
            return 1
        _emit("done", message=message)
    return 0


def _emit(kind: str, **fields: Any) -> None:
    event = {"type": kind, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields}
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _devices(kind: str, plan: TuningPlan) -> list[str]:
    """What the job runs on: with ranks that run together a GPU each, lowest first for everyone."""
    if kind not in ("sweep", "measure") or plan.dp_size == 1 or not plan.device.startswith("cuda"):
        return [plan.device]
    from tuning.rank_bench import together

    if not together(plan):
        return [plan.device]
    first = int(plan.device.partition(":")[2] or 0)
    return [f"cuda:{index}" for index in range(first, first + plan.dp_size)]


def _device_lock(device: str) -> FileLock:
    """The device's lock; says so once where another worker holds it."""
    folder = data_folder() / "locks"
    folder.mkdir(exist_ok=True)
    lock = FileLock(folder / f"{device.replace(':', '-')}.lock")
    try:
        lock.acquire(timeout=0)
        lock.release()
    except Timeout:
        _emit("queued", message=f"another measurement runs on {device}; this one waits for it")
    return lock


def _end_after(seconds: float) -> None:
    def end() -> None:
        _emit("failed", message=f"stopped after {seconds:,.0f} s, the time it was given")
        os._exit(3)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
