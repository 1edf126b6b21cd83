"""``report``, ``save`` and ``import``: results to show and to carry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuning.cli.common import Json, say, sentences, show

if TYPE_CHECKING:
    from tuning.workspace.workspace import Workspace

What = Annotated[
    str,
    typer.Argument(
        metavar="PLAN_OR_RUN",
        help="A workspace file, a run of the history, or a JSON file that `sweep --json` printed.",
    ),
]
Out = Annotated[Path, typer.Option("-o", "--output", help="The file to write.")]


def register(app: typer.Typer) -> None:
    app.command()(report)
    app.command()(save)
    app.command("import")(take_in)


def report(
    what: What,
    output: Out,
    tables: Annotated[Path | None, typer.Option(help="Also each table as CSV, here.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Also each figure as SVG, here.")] = None,
    config: Annotated[Path | None, typer.Option(help="Your AReaL config, for the doctor.")] = None,
    with_text: Annotated[
        bool, typer.Option("--with-text", help="Show text of the dataset where sharing breaks.")
    ] = False,
    gpu_run: Annotated[
        Path | None,
        typer.Option(help="JSON of `python -m benchmarks.gpu`; default: the one kept here."),
    ] = None,
) -> None:
    """One HTML file to show a team: the pick, why, before and after, evidence, config."""
    from tuning.measure.gpu_run import kept_gpu_run, load_gpu_run
    from tuning.report import render_report, write_figures, write_tables

    with sentences():
        workspace = found(what)
        text = config.read_text(encoding="utf-8") if config else ""
        run = load_gpu_run(gpu_run) if gpu_run else kept_gpu_run()
        output.write_text(render_report(workspace, text, with_text, run), encoding="utf-8")
        written = [output]
        if tables is not None:
            written += write_tables(workspace, tables)
        if figures is not None:
            written += write_figures(workspace, figures)
        for path in written:
            say(str(path))


def save(
    what: What,
    output: Out,
    rows: Annotated[bool, typer.Option("--rows", help="Also the rows, as token ids.")] = False,
) -> None:
    """A workspace file: plan, points, sweep and counted figures, to open on another machine."""
    from tuning.workspace.file import save_workspace

    with sentences():
        save_workspace(output, found(what), rows)
        say(str(output))


def take_in(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workspace file.")],
    as_json: Json = False,
) -> None:
    """Add a workspace file's points and sweep to those here, and its rows if they came along."""
    from urllib.parse import urlencode

    from tuning.jobs.store import Store
    from tuning.workspace.file import open_workspace
    from tuning.workspace.here import take_in as taken_in

    with sentences():
        workspace = open_workspace(file)
        taken = taken_in(workspace, Store())
        show(
            {
                "points": len(workspace.points),
                "new points": taken.new_points,
                "fingerprint": workspace.fingerprint,
                "link": "/tune?" + urlencode(taken.plan.to_query()),
            },
            as_json,
        )


def found(what: str) -> Workspace:
    """What PLAN_OR_RUN names. Raises WorkspaceError where it names nothing."""
    from tuning.jobs.store import Store
    from tuning.workspace.file import open_workspace, read_sweep_file
    from tuning.workspace.workspace import Workspace

    path = Path(what)
    if not path.is_file():
        return Workspace.of_run(what, Store()).counted()
    if path.suffix != ".json":
        return open_workspace(path)
    plan, sweep = read_sweep_file(path)
    return Workspace.of_plan(plan, sweep, Store())
