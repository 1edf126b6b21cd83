"""``check`` and ``export``: what AReaL will say to a config, and a config it will take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from tuning.cli.common import Json, PlanOptions, RowOptions, row_options, sentences

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
    options: PlanOptions,
    target: Annotated[str, typer.Option(help=_VERSIONS)] = "1.0.4",
    form: Annotated[
        str, typer.Option(help="yaml, fragment, overrides, python, trl or verl.")
    ] = "yaml",
    ref: Annotated[bool, typer.Option("--ref", help="A reference model runs (kl_ctl > 0).")] = (
        False
    ),
    trees: Annotated[bool, typer.Option(help="Whether trees are turned on.")] = True,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write to a file.")] = None,
) -> None:
    """Print a config with tree training on that will not fail after the first rollout."""
    from tuning.export.evidence import evidence_of
    from tuning.export.export import FORMS, render
    from tuning.jobs.store import Store

    with sentences():
        plan = options.runnable()
        if form not in FORMS:
            raise ValueError(f"--form is one of {', '.join(FORMS)}, not {form}")
        batch = options.batch(plan)
        points = [entry.point for entry in Store().entries(data=batch.rows.fingerprint)]
        evidence = evidence_of(batch, plan, points)
        version = _choice("--target", target)
        text = render(plan, evidence, version, form, with_ref=ref, trees=trees)
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
