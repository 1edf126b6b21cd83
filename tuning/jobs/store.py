"""The run history: every measured point with its whole plan, in one SQLite file.

Notable:
- the worker writes a point the moment it is measured, so that nothing is lost with a browser, a
  server or a worker
- write-ahead log: pages read while a worker writes; a rollback journal on a network file system,
  where the log's shared memory does not work
- the schema has a number; an older file is brought up to date when it is opened, a newer one is
  refused
- a line that cannot be read ends nothing: it is passed over, and named
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tuning.jobs.folders import data_folder, on_network
from tuning.jobs.host import host
from tuning.jobs.points import Point, plan_of
from tuning.plan.plan import TuningPlan


class StoreError(RuntimeError):
    """The history cannot be read or written; the message says why and what to do."""


@dataclass(frozen=True)
class Entry:
    """A point of the history with the plan that asked for it.

    origin: where it was brought from; empty where this machine measured it
    """

    id: int
    run: str
    plan: TuningPlan
    point: Point
    origin: str = ""

    @property
    def own(self) -> bool:
        """Whether it may answer a question of this machine."""
        return not self.origin and self.point.host in ("", host())


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
        " '$.logp_p80_s', NULL) WHERE json_valid(point)",
    ),
    # Whose rows a point is of, so that they are found before anything is read; where it is from.
    (
        "ALTER TABLE points ADD COLUMN data TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE points ADD COLUMN origin TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX points_data ON points (data, id)",
        "CREATE TABLE aside AS SELECT * FROM points WHERE 0",
    ),
)
"""What brings a file to each version of the schema, from the one before it."""

SCHEMA_VERSION = len(_MIGRATIONS)
_WITH_DATA = 4


class Store:
    """The history in ``path``; by default in the user's data folder.

    unread: why a line cannot be read, by its id, of those that were asked for so far
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_folder() / "history.sqlite"
        self.unread: dict[int, str] = {}
        with self._open() as db:
            version = _version(db)
            if version == SCHEMA_VERSION:
                return
            db.execute("BEGIN IMMEDIATE")  # another process may be at it
            version = _version(db)
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} was written by a newer Espalier (schema {version}, this one "
                    f"knows {SCHEMA_VERSION}); update Espalier or move the file away."
                )
            for statement in itertools.chain(*_MIGRATIONS[version:]):
                db.execute(statement)
            if version < _WITH_DATA:
                _fill_data(db)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def add(self, run: str, plan: TuningPlan, point: Point, origin: str = "") -> None:
        """Keep a point. Raises StoreError where it could not be written (a full disk).

        origin: where it was brought from; it then answers no question of this machine
        """
        question = point.question
        texts = json.dumps(plan.to_json()), json.dumps(point.to_json())
        row = (question.key, run, point.measured_at, *texts, question.data, origin)
        with self._open() as db:
            db.execute(
                "INSERT INTO points (key, run, measured_at, plan, point, data, origin)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def answer(self, key: str) -> Point | None:
        """This machine's newest answer to a question, unless its worker crashed over it."""
        points = (entry.point for entry in self._own(key))
        return next((point for point in points if point.outcome != "crashed"), None)

    def crashes(self, key: str) -> int:
        """How often a worker of this machine died over a question."""
        return sum(entry.point.outcome == "crashed" for entry in self._own(key))

    def _own(self, key: str) -> Iterator[Entry]:
        return (e for e in self._read("key = ? AND origin = ''", [key], -1) if e.own)

    def entries(
        self,
        run: str | None = None,
        data: str | None = None,
        newest: int = 1000,
        own: bool = False,
    ) -> list[Entry]:
        """Points, newest first; of one run or one data fingerprint where given.

        newest: the most of them; what was brought from elsewhere makes room for what was not
        own:    only those that this machine measured
        """
        asked = {"run = ?": run, "data = ?": data, "origin = ?": "" if own else None}
        given = {where: value for where, value in asked.items() if value is not None}
        found = self._read(" AND ".join(given) or "1", list(given.values()), newest)
        return [entry for entry in found if entry.own or not own]

    def _read(self, where: str, values: list[str], newest: int) -> list[Entry]:
        """Lines that can be read, newest first."""
        with self._open() as db:
            rows = db.execute(
                f"SELECT id, run, plan, point, origin FROM points WHERE {where}"
                " ORDER BY origin <> '', id DESC LIMIT ?",
                [*values, newest],
            ).fetchall()
        found = []
        for number, run, plan, point, origin in sorted(rows, reverse=True):
            try:
                plan, point = plan_of(json.loads(plan)), Point.from_json(json.loads(point))
                found.append(Entry(number, run, plan, point, origin))
            except (ValueError, TypeError, RecursionError) as error:
                self.unread[number] = str(error)
        return found

    def delete(self, ids: Sequence[int]) -> None:
        with self._open() as db:
            db.executemany("DELETE FROM points WHERE id = ?", [(i,) for i in ids])

    def probe(self) -> None:
        """Write, and take it back. Raises StoreError where that is not possible."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO aside (id) VALUES (0)")
            db.rollback()

    def set_aside(self) -> None:
        """Move what could not be read out of the way, into a table beside; nothing is deleted."""
        with self._open() as db:
            db.execute("BEGIN")
            for number in self.unread:
                db.execute("INSERT INTO aside SELECT * FROM points WHERE id = ?", (number,))
                db.execute("DELETE FROM points WHERE id = ?", (number,))
        self.unread.clear()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            db = sqlite3.connect(self.path, timeout=10)
            try:
                mode = "DELETE" if on_network(self.path) else "WAL"
                db.execute(f"PRAGMA journal_mode = {mode}")
                with db:
                    yield db
            finally:
                db.close()
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"the run history {self.path} cannot be used ({error}); free disk space, or move "
                "the file away to start a new one."
            ) from error


def _fill_data(db: sqlite3.Connection) -> None:
    """Here and not in SQL, whose JSON knows no NaN, which a loss may be."""
    for number, text in db.execute("SELECT id, point FROM points").fetchall():
        with suppress(ValueError, TypeError, LookupError, RecursionError):
            data = str(json.loads(text)["question"]["data"])
            db.execute("UPDATE points SET data = ? WHERE id = ?", (data, number))


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
