"""``history``: what was measured: list, compare, export, delete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuning.cli.common import Json, sentences, show

app = typer.Typer(no_args_is_help=True, help="What was measured: list, compare, export, delete.")

Run = Annotated[str | None, typer.Option("--run", help="Only this run.")]


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="history")


@app.command("list")
def list_runs(as_json: Json = False) -> None:
    """Runs, newest first, with the fastest step of each."""
    from tuning.history import runs
    from tuning.store import Store

    with sentences():
        found = [
            {
                "run": run.id,
                "measured_at": run.when,
                "data": run.data,
                "model": run.plan.model,
                "device": run.plan.device,
                "points": len(run.entries),
                "ids": [entry.id for entry in run.entries],
                "fastest_cap": best.point.question.max_tokens_per_mb if best else None,
                "fastest_step_s": best.point.step_s if best else None,
            }
            for run in runs(Store())
            for best in [run.fastest]
        ]
        if as_json:
            show({"runs": found}, True)
            return
        for one in found:
            step = one["fastest_step_s"]
            fastest = f"{one['fastest_cap']:,}: {step:.3f} s" if step else "nothing measured"
            typer.echo(
                f"{one['run']}  {str(one['measured_at'])[:16]}  {one['model']} on {one['device']}  "
                f"{one['points']} points  {fastest}"
            )


@app.command()
def compare(first: str, second: str, as_json: Json = False) -> None:
    """Two runs side by side, cap by cap."""
    from tuning.history import compare as compared
    from tuning.store import Store

    with sentences():
        records = compared(Store(), first, second)
        if as_json:
            show({"points": records}, True)
            return
        for one in records:
            sides = [
                f"{one[f'{side}_s']:.3f} s ({one[f'{side}_kind']})" if one[f"{side}_s"] else "-"
                for side in ("first", "second")
            ]
            ratio = f"{one['ratio']:.2f}x" if one["ratio"] else ""
            cap = format(one["max_tokens_per_mb"], ",")
            typer.echo(f"{one['mode']:<7} {cap:>9}  {sides[0]:<22} {sides[1]:<22} {ratio}")


@app.command()
def export(file: Path, run: Run = None) -> None:
    """Write points to FILE, a .csv or .parquet."""
    from tuning.history import export as written
    from tuning.store import Store

    with sentences():
        entries = Store().entries(run=run)
        written(entries, file)
        typer.echo(f"{len(entries):,} points in {file}")


@app.command()
def delete(ids: list[int]) -> None:
    """Delete points by their ids (`list --json` shows them)."""
    from tuning.store import Store

    with sentences():
        store = Store()
        known = {entry.id for entry in store.entries()}
        unknown = [i for i in ids if i not in known]
        if unknown:
            raise ValueError(f"no point has the id {unknown[0]}")
        store.delete(ids)
        typer.echo(f"{len(ids):,} points deleted")
