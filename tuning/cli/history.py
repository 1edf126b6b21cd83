"""``history``: what was measured: list, export, delete; ``compare``: two results side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from packing.prefixes import PrefixOrder
from tuning.cli.common import Json, say, sentences, show

if TYPE_CHECKING:
    from tuning.workspace.compare_side import Side

app = typer.Typer(no_args_is_help=True, help="What was measured: list, export, delete.")

Sided = Annotated[
    str,
    typer.Argument(
        metavar="PLAN_OR_RUN",
        help="A link of the app or its query, such as '?data=sample:math-grpo&cap=4096'; a run of "
        "the history; a workspace file; a JSON file that `sweep --json` printed.",
    ),
]
Run = Annotated[str | None, typer.Option("--run", help="Only this run.")]


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="history")
    main.command()(compare)


@app.command("list")
def list_runs(as_json: Json = False) -> None:
    """Runs, newest first, with the fastest step of each."""
    from tuning.jobs.store import Store
    from tuning.workspace.history import runs

    with sentences():
        store = Store()
        found = [
            {
                "run": run.id,
                "measured_at": run.when,
                "data": run.data,
                "model": run.plan.model,
                "device": run.plan.device,
                "own": run.own,
                "points": len(run.entries),
                "ids": [entry.id for entry in run.entries],
                "fastest_cap": best.point.question.max_tokens_per_mb if best else None,
                "fastest_step_s": best.point.step_s if best else None,
            }
            for run in runs(store)
            for best in [run.fastest]
        ]
        for number, why in store.unread.items():
            say(f"point {number} cannot be read and is passed over: {why}", err=True)
        if as_json:
            show({"runs": found}, True)
            return
        for one in found:
            step = one["fastest_step_s"]
            fastest = f"{one['fastest_cap']:,}: {step:.3f} s" if step else "nothing measured"
            whose = "" if one["own"] else " (a colleague's)"
            say(
                f"{one['run']}  {str(one['measured_at'])[:16]}  {one['model']} on {one['device']}"
                f"{whose}  {one['points']} points  {fastest}"
            )


@app.command()
def export(file: Path, run: Run = None) -> None:
    """Write points to FILE, a .csv or .parquet."""
    from tuning.jobs.store import Store
    from tuning.workspace.history import export as written

    with sentences():
        entries = Store().entries(run=run)
        written(entries, file)
        say(f"{len(entries):,} points in {file}")


@app.command()
def delete(ids: list[int]) -> None:
    """Delete points by their ids (`list --json` shows them)."""
    from tuning.jobs.store import Store

    with sentences():
        store = Store()
        known = {entry.id for entry in store.entries()}
        unknown = [i for i in ids if i not in known]
        if unknown:
            raise ValueError(f"no point has the id {unknown[0]}")
        store.delete(ids)
        say(f"{len(ids):,} points deleted")


def compare(a: Sided, b: Sided, as_json: Json = False) -> None:
    """Two datasets, plans or runs side by side, and their differences as numbers."""
    from tuning.workspace.compare import compare as compared
    from tuning.workspace.compare_text import text_of

    with sentences():
        result = compared(_side(a), _side(b))
        say(json.dumps(result.to_json()) if as_json else text_of(result))


def _side(what: str) -> Side:
    """What PLAN_OR_RUN names. Raises ValueError where it names nothing."""
    from packing.sources.load import load
    from tuning.cli.report import found
    from tuning.jobs.jobs import Jobs
    from tuning.jobs.store import Store
    from tuning.plan.batch import Batch, batch_rows
    from tuning.plan.summary import BatchSummary
    from tuning.workspace.compare_side import side_of
    from tuning.workspace.compare_text import plan_of_link
    from tuning.workspace.history import workspace_of_plan
    from tuning.workspace.workspace import Workspace

    if Path(what).is_file():
        return side_of(found(what), what)
    store = Store()
    if "?" in what:
        plan = plan_of_link(what)
        rows = batch_rows(load(plan.source).rows, plan)
        known = workspace_of_plan(plan, rows, store, Jobs(store=store))
    else:
        known = Workspace.of_run(what, store)
    if known.rows is None:
        return side_of(known, what)
    batch = Batch(known.rows, PrefixOrder.of(known.rows))
    return side_of(known, what, BatchSummary.of(batch, known.plan, detail=False))
