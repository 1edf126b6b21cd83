"""The run history: every measured point with its whole plan, in one SQLite file.

Notable:
- the worker writes a point the moment it is measured, so that nothing is lost with a browser, a
  server or a worker
- write-ahead log: pages read while a worker writes
- the schema has a number; an older file is brought up to date when it is opened, a newer one is
  refused
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuning.jobs.folders import data_folder
from tuning.jobs.points import Point
from tuning.plan.plan import TuningPlan


class StoreError(RuntimeError):
    """The history cannot be read or written; the message says why and what to do."""


@dataclass(frozen=True)
class Entry:
    """A point of the history with the plan that asked for it."""

    id: int
    run: str
    plan: TuningPlan
    point: Point


_MIGRATIONS = (
    (
        "CREATE TABLE points (id INTEGER PRIMARY KEY, key TEXT NOT NULL, run TEXT NOT NULL,"
        " measured_at TEXT NOT NULL, plan TEXT NOT NULL, point TEXT NOT NULL)",
        "CREATE INDEX points_key ON points (key, id)",
    ),
    ("CREATE INDEX points_run ON points (run, id)",),
    # Points carry the time of ``compute_logp``; older ones say that nobody measured it.
    (
        "UPDATE points SET point = json_set(point, '$.logp_s', NULL, '$.logp_p20_s', NULL,"
        " '$.logp_p80_s', NULL)",
    ),
)
"""What brings a file to each version of the schema, from the one before it."""

SCHEMA_VERSION = len(_MIGRATIONS)


class Store:
    """The history in ``path``; by default in the user's data folder."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_folder() / "history.sqlite"
        with self._open() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} was written by a newer Espalier (schema {version}, this one "
                    f"knows {SCHEMA_VERSION}); update Espalier or move the file away."
                )
            for statement in itertools.chain(*_MIGRATIONS[version:]):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def add(self, run: str, plan: TuningPlan, point: Point) -> None:
        """Keep a point. Raises StoreError where it could not be written (a full disk)."""
        row = (
            point.question.key,
            run,
            point.measured_at,
            json.dumps(plan.to_json()),
            json.dumps(point.to_json()),
        )
        with self._open() as db:
            db.execute(
                "INSERT INTO points (key, run, measured_at, plan, point) VALUES (?, ?, ?, ?, ?)",
                row,
            )

    def answer(self, key: str) -> Point | None:
        """The newest answer to a question, unless its worker crashed over it."""
        with self._open() as db:
            rows = db.execute("SELECT point FROM points WHERE key = ? ORDER BY id DESC", (key,))
            points = (Point.from_json(json.loads(text)) for (text,) in rows)
            return next((p for p in points if p.outcome != "crashed"), None)

    def crashes(self, key: str) -> int:
        """How often a worker died over a question."""
        with self._open() as db:
            rows = db.execute("SELECT point FROM points WHERE key = ?", (key,)).fetchall()
        return sum(json.loads(text)["outcome"] == "crashed" for (text,) in rows)

    def entries(
        self, run: str | None = None, data: str | None = None, newest: int = 1000
    ) -> list[Entry]:
        """Points, newest first; of one run or one data fingerprint where given."""
        where, values = "", []
        if run is not None:
            where, values = "WHERE run = ?", [run]
        with self._open() as db:
            rows = db.execute(
                f"SELECT id, run, plan, point FROM points {where} ORDER BY id DESC LIMIT ?",
                [*values, newest],
            ).fetchall()
        entries = [
            Entry(i, r, TuningPlan.from_json(json.loads(p)), Point.from_json(json.loads(q)))
            for i, r, p, q in rows
        ]
        return [e for e in entries if data is None or e.point.question.data == data]

    def delete(self, ids: Sequence[int]) -> None:
        with self._open() as db:
            db.executemany("DELETE FROM points WHERE id = ?", [(i,) for i in ids])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            db = sqlite3.connect(self.path, timeout=10)
            try:
                db.execute("PRAGMA journal_mode = WAL")
                with db:
                    yield db
            finally:
                db.close()
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"the run history {self.path} cannot be used ({error}); free disk space, or move "
                "the file away to start a new one."
            ) from error
