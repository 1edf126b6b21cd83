"""What the run history has measured of a batch, and the newest step of its plan."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.text import plain
from tuning.jobs.folders import data_folder
from tuning.jobs.points import Point, steps_at
from tuning.jobs.store import Store, StoreError
from tuning.plan.batch import Batch
from tuning.plan.numbers import seconds
from tuning.plan.plan import TuningPlan


def latest_step(plan: TuningPlan, batch: Batch) -> str | None:
    """Such as ``1.84 s (measured)``; None where this very question has no time."""
    data = batch.rows.fingerprint
    step = steps_at(points(data, warn=False), plan, data).get("tree")
    return None if step is None else f"{seconds(step.step_s)} ({step.outcome})"


def points(data: str, warn: bool = True) -> list[Point]:
    """What this machine measured of a batch, newest first; none, and a warning, where the history
    cannot be read."""
    try:
        return _points(data, _stamp())
    except StoreError as error:
        if warn:
            st.warning(plain(error), icon=":material/database_off:")
        return []


@st.cache_data(show_spinner=False, max_entries=16)
def _points(data: str, stamp: tuple[int, ...]) -> list[Point]:
    """Read again when the history's files have changed."""
    return [entry.point for entry in Store().entries(data=data, own=True)]


def _stamp() -> tuple[int, ...]:
    # A write goes to the log beside the file first.
    return tuple(
        _changed_ns(data_folder() / name) for name in ("history.sqlite", "history.sqlite-wal")
    )


def _changed_ns(path: Path) -> int:
    """When a file was written last; 0 where there is none, which another reader may bring about."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
