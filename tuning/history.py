"""The run history for people: runs, tables, files, and two runs side by side."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuning.plan import TuningPlan
from tuning.store import Entry, Store


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


def compare(store: Store, first: str, second: str) -> list[dict[str, Any]]:
    """Two runs side by side: a record for each mode and cap that either has timed.

    ``ratio`` is the second's step over the first's. Raises HistoryError for an unknown run.
    """
    sides = []
    for run in (first, second):
        entries = store.entries(run=run)
        if not entries:
            known = ", ".join(r.id for r in runs(store)[:5]) or "none yet"
            raise HistoryError(f"no run is called {run!r}; the newest are {known}")
        sides.append(newest(entries))
    records = []
    for mode, cap in sorted(sides[0].keys() | sides[1].keys(), key=lambda k: (k[0] != "tree", k)):
        a, b = (side.get((mode, cap)) for side in sides)
        a_s, b_s = (None if e is None else e.point.step_s for e in (a, b))
        records.append(
            {
                "mode": mode,
                "max_tokens_per_mb": cap,
                "first_s": a_s,
                "first_kind": None if a is None else a.point.outcome,
                "second_s": b_s,
                "second_kind": None if b is None else b.point.outcome,
                "ratio": b_s / a_s if a_s and b_s else None,
            }
        )
    return records


def differences(first: TuningPlan, second: TuningPlan) -> dict[str, tuple[Any, Any]]:
    """Fields in which two plans differ."""
    return {
        name: (value, getattr(second, name))
        for name, value in vars(first).items()
        if value != getattr(second, name)
    }
