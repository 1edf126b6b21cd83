"""Both sides over the whole range of caps, worked out beside the page, drawn as far as known."""

from __future__ import annotations

import streamlit as st

from pages.shared.background import Growing
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan
from tuning.plan.summary import Packed
from tuning.workspace.compare_counted import packed_at

_EVERY = {"areal": 2, "prefix-aware": 6}
"""Every how manieth cap is worked out: ours takes a second where AReaL's takes a hundredth."""


@st.cache_resource(show_spinner=False, max_entries=32)
def _curve(
    data: str, way: tuple[str, str, int, int, int], _bench: Batch, _plan: TuningPlan
) -> Growing[Packed]:
    def at(cap: int) -> Packed | None:
        try:
            return packed_at(_bench, _plan, cap)
        except (ValueError, RuntimeError):
            return None  # AReaL would stop there: the cap has no trees

    caps = _bench.caps(_plan.alignment)
    return Growing.start("compare", [*caps[:: _EVERY[_plan.packer]], caps[-1]], at)


def curve(bench: Batch, plan: TuningPlan) -> tuple[dict[int, Packed], bool]:
    """Trees by cap as far as they are known, and whether this is all."""
    # What trees depend on beside the cap: another model, say, has the same curve.
    ranks = plan.dp_size, plan.ppo_n_minibatches, plan.alignment
    way = (plan.packer, plan.dispatch, *ranks)
    return _curve(bench.rows.fingerprint, way, bench, plan).so_far()
