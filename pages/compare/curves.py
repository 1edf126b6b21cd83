"""Both sides over the whole range of caps, worked out beside the page, drawn as far as known."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from packing.batch.refusal import BatchRefused
from pages.shared.background import Growing, caps_in_view
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan
from tuning.plan.summary import Packed


@st.cache_resource(show_spinner=False, max_entries=32)
def _curve(data: str, plan_key: str, _batch: Batch, _plan: TuningPlan) -> Growing[Packed]:
    def at(cap: int) -> Packed | None:
        try:
            return Packed.of(_batch.simulation(_plan, cap))
        except BatchRefused:
            return None  # AReaL would stop there: the cap has no trees

    return Growing.start("compare", caps_in_view(_batch, _plan), at)


def curve(batch: Batch, plan: TuningPlan) -> tuple[dict[int, Packed], bool]:
    """Trees by cap as far as they are known, and whether this is all."""
    # Whatever the cap now is: the curve is of all of them.
    key = replace(plan, max_tokens_per_mb=plan.alignment).key
    return _curve(batch.rows.fingerprint, key, batch, plan).so_far(plan.max_tokens_per_mb)
