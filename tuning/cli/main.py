"""The commands that read rows and pack them; the others join from their own modules."""

from __future__ import annotations

from typing import Annotated

import typer

from tuning.cli import config, history, kernels, report, rows, sweep
from tuning.cli.common import Cap, Json, Prompts, RowOptions, Samples, row_options, sentences, show
from tuning.plan.batch import Batch, batch_rows
from tuning.plan.plan import TuningPlan

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pack rollouts into prefix trees as AReaL will, measure steps, pick max_tokens_per_mb.",
)


@app.command()
@row_options
def pack(
    options: RowOptions,
    cap: Cap,
    packer: Annotated[str, typer.Option(help="areal or prefix-aware.")] = "areal",
    prompts: Prompts = 0,
    samples: Samples = 0,
    as_json: Json = False,
) -> None:
    """Pack ROWS into trees of at most --cap tokens."""
    with sentences():
        if packer not in ("areal", "prefix-aware"):
            raise ValueError(f"--packer is areal or prefix-aware, not {packer}")
        bench = Batch.of(
            options.read(), TuningPlan(prompts_per_step=prompts, samples_per_prompt=samples)
        )
        least = bench.bounds(cap)
        show(
            {"rows": len(bench.rows)}
            | bench.metrics(cap, packer).to_json()
            | {"bound_trees": least.trees, "bound_tokens": least.tokens},
            as_json,
        )


@app.command()
@row_options
def chain(
    options: RowOptions,
    cap: Cap,
    dp: Annotated[int, typer.Option(help="Data-parallel ranks.")] = 1,
    ppo_n_minibatches: Annotated[int, typer.Option(help="Minibatches of an update.")] = 4,
    mode: Annotated[str, typer.Option(help="controller or spmd.")] = "controller",
    prompts: Prompts = 0,
    samples: Samples = 0,
    as_json: Json = False,
) -> None:
    """One batch of ROWS as AReaL trains it: ranks, minibatches, trees, dummies, what is paid."""
    from packing.batch.pipeline import simulate
    from packing.batch.simulation import BatchSpec

    with sentences():
        rows = batch_rows(
            options.read(), TuningPlan(prompts_per_step=prompts, samples_per_prompt=samples)
        )
        if mode not in ("controller", "spmd"):
            raise ValueError(f"--mode is controller or spmd, not {mode}")
        plan = BatchSpec(
            cap,
            dp_size=dp,
            ppo_n_minibatches=ppo_n_minibatches,
            mode="spmd" if mode == "spmd" else "controller",
        )
        whole = simulate(rows, plan)
        # The summary's fields stand at the top, as in AReaL's own figures; the rest is detail.
        show(whole.summary() | whole.to_json(), as_json)


rows.register(app)
config.register(app)
sweep.register(app)
kernels.register(app)
history.register(app)
report.register(app)
