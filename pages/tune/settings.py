"""What a sweep measures and for how long; start, stop, resume."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pages.shared import data, state
from pages.tune import jobs as tune_jobs
from tuning.jobs.jobs import JobView
from tuning.plan.batch import Batch
from tuning.plan.models import MODELS
from tuning.sweep.devices import devices


def draw(bench: Batch, job: JobView | None) -> None:
    """What is measured and for how long; start, stop, resume."""
    running = job is not None and job.active
    with st.expander("What is measured", expanded=job is None, icon=":material/tune:"):
        columns = st.columns(4)
        columns[0].selectbox(
            "model",
            _with(MODELS, state.plan().model),
            accept_new_options=True,
            help="A preset with random weights, a config.json, a folder, or a Hub id (its shape "
            "only). tiny and small fold token ids into a vocabulary of their own.",
            **state.bind("model"),
        )
        columns[1].selectbox(
            "device",
            _with(devices(), state.plan().device),
            format_func=_device_name,
            accept_new_options=True,
            help="Here, or a GPU to estimate for; gpu:TFLOPS:GB_PER_S:GIB is one of your own.",
            **state.bind("device"),
        )
        columns[2].selectbox("dtype", ["float32", "bfloat16"], **state.bind("dtype"))
        columns[3].selectbox(
            "optimizer dtype", ["float32", "bfloat16"], **state.bind("optimizer_dtype")
        )
        columns = st.columns(4, vertical_alignment="bottom")
        columns[0].number_input(
            "memory budget, GiB",
            0.0,
            help="A step that needs more does not fit. 0: what the device has.",
            **state.bind("memory_budget_gib"),
        )
        columns[1].number_input("time budget, minutes", 0.1, 600.0, 10.0, 0.5, key=tune_jobs.BUDGET)
        columns[2].toggle("gradient checkpointing", **state.bind("gradient_checkpointing"))
    problems = state.plan().problems()
    for sentence in problems:
        st.warning(sentence, icon=":material/block:")
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
            args=(bench, longest, rows),
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


def _with(known: Sequence[str], chosen: str) -> list[str]:
    return [*known, *([] if chosen in known else [chosen])]


def _device_name(device: str) -> str:
    if device == "cpu" or device.startswith("cuda"):
        return device
    return f"{device} (estimate only)"
