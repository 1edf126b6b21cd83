"""``sweep``, ``measure``, ``whatif``: training steps from a terminal, run or estimated."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuning.cli.common import (
    Json,
    PlanOptions,
    RowOptions,
    followed,
    row_options,
    say,
    sentences,
    show,
)
from tuning.plan.plan import STEP_NAMES, PlanError, TuningPlan

if TYPE_CHECKING:
    from packing.rows import Rows
    from tuning.jobs.jobs import JobView

Budget = Annotated[str, typer.Option(help="Time: 90s, 10m, 1h.")]
ArealPython = Annotated[
    Path | None,
    typer.Option(
        help="A Python that has AReaL (scripts/areal_env makes one): its own engine is measured "
        "there, with Espalier inside on a CPU. Default: $ESPALIER_AREAL_PYTHON for a step of AReaL."
    ),
]
GpuRunFile = Annotated[
    Path | None,
    typer.Option(
        "--gpu-run", help="JSON of benchmarks.gpu: attention's efficiency in estimates is its."
    ),
]


def register(app: typer.Typer) -> None:
    app.command()(sweep)
    app.command()(measure)
    app.command()(whatif)


@row_options
def sweep(
    options: PlanOptions,
    budget: Budget = "10m",
    areal_python: ArealPython = None,
    gpu_run: GpuRunFile = None,
    timed: Annotated[
        str | None,
        typer.Option(help="CAP=SECONDS of a step timed on the GPU that is estimated for."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure steps over the range of max_tokens_per_mb and pick one; known points are reused."""
    with sentences():
        plan, python = _to_run(options.runnable(), areal_python)
        budget_s = seconds_of(budget)
        given = {
            "budget_s": budget_s,
            "areal_python": python,
            "efficiencies": _efficiencies(gpu_run),
            "timed": None if timed is None else _timed(timed),
        }
        job = asked("sweep", options, plan, given, 2 * budget_s + 600)
        event = job.last("result")
        if event is None:
            raise RuntimeError("the sweep ended without a result")
        result: dict[str, Any] = dict(event["result"])
        result |= {"plan": plan.to_json(), "run": job.id}  # `report` reads them back
        if as_json:
            show(result, True)
        else:
            _table(result)


@row_options
def measure(
    options: PlanOptions,
    layout: Annotated[
        str, typer.Option("--layout", "--way", help="tree, flat, padded, or all.")
    ] = "tree",
    budget: Budget = "10m",
    areal_python: ArealPython = None,
    as_json: Json = False,
) -> None:
    """Time training steps at one cap, whatever the history knows."""
    with sentences():
        plan, python = _to_run(options.runnable(), areal_python)
        budget_s = seconds_of(budget)
        given = {"budget_s": budget_s, "mode": layout, "areal_python": python}
        job = asked("measure", options, plan, given, 2 * budget_s + 600)
        points = [event["point"] for event in job.events if event["type"] == "point"]
        if as_json:
            show({"points": points}, True)
            return
        for point in points:
            mode_name = str(point["question"]["mode"])
            seconds = f"{point['step_s']:.3f} s a step" if point["step_s"] else ""
            logp = f"{point['logp_s']:.3f} s compute_logp" if point["logp_s"] else ""
            whose = STEP_NAMES[point["question"]["step_of"]]
            words = [
                mode_name,
                point["outcome"],
                whose,
                seconds,
                logp,
                point["message"],
                *point["notes"],
            ]
            say(" · ".join(str(word) for word in words if word))


@row_options
def whatif(
    options: PlanOptions,
    models: Annotated[str, typer.Option(help="Models, separated by commas.")] = "qwen3-1.7b",
    gpus: Annotated[str, typer.Option(help="GPUs to estimate for, separated by commas.")] = (
        "h100-80,a100-80"
    ),
    gpu_run: GpuRunFile = None,
    as_json: Json = False,
) -> None:
    """Estimate a step for every model, GPU and cap, with bands; nothing is run."""
    from tuning.plan.batch import batch_rows
    from tuning.sweep.roofline import what_if

    with sentences():
        plan = options.runnable()
        everything = options.read()
        rows = batch_rows(everything, plan)
        chosen = (models.split(","), gpus.split(","))
        found = what_if(rows, plan, *chosen, _longest(everything, plan), _efficiencies(gpu_run))
        if as_json:
            grid = [
                {"model": model, "gpu": gpu, "sweep": one.to_json()} for model, gpu, one in found
            ]
            show({"plan": plan.to_json(), "grid": grid}, True)
            return
        for model, gpu, one in found:
            for point in one.points:
                cap = f"{point.max_tokens_per_mb:,}"
                band = _why_no_time(vars(point))
                if point.step_s and point.low_s and point.high_s:
                    band = f"{point.step_s:.2f} s ({point.low_s:.2f} to {point.high_s:.2f})"
                say(" · ".join((model, gpu, STEP_NAMES[point.step_of], cap, band)))


