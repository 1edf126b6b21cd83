"""What is known of the plan on the page: its rows, its measured points, its sweep."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from packing.sources.loaded import Provenance
from pages.shared import data
from pages.shared.text import plain
from pages.tune import jobs as tune_jobs
from tuning.jobs.jobs import JobView
from tuning.jobs.store import Store, StoreError
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import SweepResult
from tuning.workspace.rows import tags_of
from tuning.workspace.workspace import SavedPoint, Workspace, points_of, sweep_of


@dataclass(frozen=True)
class Known:
    """The plan with everything that a report or a workspace of it needs.

    job: the newest sweep of the plan, running or ended
    """

    batch: Batch
    plan: TuningPlan
    provenance: Provenance
    points: tuple[SavedPoint, ...]
    job: JobView | None

    @property
    def sweep(self) -> SweepResult | None:
        return sweep_of(self.job)

    @property
    def name(self) -> str:
        """Of the rows, with what must be said beside their figures."""
        tags = "".join(f" ({tag})" for tag in tags_of(self.plan.source))
        return data.source_name(self.plan.source) + tags

    def workspace(self) -> Workspace:
        """Counted once for the report, its figures and the workspace file."""
        newest = self.points[0].point.measured_at if self.points else ""
        seen = (len(self.points), newest, self.job.id if self.job else "")
        events = len(self.job.events) if self.job else 0
        return _workspace(self.plan.key, self.batch.rows.fingerprint, seen, events, self)


@st.cache_resource(show_spinner=False, max_entries=4)
def _workspace(
    plan: str, data: str, seen: tuple[int, str, str], events: int, _known: Known
) -> Workspace:
    return Workspace.of(_known.plan, _known.batch, _known.points, _known.sweep, _known.provenance)


def known_of(batch: Batch, plan: TuningPlan) -> Known:
    """From the loaded rows, the run history and the jobs; a history that fails is said."""
    points: list[SavedPoint] = []
    try:
        points = points_of(plan, batch.rows.fingerprint, Store())
    except StoreError as error:
        st.warning(plain(error), icon=":material/database_off:")
    return Known(batch, plan, data.loaded().provenance, tuple(points), tune_jobs.own(batch))
