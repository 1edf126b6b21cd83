"""The worker: ``python -m tuning.worker JOB_FOLDER``, a question in, JSON lines out.

Notable:
- it waits for its device: one measurement at a time, whoever asks
- it ends itself when its time is over, even where a kernel hangs
- a sentence for everything that can be foreseen; what cannot goes to ``log.txt`` as a traceback
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from filelock import FileLock, Timeout

from tuning.jobs.files import load_rows
from tuning.jobs.folders import data_folder
from tuning.jobs.jobs import Jobs
from tuning.jobs.points import plan_of
from tuning.jobs.store import Store
from tuning.jobs.task import KINDS, Kind, Task, emit
from tuning.plan.plan import TuningPlan


def main(folder: Path) -> int:
    question = json.loads((folder / "job.json").read_text())
    plan = plan_of(question["plan"])
    if question["kind"] not in KINDS:
        emit("failed", message=f"no kind of job is called {question['kind']!r}")
        return 1
    with ExitStack() as held:
        for device in _devices(question["kind"], plan):
            held.enter_context(_device_lock(device))
        emit("started", pid=os.getpid())
        _end_after(float(question["timeout_s"]))
        store = Store(Path(question["store"]))
        task = Task(
            folder.name,
            plan,
            load_rows(folder / "rows.npz"),
            question["arguments"],
            store,
            tuple(load_rows(path) for path in sorted(folder.glob("rows-*.npz"))),
            Jobs(folder.parent, store).unkept(),
        )
        try:
            message = _runner(question["kind"])(task)
        except (ValueError, RuntimeError, OSError, MemoryError) as error:
            emit("failed", message=str(error) or type(error).__name__)
            return 1
        emit("done", message=message)
    return 0


def _runner(kind: Kind) -> Callable[[Task], str]:
    """What does a kind of job; read only here, because most of them bring torch."""
    if kind == "sweep":
        from tuning.sweep.run import run
    elif kind == "measure":
        from tuning.measure.run import run
    elif kind == "kernels":
        from tuning.measure.proofs.kernels import run
    else:
        from tuning.measure.proofs.equivalence import run
    return run


def _devices(kind: Kind, plan: TuningPlan) -> list[str]:
    """What the job runs on: with ranks that run together a GPU each, lowest first for everyone."""
    if kind not in ("sweep", "measure") or plan.dp_size == 1 or not plan.device.startswith("cuda"):
        return [plan.device]
    from tuning.measure.ranks import together

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
        emit("queued", message=f"another measurement runs on {device}; this one waits for it")
    return lock


def _end_after(seconds: float) -> None:
    def end() -> None:
        emit("failed", message=f"stopped after {seconds:,.0f} s, the time it was given")
        os._exit(3)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(Path(sys.argv[1])))