def _to_run(plan: TuningPlan, areal_python: Path | None) -> tuple[TuningPlan, str]:
    """The plan and the Python of its step; with --areal-python the step is AReaL's. PlanError."""
    if areal_python is not None and plan.step == "auto" and plan.is_here:
        plan = replace(plan, step="areal-espalier" if plan.device == "cpu" else plan.exported_step)
    named = str(areal_python or os.environ.get("ESPALIER_AREAL_PYTHON", ""))
    python = named if plan.is_here and plan.step_of != "espalier" else ""
    if problems := plan.unmeasurable(python):
        raise PlanError(" ".join(problems))
    return plan, python


def _efficiencies(path: Path | None) -> dict[str, float]:
    """Attention's part of the peak by backend; raises GpuRunError where the file is none."""
    from tuning.measure.gpu_run import load_gpu_run

    return {} if path is None else load_gpu_run(path).by_backend()


def _timed(text: str) -> tuple[int, float]:
    """``CAP=SECONDS``. Raises ValueError."""
    cap, equals, seconds = text.partition("=")
    if not (equals and cap.isdecimal()):
        raise ValueError(f"--timed {text}: write CAP=SECONDS, such as 16384=41.5")
    return int(cap), seconds_of(seconds)


def seconds_of(text: str) -> float:
    """``90s``, ``10m``, ``1h``, or plain seconds. Raises ValueError."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    try:
        seconds = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:
        raise ValueError(f"--budget {text}: write a time such as 90s, 10m or 1h")
    return seconds


def asked(
    kind: str, options: RowOptions, plan: TuningPlan, arguments: Mapping[str, Any], timeout_s: float
) -> JobView:
    """The job on the plan's batch; a sweep is given the batches that come after it too."""
    from tuning.plan.batch import batch_rows
    from tuning.sweep.batches import other_batches

    everything = options.read()
    rows = batch_rows(everything, plan)
    longest = _longest(everything, plan)
    others = other_batches(everything, plan) if kind == "sweep" else []
    return followed(kind, plan, rows, {"longest_row": longest} | dict(arguments), timeout_s, others)


def _longest(everything: Rows, plan: TuningPlan) -> int:
    """Tokens of the longest row that any batch can have."""
    return min(everything.longest, plan.max_new_tokens or everything.longest)


def _table(result: Mapping[str, Any]) -> None:
    """The sweep as lines for a terminal."""
    from tuning.workspace.compare_text import aligned_columns

    say(f"{result['model']} on {result['machine']}: {STEP_NAMES[result['step_of']]}")
    several = result["n_batches"] > 1
    worst = ("worst trees", "worst paid") if several else ()
    rows = [("cap", "trees", "ratio", "paid", *worst, "step", "compute_logp", "kind")]
    named = [(f"{one['max_tokens_per_mb']:,}", one) for one in result["points"]]
    named += [(name, one) for name, one in result["baselines"].items() if one]
    for name, one in named:
        counted = {} if one["refused"] else one
        most = (_shown(one["worst_n_trees"], ","), _shown(one["worst_padded_token_ratio"]))
        known = f" (known from {one['known_from']})" if one["known_from"] else ""
        rows.append(
            (
                name,
                _shown(counted.get("n_trees"), ","),
                _shown(counted.get("tree_token_ratio")),
                _shown(one["padded_token_ratio"]),
                *(most if several else ()),
                _shown(one["step_s"], ".3f", " s"),
                _shown(one["logp_s"], ".3f", " s"),
                (one["step_kind"] or _why_no_time(one)) + known,
            )
        )
    for line in aligned_columns(rows):
        say(line)
    if result["holdout_error"] is not None:
        say(f"cost model: {result['holdout_error']:.1%} median error on points left out")
    pick = result["pick"] or {"reason": "", "runner_up": "", "advice": ()}
    for line in (pick["reason"], pick["runner_up"], *pick["advice"], *result["notes"]):
        if line:
            say(line)


def _why_no_time(candidate: Mapping[str, Any]) -> str:
    if candidate["refused"]:
        return str(candidate["message"])
    if candidate["fits"] is False:
        return f"does not fit: {candidate['message']}" if candidate["message"] else "does not fit"
    return "not measured"


def _shown(value: float | None, form: str = ".3f", unit: str = "") -> str:
    return "-" if value is None else format(value, form) + unit
