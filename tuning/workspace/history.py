"""The run history for people: runs, tables, files, and what it knows of a plan or a run."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packing.rows import Rows
from tuning.jobs.jobs import Jobs
from tuning.jobs.store import Entry, Store
from tuning.plan.foreign import cell
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import question_of
from tuning.workspace.workspace import Workspace, points_of, sweep_of

_NESTED = ("question", "phases_s", "features", "versions", "memory_parts", "notes")


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
    def own(self) -> bool:
        """Whether this machine measured it."""
        return self.entries[0].own

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
        record |= {name: value for name, value in vars(point).items() if name not in _NESTED}
        record["tokens_per_s"] = point.tokens_per_s
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
            writer.writerows({k: cell(v) for k, v in record.items()} for record in records)
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
    return Workspace(plan, points=points, sweep=sweep_of(job), rows=rows)
