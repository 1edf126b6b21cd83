"""Taking a workspace in: what it carries becomes part of this machine, and nothing is replaced.

Notable:
- measured points go into the run history, a sweep among the ended jobs, rows into a file
- points and sweep stay those of whoever measured them: they answer no question of this machine
- the same workspace taken in twice adds nothing the second time
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from packing.rows import Rows
from packing.sources.chat.tokenizer import BUNDLED
from packing.sources.errors import SourceError
from packing.sources.load import load
from packing.sources.spec import SourceSpec
from tuning.jobs.jobs import Jobs
from tuning.jobs.store import Store
from tuning.plan.batch import batch_rows
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import question_of
from tuning.workspace.rows import keep_rows
from tuning.workspace.workspace import Workspace, WorkspaceError

ORIGIN = "a workspace file"


@dataclass(frozen=True)
class Taken:
    """plan: as it opens on this machine; new_points: those that its history lacked."""

    plan: TuningPlan
    new_points: int


def take_in(workspace: Workspace, store: Store) -> Taken:
    """Keep what a workspace carries.

    Raises StoreError where the history cannot be written, WorkspaceError where the disk refuses.
    """
    new = keep_points(workspace, store)
    try:
        keep_sweep(workspace, Jobs(store=store))
        return Taken(plan_here(workspace), new)
    except OSError as error:
        raise WorkspaceError(f"the workspace cannot be kept here: {error.strerror}.") from None


def keep_points(workspace: Workspace, store: Store) -> int:
    """Add the points to a history that lacks them; returns how many were new."""
    runs = {one.run for one in workspace.points}
    known = {run: [e.point for e in store.entries(run=run, newest=-1)] for run in runs}
    new = [p for p in reversed(workspace.points) if p.point not in known[p.run]]
    for one in new:
        store.add(one.run, one.plan, one.point, ORIGIN)
    return len(new)


def keep_sweep(workspace: Workspace, jobs: Jobs) -> bool:
    """Add the sweep as a job that has ended; False where it is the newest of its question."""
    sweep = workspace.sweep
    if sweep is None or not workspace.fingerprint:
        return False
    question = question_of(workspace.plan)
    newest = jobs.newest("sweep", foreign=True, data=workspace.fingerprint, question=question)
    shown = newest.last("result") if newest else None
    result = json.loads(json.dumps(sweep.to_json()))
    if shown is not None and shown["result"] == result:
        return False
    message = "from a workspace file" + ("" if sweep.finished else ", stopped before its end")
    events = [{"type": "result", "result": result}, {"type": "done", "message": message}]
    data = {"data": workspace.fingerprint, "question": question}
    given = {"budget_s": 0.0, "longest_row": sweep.longest_row} | data
    jobs.add_ended("sweep", workspace.plan, given, events, ORIGIN)
    return True


def plan_here(workspace: Workspace) -> TuningPlan:
    """The plan as it opens on this machine: rows that came along are kept as a file.

    A bundled sample that has the same rows here stays the sample. Without rows it is the plan
    itself, whose source must be at hand.
    """
    rows, plan = workspace.rows, workspace.plan
    if rows is None or _has_sample(plan, rows):
        return plan
    path = keep_rows(rows, workspace.tags)
    name = workspace.provenance.tokenizer if workspace.provenance else None
    source = SourceSpec("file", str(path), tokenizer=name if _loads(name) else None)
    return replace(plan, source=source)


def _has_sample(plan: TuningPlan, rows: Rows) -> bool:
    if plan.source.kind != "sample":
        return False
    try:
        own = batch_rows(load(plan.source).rows, plan)
    except SourceError:
        return False
    return own.fingerprint == rows.fingerprint


def _loads(tokenizer: str | None) -> bool:
    """Whether rows can be read as text here; without a tokenizer they open as token ids.

    The bundled one alone: a file from elsewhere names no folder to read and nothing to download.
    """
    return tokenizer == BUNDLED
