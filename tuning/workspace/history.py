"""The run history for people: runs, tables, files, and what it knows of a plan or a run."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packing.rows import Rows
from tuning.jobs.jobs import Jobs, JobView, load_rows
from tuning.jobs.store import Entry, Store
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import SweepResult, question_of
from tuning.workspace.rows import kept_rows
from tuning.workspace.workspace import SavedPoint, Workspace, points_of


class HistoryError(ValueError):
    """A run or a file name cannot be used; the message says which there are."""


@dataclass(frozen=True)
class Run:
    """The points that one job measured, newest point first."""

    id: str
    plan: TuningPlan
    entries: tuple[Entry, ...]

    @property
    def when(self) -> str:
        return self.entries[0].point.measured_at

    @property
    def data(self) -> str:
        return self.entries[0].point.question.data

    @property
    def fastest(self) -> Entry | None:
        """The fastest measured step with trees."""
        trees = [
            entry
            for (mode, _), entry in newest(self.entries).items()
            if mode == "tree" and entry.point.outcome == "measured" and entry.point.step_s
        ]
        return min(trees, key=lambda e: e.point.step_s or 0.0, default=None)


def newest(entries: Sequence[Entry]) -> dict[tuple[str, int], Entry]:
    """The newest point of each mode and cap, of ``entries`` newest first: a run-off replaces."""
    found: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        question = entry.point.question
        found.setdefault((question.mode, question.max_tokens_per_mb), entry)
    return found


def runs(store: Store, data: str | None = None) -> list[Run]:
    """Runs, newest first; of one data fingerprint where given."""
    by_run: dict[str, list[Entry]] = {}
    for entry in store.entries(data=data):
        by_run.setdefault(entry.run, []).append(entry)
    return [Run(name, entries[0].plan, tuple(entries)) for name, entries in by_run.items()]


def table(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """One flat record a point: the question, the answer, features and phases by name."""
    records = []
    for entry in entries:
        point = entry.point
        record: dict[str, Any] = {"id": entry.id, "run": entry.run, "device": entry.plan.device}
        record |= vars(point.question)
        record |= {
            "outcome": point.outcome,
            "step_s": point.step_s,
            "p20_s": point.p20_s,
            "p80_s": point.p80_s,
            "repeats": point.repeats,
            "logp_s": point.logp_s,
            "tokens_per_s": point.tokens_per_s,
            "n_trees": point.n_trees,
            "original_tokens": point.original_tokens,
            "tree_tokens": point.tree_tokens,
            "padded_tokens": point.padded_tokens,
            "memory_bytes": point.memory_bytes,
            "memory_kind": point.memory_kind,
            "loss": point.loss,
            "message": point.message,
            "measured_at": point.measured_at,
        }
        record |= {f"{name}_s": value for name, value in point.phases_s.items()}
        record |= {f"feature_{name}": value for name, value in point.features.items()}
        record |= {f"version_{name}": value for name, value in point.versions.items()}
        records.append(record)
    return records


def export(entries: Sequence[Entry], path: Path) -> None:
    """Write points as ``.csv`` or ``.parquet``. Raises HistoryError for another ending."""
    records = table(entries)
    columns = list(dict.fromkeys(name for record in records for name in record))
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(records)
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        data = {name: [record.get(name) for record in records] for name in columns}
        pq.write_table(pa.table(data), path)
    else:
        raise HistoryError(f"{path.name}: the history is written as .csv or .parquet")


def workspace_of_plan(plan: TuningPlan, rows: Rows | None, store: Store, jobs: Jobs) -> Workspace:
    """A plan with what this machine knows of it on these rows: measured points, its newest sweep.

    rows: the plan's batch; None where it is not at hand, and nothing is known then
    """
    if rows is None:
        return Workspace(plan)
    data = rows.fingerprint
    job = jobs.newest("sweep", data=data, question=question_of(plan))
    points = tuple(points_of(plan, data, store))
    return Workspace(plan, points=points, sweep=_sweep_of(job), rows=rows)


def workspace_of_run(
    run: str, store: Store, jobs: Jobs, read: Callable[[TuningPlan], Rows | None]
) -> Workspace:
    """A run at the cap that it picked, with its points, its sweep, and its rows where they are.

    read: the batch of a plan from its source; taken where it is still what was measured
    Raises HistoryError for an unknown run.
    """
    entries = store.entries(run=run)
    if not entries:
        known = ", ".join(r.id for r in runs(store)[:5]) or "none yet"
        raise HistoryError(f"no run is called {run!r}; the newest are {known}")
    folder = jobs.folder / Path(run).name
    sweep = _sweep_of(jobs.view(folder.name)) if (folder / "job.json").is_file() else None
    plan, data = entries[0].plan, entries[0].point.question.data
    if sweep is not None and sweep.pick is not None and sweep.pick.mode == "tree":
        plan = replace(plan, max_tokens_per_mb=sweep.pick.max_tokens_per_mb)
    rows = load_rows(folder / "rows.npz") if (folder / "rows.npz").is_file() else read(plan)
    if rows is None or rows.fingerprint != data:
        rows = kept_rows(data)
    points = tuple(SavedPoint(e.run, e.plan, e.point) for e in entries)
    return Workspace(plan, points=points, sweep=sweep, rows=rows)


def _sweep_of(job: JobView | None) -> SweepResult | None:
    event = None if job is None else job.last("result")
    return None if event is None else SweepResult.from_json(event["result"])
