"""The newest measured step of the plan, from the run history, for the summary strip."""

from __future__ import annotations

import streamlit as st

from tuning.jobs.folders import data_folder
from tuning.jobs.points import Point, steps_at
from tuning.jobs.store import Store, StoreError
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan


def latest_step(plan: TuningPlan, batch: Batch) -> str | None:
    """Such as ``1.84 s (measured)``; None where this very question has no time."""
    data = batch.rows.fingerprint
    step = steps_at(_points(data, _stamp()), plan, data).get("tree")
    return None if step is None else f"{step.step_s:,.2f} s ({step.outcome})"


@st.cache_data(show_spinner=False, max_entries=16)
def _points(data: str, stamp: tuple[int, ...]) -> list[Point]:
    """Points of a batch, newest first; read again when the history's files have changed."""
    try:
        return [entry.point for entry in Store().entries(data=data)]
    except StoreError:
        return []  # the Tune page says what is wrong with the history


def _stamp() -> tuple[int, ...]:
    # A write goes to the log beside the file first.
    files = [data_folder() / name for name in ("history.sqlite", "history.sqlite-wal")]
    return tuple(f.stat().st_mtime_ns if f.exists() else 0 for f in files)
