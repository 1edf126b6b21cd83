"""The commands that read rows and pack them; the others join from their own modules."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from packing.batch.pipeline import as_they_stand
from packing.batch.refusal import BatchRefused
from packing.batch.simulation import BatchSimulation
from tuning.cli import advise, config, count, history, kernels, report, rows, sweep
from tuning.cli.common import Json, PlanOptions, row_options, sentences, show
from tuning.plan.batch import Batch, batch_spec
from tuning.plan.plan import TuningPlan

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pack rollouts into prefix trees as AReaL will, measure steps, pick max_tokens_per_mb.",
)


Order = Annotated[
    str,
    typer.Option(
        help="plan: as AReaL deals the batch out; file: plain packing of ROWS on one rank."
    ),
]


@app.command()
@row_options
def pack(options: PlanOptions, order: Order = "plan", as_json: Json = False) -> None:
    """Pack ROWS into trees of at most --cap tokens, over the plan's ranks and minibatches."""
    with sentences():
        plan = options.plan()
        batch = options.batch(plan)
        if order not in ("plan", "file"):
            raise ValueError(f"--order is plan or file, not {order}")
        found = simulated(batch, plan, as_json, as_it_stands=order == "file").figures()
        show({"rows": len(batch.rows), "order": order} | made_up(plan) | found, as_json)


@app.command()
@row_options
def chain(options: PlanOptions, as_json: Json = False) -> None:
    """One batch of ROWS as AReaL trains it: ranks, minibatches, trees, dummies, what is paid."""
    with sentences():
        plan = options.plan()
        simulation = simulated(options.batch(plan), plan, as_json)
        # The summary's fields stand at the top, as in AReaL's own figures; the rest is detail.
        show(simulation.summary() | made_up(plan) | simulation.to_json(), as_json)


def made_up(plan: TuningPlan) -> dict[str, bool]:
    """What must be said beside figures of completions that nobody sampled."""
    return {} if plan.source.simulate is None else {"simulated": True}


def simulated(
    batch: Batch, plan: TuningPlan, as_json: bool, as_it_stands: bool = False
) -> BatchSimulation:
    """What AReaL does with the batch; ends the command where it would stop.

    as_it_stands: packed on one rank in the order of the file, whatever AReaL would deal to whom
    """
    try:
        if as_it_stands:
            alone = replace(batch_spec(plan), dp_size=1, ppo_n_minibatches=1)
            return as_they_stand(batch.rows, batch.order).packed(alone)
        return batch.simulation(plan)
    except BatchRefused as refused:
        if not as_json:
            raise
        show({"refused": refused.words, "mend": refused.mend, "fixes": refused.fixes}, True)
        raise typer.Exit(1) from None


advise.register(app)
rows.register(app)
config.register(app)
count.register(app)
sweep.register(app)
kernels.register(app)
history.register(app)
report.register(app)
