"""``check`` and ``export``: what AReaL will say to a config, and a config it will take."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from tuning.cli.common import Json, PlanOptions, RowOptions, row_options, say, sentences

if TYPE_CHECKING:
    from tuning.areal.config import ArealConfig
    from tuning.doctor.check import Answer, Areal
    from tuning.plan.batch import Batch
    from tuning.plan.plan import TuningPlan

_VERSIONS = "AReaL version: 1.0.3, 1.0.4, v1.0.4, 2.0.0, main or tree_training_mode."


def register(app: typer.Typer) -> None:
    app.command()(check)
    app.command()(export)


def check(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="An AReaL YAML; - is stdin.")],
    rows: Annotated[
        str | None, typer.Argument(metavar="[ROWS]", help="Rows for the rules about data.")
    ] = None,
    version: Annotated[str, typer.Option(help=_VERSIONS)] = "1.0.4",
    memory: Annotated[float, typer.Option(help="GiB of one GPU, for the rules on memory.")] = 0.0,
    areal: Annotated[
        str, typer.Option(help="installed, or a folder that holds areal/: ask that AReaL too.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Say what AReaL will do with CONFIG; exit code 1 where it fails or goes wrong.

    Green means that nothing was found and everything looked at; else the verdict says what was
    not checked. With --json one JSON object is printed in any case.
    """
    from tuning.areal.config import ArealConfig
    from tuning.doctor import check as asking
    from tuning.doctor import doctor

    try:
        asked = asking.find_areal(None if areal == "installed" else areal) if areal else None
        if areal and asked is None:
            raise ValueError(f"--areal {areal}: no AReaL is there.")
        if not 0 <= memory < float("inf"):
            raise ValueError(f"--memory is {memory:g}; write the GiB of one GPU, or 0.")
        target = _choice("--version", version) if asked is None else asked.nearest
        batch = RowOptions(rows).read() if rows else None
        read = ArealConfig.read(sys.stdin.buffer.read() if config == "-" else Path(config))
        report = doctor.check(read, batch, version=target, memory_budget_gib=memory)
        answer = None if asked is None else _asked(read, asked)
    except (ValueError, RuntimeError, OSError) as error:
        if as_json:
            say(json.dumps(_unread(str(error))))
        else:
            say(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    refused = answer is not None and not answer.accepted
    code = 1 if refused else report.exit_code
    if as_json:
        own = {} if answer is None else {"areal": answer.sentence}
        say(json.dumps(report.to_json() | own | {"exit_code": code}))
    else:
        say(doctor.describe(report))
        if answer is not None:
            say(f"\n{answer.sentence}")
    raise typer.Exit(code)


def _asked(config: ArealConfig, areal: Areal) -> Answer | None:
    """AReaL's own answer to a whole config; None where it has no class for the file."""
    from tuning.doctor.check import validate

    if config.fragment or not config.class_name:
        return None
    return validate(config.yaml.text, areal=areal)


def _unread(error: str) -> dict[str, Any]:
    """The JSON of a file that could not be looked at."""
    return {
        "verdict": f"Nothing was checked: {error}",
        "error": error,
        "green": False,
        "errors": 1,
        "exit_code": 1,
        "findings": [],
        "checked": [],
        "not_checked": ["everything"],
    }


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
    base: Annotated[
        Path | None, typer.Option(help="Your own AReaL YAML: print it tuned, engine and batch its.")
    ] = None,
    trees: Annotated[
        bool | None,
        typer.Option("--trees/--no-trees", help="Default: on, unless the count says they lose."),
    ] = None,
    set_minibatches: Annotated[
        bool, typer.Option(help="With --base: write --ppo-n-minibatches into the file too.")
    ] = False,
    diff: Annotated[bool, typer.Option(help="With --base: print the changes only.")] = False,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write to a file.")] = None,
) -> None:
    """Print a config with tree training on that will not fail after the first rollout."""
    from tuning.export.evidence import evidence_of
    from tuning.export.export import FORMS, render
    from tuning.jobs.store import Store

    with sentences():
        version = _choice("--target", target)
        if base is not None:
            text = _tuned(base, options, options.plan(), version, trees, set_minibatches, diff)
            _give(text, out)
            return
        plan = options.runnable()
        if form not in FORMS:
            raise ValueError(f"--form is one of {', '.join(FORMS)}, not {form}")
        batch = options.batch(plan)
        points = [entry.point for entry in Store().entries(data=batch.rows.fingerprint, own=True)]
        evidence = evidence_of(batch, plan, points)
        on = _worth_it(batch, plan) if trees is None else trees
        _give(render(plan, evidence, version, form, with_ref=ref, trees=on), out)


def _give(text: str, out: Path | None) -> None:
    if out is not None:
        out.write_bytes(text.encode())  # line ends stay the file's
    else:
        say(text.removesuffix("\n"))


def _worth_it(batch: Batch, plan: TuningPlan) -> bool:
    """Whether trees compute fewer tokens than flat rows; where not, it is said."""
    from tuning.export.evidence import trees_lose

    if problem := trees_lose(batch, plan):
        say(f"{problem} Tree training is left off; --trees turns it on.", err=True)
    return not problem


def _tuned(
    base: Path,
    options: PlanOptions,
    plan: TuningPlan,
    target: Any,
    trees: bool | None,
    minibatches: bool,
    diff: bool,
) -> str:
    """The user's file with the plan's settings, or the changes; notes go to standard error."""
    from dataclasses import replace
    from functools import partial

    from tuning.areal.config import ArealConfig
    from tuning.export.tune import tune_config
    from tuning.plan.from_config import fill_plan

    config = ArealConfig.read(base)
    filled, _ = fill_plan(config, plan)
    asked = replace(filled, max_tokens_per_mb=plan.max_tokens_per_mb)
    if minibatches:
        asked = replace(asked, ppo_n_minibatches=plan.ppo_n_minibatches)
    batch = options.batch(asked)
    tune = partial(tune_config, config, asked, target, rows=batch.rows, minibatches=minibatches)
    tuned = tune(trees=trees is not False)
    if trees is None and tuned.after.tree_on and not _worth_it(batch, asked):
        tuned = tune(trees=False)
    for note in (*tuned.notes, f"Before: {tuned.before.verdict}", f"After: {tuned.after.verdict}"):
        say(note, err=True)
    return config.diff(tuned.config, base.name) if diff else tuned.text


def _choice(option: str, version: str) -> Any:
    from tuning.areal.schema import Version

    known = get_args(Version)
    if version not in known:
        raise ValueError(f"{option} is one of {', '.join(known)}, not {version}")
    return version
