"""The newest measured step of the plan, from the run history, for the summary strip."""

from __future__ import annotations

import streamlit as st

from tuning.jobs.folders import data_folder
from tuning.jobs.points import Point, Question
from tuning.jobs.store import Store, StoreError
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan


def latest_step(plan: TuningPlan, batch: Batch) -> str | None:
    """Such as ``1.84 s (measured)``; None where this very question has no time."""
    answers = [p for p in _points(batch.rows.fingerprint, _stamp()) if _answers(p, plan)]
    best = next((p for p in answers if p.outcome == "measured"), None)
    found = best or next(iter(answers), None)
    return None if found is None else f"{found.step_s:,.2f} s ({found.outcome})"


def _answers(point: Point, plan: TuningPlan) -> bool:
    asked = point.question
    cap = plan.max_tokens_per_mb
    same = Question.of(plan, "tree", cap, asked.data, asked.machine, asked.torch)
    here = asked.machine.startswith("cpu") == (plan.device == "cpu")
    return bool(point.step_s) and asked == same and here


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
