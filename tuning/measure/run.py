"""One cap, measured: a job of kind "measure".

Arguments: ``mode`` (tree, flat or padded; all of them in turn for "all") and ``budget_s``.
"""

from __future__ import annotations

import math
from typing import get_args

from tuning.jobs.points import Point
from tuning.jobs.task import Task
from tuning.plan.plan import Layout


def run(task: Task) -> str:
    """Measure the plan's cap anew, whatever the history knows."""
    from tuning.measure.areal import bench_for

    asked = str(task.arguments.get("mode", "tree"))
    modes: list[Layout] = [mode for mode in get_args(Layout) if asked in (mode, "all")]
    if not modes:
        raise ValueError(f"mode is tree, flat, padded or all, not {asked!r}")
    task.emit("progress", message="building the model")
    bench = bench_for(task.plan, task.rows, str(task.arguments.get("areal_python") or ""))
    bench.memory.enforce()
    budget_s = float(task.arguments.get("budget_s", math.inf)) / len(modes)
    cap, last = task.plan.max_tokens_per_mb, ""
    for mode in modes:
        task.asking(Point(bench.question(mode, cap), "crashed"))

        def progress(repeat: int, of: int, mode: Layout = mode) -> None:
            what = f"repeat {repeat} of {of}" if repeat else "warm-up"
            task.emit("progress", message=f"{mode} · cap {cap:,} · {what}")

        point = bench.measure(mode, cap, budget_s, budget_s, progress)
        task.answer(point)
        last = f"{point.step_s:,.3f} s a step" if point.step_s else point.message
    return last
