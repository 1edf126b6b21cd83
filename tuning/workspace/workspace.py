"""Workspace: one plan with everything known of it, from wherever it was worked out.

A report and a saved file need nothing else: the batch's counted figures, measured points with
their whole plans, a sweep, where rows come from, and the rows themselves where they are wanted.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.sources.errors import SourceError
from packing.sources.load import load, tokenizer_named
from packing.sources.loaded import Provenance
from tuning.jobs.folders import jobs_folder
from tuning.jobs.jobs import Jobs, load_rows
from tuning.jobs.points import Point, Question
from tuning.jobs.store import Store
from tuning.plan.batch import Batch, batch_rows
from tuning.plan.commands import PROGRAM
from tuning.plan.plan import Layout, TuningPlan
from tuning.plan.summary import BatchSummary
from tuning.sweep.result import SweepResult
from tuning.workspace.rows import kept_rows, tags_of

_PACKAGES = ("torch", "transformers", "numpy", "pyarrow")


class WorkspaceError(ValueError):
    """A workspace cannot be made, saved or opened; the message says why and what to do."""


@dataclass(frozen=True)
class SavedPoint:
    """A measured point as the history holds it."""

    run: str
    plan: TuningPlan
    point: Point


@dataclass(frozen=True, eq=False)
class Workspace:
    """One plan and what is known of it.

    batch:       counted figures; None where the rows were not at hand
    provenance:  where the rows come from; None where it is not known
    rows:        the batch itself, where it is wanted
    versions:    packages that counted; each point has its own
    notes:       sentences about what is missing
    tags:        what must be said beside every figure: "synthetic", "simulated"
    """

    plan: TuningPlan
    batch: BatchSummary | None = None
    points: tuple[SavedPoint, ...] = ()
    sweep: SweepResult | None = None
    provenance: Provenance | None = None
    rows: Rows | None = field(default=None, repr=False)
    made_at: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Of the batch's rows; empty where neither rows nor a point tell."""
        if self.batch is not None:
            return self.batch.fingerprint
        return self.points[0].point.question.data if self.points else ""

    @classmethod
    def of(
        cls,
        plan: TuningPlan,
        rows: Rows | Batch | None = None,
        points: Iterable[SavedPoint] = (),
        sweep: SweepResult | None = None,
        provenance: Provenance | None = None,
        notes: Iterable[str] = (),
    ) -> Workspace:
        """Counts what can be counted. ``rows`` is the batch; points of other rows are left out."""
        batch = None
        kept = tuple(points)
        if rows is not None:
            bench = rows if isinstance(rows, Batch) else Batch(rows, PrefixOrder.of(rows))
            rows = bench.rows
            batch = BatchSummary.of(bench, plan)
            kept = tuple(p for p in kept if p.point.question.data == batch.fingerprint)
        return cls(
            plan,
            batch,
            kept,
            sweep,
            provenance,
            rows,
            datetime.now(UTC).isoformat(timespec="seconds"),
            _versions(),
            tuple(notes),
            tags_of(plan.source),
        )

    @classmethod
    def of_plan(
        cls, plan: TuningPlan, sweep: SweepResult | None = None, store: Store | None = None
    ) -> Workspace:
        """A plan whose rows are read from its source, with what the history knows of them.

        Rows that cannot be read are missing, and a note says why.
        """
        plan = _at_pick(plan, sweep)
        rows, provenance, notes = _read_source(plan)
        points: list[SavedPoint] = []
        if rows is not None and store is not None:
            points = points_of(plan, rows.fingerprint, store)
        return cls.of(plan, rows, points, sweep, provenance, notes)

    @classmethod
    def of_run(cls, run: str, store: Store, jobs: Path | None = None) -> Workspace:
        """A run of the history, with its sweep and rows where its job is still there.

        Raises WorkspaceError where the history has no such run.
        """
        entries = store.entries(run=run)
        if not entries:
            raise WorkspaceError(
                f"there is no file and no run of the history called {run!r}; "
                f"`{PROGRAM} history list` names the runs."
            )
        folder = (jobs or jobs_folder()) / run
        sweep = None
        if (folder / "job.json").is_file():
            event = Jobs(folder.parent, store).view(run).last("result")
            sweep = SweepResult.from_json(event["result"]) if event else None
        plan = _at_pick(entries[0].plan, sweep)
        points = [SavedPoint(e.run, e.plan, e.point) for e in entries]
        rows, provenance, notes = _read_source(plan)
        if (folder / "rows.npz").is_file():
            own = load_rows(folder / "rows.npz")
            if rows is None or rows.fingerprint != own.fingerprint:
                rows, provenance = own, provenance if rows is None else None
                notes = ["The rows are those that were measured; the source has changed since."]
        elif rows is None and (kept := kept_rows(entries[0].point.question.data)):
            rows, notes = kept, ["The rows are those of a workspace file that was imported here."]
        return cls.of(plan, rows, points, sweep, provenance, notes)

    def with_text(self) -> Workspace:
        """The same with rows that can be read as text.

        Raises WorkspaceError where the rows or their tokenizer are not at hand.
        """
        if self.rows is None:
            raise WorkspaceError("the rows are not at hand, so no text can be shown.")
        if self.rows.decoder is not None:
            return self
        name = self.provenance.tokenizer if self.provenance else None
        if not name:
            raise WorkspaceError("no tokenizer is known for these rows, so no text can be shown.")
        try:
            decoder = tokenizer_named(name).decode
        except SourceError as error:
            raise WorkspaceError(f"no text can be shown: {error}") from None
        return replace(self, rows=replace(self.rows, decoder=decoder))


def answers(point: Point, plan: TuningPlan, mode: Layout | None = None) -> bool:
    """Whether a point is of this plan, at any cap, on any machine; of one mode where given."""
    asked = point.question
    same = Question.of(
        plan, mode or asked.mode, asked.max_tokens_per_mb, asked.data, asked.machine, asked.torch
    )
    return asked == same


def points_of(plan: TuningPlan, data: str, store: Store) -> list[SavedPoint]:
    """What a history knows of a plan on these rows, at any cap, newest first."""
    return [
        SavedPoint(e.run, e.plan, e.point)
        for e in store.entries(data=data)
        if answers(e.point, plan)
    ]


def _at_pick(plan: TuningPlan, sweep: SweepResult | None) -> TuningPlan:
    """The plan at the cap that was picked, where trees were."""
    if sweep is None or sweep.pick is None or sweep.pick.mode != "tree":
        return plan
    return replace(plan, max_tokens_per_mb=sweep.pick.max_tokens_per_mb)


def _read_source(plan: TuningPlan) -> tuple[Rows | None, Provenance | None, list[str]]:
    try:
        loaded = load(plan.source)
    except SourceError as error:
        return None, None, [f"The rows could not be read, so nothing was counted: {error}"]
    return batch_rows(loaded.rows, plan), loaded.provenance, []


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
