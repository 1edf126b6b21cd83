"""Workspace: one plan with everything known of it, from wherever it was worked out.

A report and a saved file need nothing else: the batch's counted figures, measured points with
their whole plans, a sweep, where rows come from, and the rows themselves where they are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.sources.errors import SourceError
from packing.sources.load import load, tokenizer_named
from packing.sources.loaded import Provenance
from tuning.jobs.files import load_rows
from tuning.jobs.jobs import Jobs, JobView
from tuning.jobs.points import Point, answers, installed_versions
from tuning.jobs.store import Store
from tuning.plan.batch import Batch, batch_rows
from tuning.plan.plan import Layout, TuningPlan
from tuning.plan.summary import BatchSummary
from tuning.sweep.result import SweepResult
from tuning.workspace.rows import kept_rows, tags_of

Source = tuple[Rows, Provenance]
"""A plan's batch as its source has it now, and where it comes from."""


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
    origin:      whose times these are, where they are not this machine's
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
    origin: str = ""

    @property
    def fingerprint(self) -> str:
        """Of the batch's rows; empty where neither rows nor a point tell."""
        if self.batch is not None:
            return self.batch.fingerprint
        return self.points[0].point.question.data if self.points else ""

    @property
    def machine(self) -> str:
        """Whose times are shown: the sweep's, else that of the plan's newest point."""
        if self.sweep is not None:
            return self.sweep.machine
        usable = (one.point for one in self.points if answers(one.point, self.plan))
        return next((point.question.machine for point in usable), "")

    def steps(self, mode: Layout) -> list[Point]:
        """Points of the plan in a mode, at any cap, of that machine alone, newest first."""
        mine = (one.point for one in self.points if answers(one.point, self.plan, mode))
        return [point for point in mine if point.question.machine == self.machine]

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
            own = rows if isinstance(rows, Batch) else _batch(rows)
            rows = own.rows
            batch = BatchSummary.of(own, plan)
            kept = tuple(p for p in kept if p.point.question.data == batch.fingerprint)
        return cls(
            plan,
            batch,
            kept,
            sweep,
            provenance,
            rows,
            datetime.now(UTC).isoformat(timespec="seconds"),
            installed_versions("torch", "transformers", "numpy", "pyarrow"),
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
    def of_run(
        cls,
        run: str,
        store: Store,
        jobs: Jobs | None = None,
        read: Callable[[TuningPlan], Source | None] | None = None,
    ) -> Workspace:
        """A run of the history at the cap that it picked: its points, its sweep, and its rows.

        The rows are those that were measured: the job's own, those of the source where it still has
        them, or those that came with a workspace file. Where none of these is at hand nothing is
        counted, and a note says so; the points and the sweep are there all the same.

        read: a plan's batch from its source, None where it cannot be read
        Raises WorkspaceError where the history has no such run.
        """
        entries = store.entries(run=run)
        if not entries:
            newest = list(dict.fromkeys(entry.run for entry in store.entries()))[:5]
            raise WorkspaceError(
                f"there is no file and no run of the history called {run!r}; "
                + (
                    f"the newest are {', '.join(newest)}."
                    if newest
                    else "nothing was measured yet."
                )
            )
        jobs = jobs or Jobs(store=store)
        folder = jobs.folder / Path(run).name
        job = jobs.view(folder.name) if (folder / "job.json").is_file() else None
        sweep, data = sweep_of(job), entries[0].point.question.data
        plan = _at_pick(entries[0].plan, sweep)
        source = (read or _read_or_none)(plan)
        rows, provenance = source or (None, None)
        notes = []
        if rows is None or rows.fingerprint != data:
            own = folder / "rows.npz"
            rows = load_rows(own) if own.is_file() else kept_rows(data)
            changed = "has changed since" if source else "cannot be read any more"
            notes = [
                f"The source {changed}: the rows are those that were measured."
                if rows is not None
                else f"The source {changed}, and the rows that were measured are not at hand: "
                "nothing is counted; times are those that were measured."
            ]
        points = tuple(SavedPoint(e.run, e.plan, e.point) for e in entries)
        whose = "" if entries[0].own else "a colleague's machine"
        made = cls.of(plan, None, points, sweep, provenance, notes)
        return replace(made, rows=rows, origin=whose)

    def counted(self) -> Workspace:
        """The same with the batch's figures counted, where its rows are at hand."""
        if self.rows is None or self.batch is not None:
            return self
        return replace(self, batch=BatchSummary.of(_batch(self.rows), self.plan))

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


def points_of(plan: TuningPlan, data: str, store: Store) -> list[SavedPoint]:
    """What this machine measured of a plan on these rows, at any cap, newest first."""
    return [
        SavedPoint(e.run, e.plan, e.point)
        for e in store.entries(data=data, own=True)
        if answers(e.point, plan)
    ]


def _at_pick(plan: TuningPlan, sweep: SweepResult | None) -> TuningPlan:
    """The plan at the cap that was picked, where trees were."""
    if sweep is None or sweep.pick is None or sweep.pick.mode != "tree":
        return plan
    return replace(plan, max_tokens_per_mb=sweep.pick.max_tokens_per_mb)


def sweep_of(job: JobView | None) -> SweepResult | None:
    """The result of a sweep as far as it is; None for any other job, or one that is damaged."""
    event = job.last("result") if job is not None and job.kind == "sweep" else None
    try:
        return None if event is None else SweepResult.from_json(event.get("result", {}))
    except ValueError:
        return None


def _batch(rows: Rows) -> Batch:
    return Batch(rows, PrefixOrder.of(rows))


def _read_source(plan: TuningPlan) -> tuple[Rows | None, Provenance | None, list[str]]:
    try:
        loaded = load(plan.source)
    except SourceError as error:
        return None, None, [f"The rows could not be read, so nothing was counted: {error}"]
    return batch_rows(loaded.rows, plan), loaded.provenance, []


def _read_or_none(plan: TuningPlan) -> Source | None:
    rows, provenance, _ = _read_source(plan)
    return None if rows is None or provenance is None else (rows, provenance)
