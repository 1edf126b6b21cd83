"""``prove`` and ``kernels``: tree attention on a tree of one's own, without a browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tuning.cli.common import Json, PlanOptions, row_options, say, sentences, show
from tuning.cli.sweep import asked

_TIMEOUT_S = 1800.0


def register(app: typer.Typer) -> None:
    app.command()(prove)
    app.command()(kernels)


@row_options
def prove(options: PlanOptions, as_json: Json = False) -> None:
    """Whether training on trees of ROWS equals training row by row; exit code 1 where not."""
    with sentences():
        found = asked("equivalence", options, options.runnable(), {}, _TIMEOUT_S).last("result")
        assert found is not None  # a job that is done has said its result
        if as_json:
            show(found, True)
        else:
            say(f"{found['verdict']} ({found['sampled']}, {found['model']})")
    if not found["equal"]:
        raise typer.Exit(1)


@row_options
def kernels(
    options: PlanOptions,
    tree: Annotated[int, typer.Option(help="Which tree of the packing.")] = 0,
    backends: Annotated[str, typer.Option(help="Separated by commas; default: all.")] = "",
    repeats: Annotated[int, typer.Option(help="Timed runs of each.")] = 5,
    as_json: Json = False,
) -> None:
    """Check tree attention on a tree of ROWS by every backend, and time it beside plain rows."""
    with sentences():
        plan = options.runnable()
        arguments: dict[str, Any] = {"tree": tree, "repeats": repeats}
        if backends:
            arguments["backends"] = backends.split(",")
        job = asked("kernels", options, plan, arguments, _TIMEOUT_S)
        newest = {event["backend"]: event for event in job.events if event["type"] == "row"}
        problem, result = job.last("problem"), job.last("result")
        assert problem is not None and result is not None
        if as_json:
            show({"problem": problem, "backends": list(newest.values()), "result": result}, True)
            return
        for row in newest.values():
            say(_line(row))
        say(job.message)


def _line(row: Mapping[str, Any]) -> str:
    """A backend in one line: right or wrong, and its milliseconds, or why it did not run."""
    words = [f"{row['backend']:<8}"]
    if "right" in row:
        worst = max(row["errors"].values())
        words.append(f"{'right' if row['right'] else 'WRONG'} (largest error {worst:.1e})")
    for phase in ("forward", "backward"):
        if phase in row:
            time = row[phase]
            words.append(
                f"{phase} {time['median_ms']:,.2f} ms "
                f"({time['p20_ms']:,.2f}-{time['p80_ms']:,.2f}, {time['n']} runs)"
            )
    words += [row[key] for key in ("reason", "backward_reason", "scaled") if key in row]
    return "  ".join(words)
