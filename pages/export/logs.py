"""A run's log on the Export page, laid beside the prediction."""

from __future__ import annotations

import streamlit as st

from pages.shared.text import plain
from pages.shared.widgets import table
from tuning.export.logs import LogError, compare, read_logs
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan


def draw_logs(batch: Batch, plan: TuningPlan) -> None:
    """Paste or upload AReaL's log or statistics."""
    file = st.file_uploader("AReaL's log", type=["log", "txt", "json", "jsonl"], key="areal_log")
    pasted = st.text_area(
        "or its lines",
        key="areal_log_pasted",
        placeholder="Packed tree #microbatch: 12, microbatch #tokens: […], padded to: […] …",
    )
    text = file.getvalue().decode(errors="replace") if file is not None else pasted
    if not text.strip():
        st.caption(
            "Read are “Packed tree …” lines and `tree_token_ratio`, `num_micro_batches`: the "
            "figures AReaL logs in each step."
        )
        return
    try:
        logs = read_logs(text)
        chain = batch.simulation(plan)
    except (LogError, ValueError, RuntimeError) as error:
        st.error(plain(error), icon=":material/error:")
        return
    lines = compare(logs, chain)
    table(
        {
            "figure": [one.figure for one in lines],
            "predicted": [one.predicted for one in lines],
            "logged": [one.logged for one in lines],
            "": ["equal" if one.agrees else "differs" for one in lines],
            "why": [one.why for one in lines],
        }
    )
    st.caption(
        "Predicted figures are exact for this batch under this plan. AReaL's ratio leaves out "
        "padding; its number of micro-batches counts dummy trees."
    )
