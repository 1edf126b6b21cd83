"""``sweep`` and ``measure``: real training steps from a terminal, into the same history."""

from __future__ import annotations

from collections.abc import Mapping
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
from tuning.plan.plan import TuningPlan

if TYPE_CHECKING:
    from tuning.jobs.jobs import JobView

Budget = Annotated[str, typer.Option(help="Time: 90s, 10m, 1h.")]


def register(app: typer.Typer) -> None:
    app.command()(sweep)
    app.command()(measure)


@row_options
def sweep(options: PlanOptions, budget: Budget = "10m", as_json: Json = False) -> None:
    """Measure steps over the range of max_tokens_per_mb and pick one; known points are reused."""
    with sentences():
        plan = options.runnable()
        budget_s = seconds_of(budget)
        job = asked("sweep", options, plan, {"budget_s": budget_s}, 2 * budget_s + 600)
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
    as_json: Json = False,
) -> None:
    """Time training steps at one cap, whatever the history knows."""
    with sentences():
        plan = options.runnable()
        budget_s = seconds_of(budget)
        given = {"budget_s": budget_s, "mode": layout}
        job = asked("measure", options, plan, given, 2 * budget_s + 600)
        points = [event["point"] for event in job.events if event["type"] == "point"]
        if as_json:
            show({"points": points}, True)
            return
        for point in points:
            mode_name = str(point["question"]["mode"])
            seconds = f"{point['step_s']:.3f} s a step" if point["step_s"] else ""
            logp = f"{point['logp_s']:.3f} s compute_logp" if point["logp_s"] else ""
            words = [mode_name, point["outcome"], seconds, logp, point["message"], *point["notes"]]
            say(" · ".join(str(word) for word in words if word))


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
    longest = min(everything.longest, plan.max_new_tokens or everything.longest)
    others = other_batches(everything, plan) if kind == "sweep" else []
    return followed(kind, plan, rows, {"longest_row": longest} | dict(arguments), timeout_s, others)


def _table(result: Mapping[str, Any]) -> None:
    """The sweep as lines for a terminal."""
    from tuning.workspace.compare_text import aligned_columns

    say(f"{result['model']} on {result['machine']}")
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
    return "does not fit" if candidate["fits"] is False else "not measured"


def _shown(value: float | None, form: str = ".3f", unit: str = "") -> str:
    return "-" if value is None else format(value, form) + unit
