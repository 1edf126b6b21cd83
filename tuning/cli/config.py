"""``check`` and ``export``: what AReaL will say to a config, and a config it will take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from tuning.cli.common import Cap, Json, Prompts, RowOptions, Samples, row_options, sentences

_VERSIONS = "AReaL version: 1.0.4, main or tree_training_mode."


def register(app: typer.Typer) -> None:
    app.command()(check)
    app.command()(export)


def check(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="An AReaL YAML.")],
    rows: Annotated[
        str | None, typer.Argument(metavar="[ROWS]", help="Rows for the rules about data.")
    ] = None,
    version: Annotated[str, typer.Option(help=_VERSIONS)] = "1.0.4",
    memory: Annotated[float, typer.Option(help="GiB of one GPU, for the rules on memory.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Say what tree training will do with CONFIG; exit code 1 where it fails or goes wrong."""
    from tuning.doctor import doctor

    with sentences():
        batch = RowOptions(rows).read() if rows else None
        report = doctor.check(
            config, batch, version=_choice("--version", version), memory_budget_gib=memory
        )
    typer.echo(json.dumps(report.to_json()) if as_json else doctor.describe(report))
    raise typer.Exit(report.exit_code)


@row_options
def export(
    options: RowOptions,
    cap: Cap,
    engine: Annotated[str, typer.Option(help="fsdp, megatron or archon.")] = "fsdp",
    model: Annotated[str, typer.Option(help="The model's path or Hub id.")] = "",
    dp: Annotated[int, typer.Option(help="Data-parallel ranks.")] = 1,
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks.")] = 1,
    ppo_n_minibatches: Annotated[int, typer.Option(help="Minibatches of an update.")] = 1,
    target: Annotated[str, typer.Option(help=_VERSIONS)] = "1.0.4",
    form: Annotated[
        str, typer.Option(help="yaml, fragment, overrides, python, trl or verl.")
    ] = "yaml",
    prompts: Prompts = 0,
    samples: Samples = 0,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write to a file.")] = None,
) -> None:
    """Print a config with tree training on that will not fail after the first rollout."""
    from tuning.export.evidence import evidence_of
    from tuning.export.export import FORMS, render
    from tuning.jobs.store import Store
    from tuning.plan.batch import Batch
    from tuning.plan.plan import TuningPlan

    with sentences():
        plan = TuningPlan.from_json(
            {
                "source": options.spec().to_json(),
                "max_tokens_per_mb": cap,
                "engine": engine,
                "dp_size": dp,
                "tp_size": tp,
                "ppo_n_minibatches": ppo_n_minibatches,
                "prompts_per_step": prompts,
                "samples_per_prompt": samples,
            }
            | ({"model": model} if model else {})
        )
        if plan.problems():
            raise ValueError(" ".join(plan.problems()))
        if form not in FORMS:
            raise ValueError(f"--form is one of {', '.join(FORMS)}, not {form}")
        bench = Batch.of(options.read(), plan)
        points = [entry.point for entry in Store().entries(data=bench.rows.fingerprint)]
        evidence = evidence_of(bench, plan, points)
        text = render(plan, evidence, _choice("--target", target), form)
        if out is not None:
            out.write_text(text)
    if out is None:
        typer.echo(text, nl=not text.endswith("\n"))


def _choice(option: str, version: str) -> Any:
    from tuning.areal.schema import Version

    known = get_args(Version)
    if version not in known:
        raise ValueError(f"{option} is one of {', '.join(known)}, not {version}")
    return version
