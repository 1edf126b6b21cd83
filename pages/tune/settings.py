"""What a sweep measures and for how long; start, stop, resume."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.shared import data, state
from pages.shared.text import plain
from pages.shared.widgets import with_chosen
from pages.tune import jobs as tune_jobs
from tuning.jobs.jobs import JobView
from tuning.plan.batch import Batch
from tuning.plan.gpus import devices
from tuning.plan.models import MODELS
from tuning.plan.plan import DTYPES, NETWORKS, STEP_NAMES, STEPS, Step


def draw(batch: Batch, job: JobView | None) -> None:
    """What is measured and for how long; start, stop, resume."""
    running = job is not None and job.active
    with st.expander("What is measured", expanded=job is None, icon=":material/tune:"):
        columns = st.columns(4)
        columns[0].selectbox(
            options=with_chosen(MODELS, state.plan().model),
            accept_new_options=True,
            **state.widget("model"),
        )
        columns[1].selectbox(
            options=with_chosen(devices(), state.plan().device),
            format_func=_device_name,
            accept_new_options=True,
            **state.widget("device"),
        )
        columns[2].selectbox(options=DTYPES, **state.widget("dtype"))
        columns[3].selectbox(options=DTYPES, **state.widget("optimizer_dtype"))
        columns = st.columns(4, vertical_alignment="bottom")
        columns[0].number_input(min_value=0.0, **state.widget("memory_budget_gib"))
        columns[1].number_input("time budget, minutes", 0.1, 600.0, 10.0, 0.5, key=tune_jobs.BUDGET)
        columns[2].selectbox(options=STEPS, format_func=_step_name, **state.widget("step"))
        columns[3].selectbox(options=NETWORKS, **state.widget("network"))
        st.toggle(**state.widget("gradient_checkpointing"))
    st.caption(
        "Presets have random weights of the published shape; tiny and small fold token ids into a "
        "vocabulary of their own."
    )
    plan = state.plan()
    problems = plan.problems() + plan.unmeasurable(tune_jobs.areal_python())
    for sentence in problems:
        st.warning(plain(sentence), icon=":material/block:")
    again = job is not None and job.state in ("cancelled", "died", "failed")
    with st.container(horizontal=True):
        rows = data.loaded().rows
        longest = min(rows.longest, state.plan().max_new_tokens or rows.longest)
        st.button(
            "Resume" if again else "Start" if job is None else "Measure again what is missing",
            type="primary" if job is None or again else "secondary",
            icon=":material/play_arrow:",
            disabled=running or bool(problems),
            on_click=tune_jobs.start,
            args=(batch, longest, rows),
            key="start_sweep",
        )
        if job is not None and running:
            st.button(
                "Stop",
                icon=":material/stop:",
                on_click=tune_jobs.stop,
                args=(job.id,),
                key="stop_sweep",
            )


def _step_name(step: Step) -> str:
    if step == "auto":
        return f"auto ({STEP_NAMES[replace(state.plan(), step=step).step_of]})"
    return STEP_NAMES[step]


def _device_name(device: str) -> str:
    if device == "cpu" or device.startswith("cuda"):
        return device
    return f"{device} (estimate only)"
