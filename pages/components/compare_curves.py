"""Both sides over the whole range of caps, worked out beside the page, drawn as far as known."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import streamlit as st

from tuning.batch_summary import Packed
from tuning.compare_counted import packed_at
from tuning.plan import TuningPlan
from tuning.workbench import Workbench

_PATIENCE_S = 0.12
_EVERY = {"areal": 2, "prefix-aware": 6}
"""Every how manieth cap is worked out: ours takes a second where AReaL's takes a hundredth."""


@dataclass
class _Curve:
    points: dict[int, Packed] = field(default_factory=dict)
    done: Future[None] | None = None


@st.cache_resource(show_spinner=False)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="compare")


@st.cache_resource(show_spinner=False, max_entries=32)
def _curve(
    data: str, way: tuple[str, str, int, int, int], _bench: Workbench, _plan: TuningPlan
) -> _Curve:
    curve = _Curve()
    caps = _bench.caps(_plan.alignment)
    chosen = {*caps[:: _EVERY[_plan.packer]], caps[-1]}

    def work() -> None:
        for cap in sorted(chosen):
            try:
                curve.points[cap] = packed_at(_bench, _plan, cap)
            except (ValueError, RuntimeError):
                continue  # AReaL would stop there: the cap has no trees

    curve.done = _pool().submit(work)
    return curve


def curve(bench: Workbench, plan: TuningPlan) -> tuple[dict[int, Packed], bool]:
    """Trees by cap as far as they are known, and whether this is all."""
    # What trees depend on beside the cap: another model, say, has the same curve.
    ranks = plan.dp_size, plan.ppo_n_minibatches, plan.alignment
    found = _curve(bench.rows.fingerprint, (plan.packer, plan.dispatch, *ranks), bench, plan)
    assert found.done is not None
    try:
        found.done.result(timeout=_PATIENCE_S)
    except TimeoutError:
        return dict(found.points), False
    return dict(found.points), True
