"""``advise``: the first screen as text and JSON, and a gate for a team's CI."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tuning.cli.common import Json, PlanOptions, row_options, say, sentences
from tuning.cli.sweep import asked

_PATIENCE_S = 600.0


def register(app: typer.Typer) -> None:
    app.command()(advise)


@row_options
def advise(
    options: PlanOptions,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(help='Exit with 1 where FIGURE OP NUMBER holds, such as "paid>1".'),
    ] = None,
    price: Annotated[float, typer.Option(help="Of an hour of one GPU, for what is saved.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Is tree training worth it on ROWS, at which cap, resting on what, and what comes next.

    Exit code 1 where AReaL stops at the plan, and where a gate does.
    """
    from tuning.advice import advise as advised
    from tuning.advice import broken_gates, known_sweep
    from tuning.areal.config import ArealConfig
    from tuning.jobs.jobs import Jobs
    from tuning.jobs.store import Store
    from tuning.plan.gpus import gpu_named
    from tuning.workspace import workspace_of_plan

    with sentences():
        plan = options.plan()
        config = None if options.config is None else ArealConfig.read(options.config)
        batch, store = options.batch(plan), Store()
        sweep = None
        if batch.refusal(plan) is None:
            known = workspace_of_plan(plan, batch.rows, store, Jobs(store=store))
            points = [saved.point for saved in known.points]
            sweep = known_sweep(batch, plan, known.sweep, points)
            if sweep is None and gpu_named(plan.device) is not None:
                # A sweep for a GPU that is not here only estimates, in a few seconds.
                asked("sweep", options, plan, {"budget_s": 60.0}, _PATIENCE_S)
                sweep = workspace_of_plan(plan, batch.rows, store, Jobs(store=store)).sweep
        advice = advised(batch, plan, sweep, config, price)
        broken = broken_gates(fail_if or (), advice.figures)
        if as_json:
            say(json.dumps(advice.to_json() | {"broken_gates": broken}))
        else:
            say(advice.text())
        for sentence in broken:
            say(f"failed: {sentence}", err=True)
        if broken or advice.answer == "refused":
            raise typer.Exit(1)
