"""What is compared: another dataset, another plan, or two runs of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from packing.sources.samples import SAMPLES
from packing.sources.spec import SourceSpec
from pages.compare.sides import PACKERS, Pair, other_plan, plans, runs, set_field, set_source
from pages.shared import data, state
from pages.shared.text import Markdown, plain
from pages.shared.widgets import to_tune, with_chosen
from tuning.jobs.store import Store, StoreError
from tuning.plan.gpus import devices
from tuning.plan.models import MODELS
from tuning.plan.numbers import many
from tuning.plan.plan import TuningPlan
from tuning.workspace.history import Run
from tuning.workspace.history import runs as all_runs

WAYS = {"plan": "Another plan", "data": "Another dataset", "runs": "Two runs of the history"}


def choose() -> Pair | None:
    """Controls for both sides; None where there is nothing to set side by side yet."""
    way = state.other().get("vs", "plan")
    way = way if way in WAYS else "plan"
    st.segmented_control(
        "compare with",
        list(WAYS),
        format_func=WAYS.__getitem__,
        required=True,
        label_visibility="collapsed",
        **_bound("vs", way, lambda value: state.set_other({"vs": value})),
    )
    return {"plan": _another_plan, "data": _another_dataset, "runs": _two_runs}[way]()


def _another_plan() -> Pair | None:
    a, b = state.plan(), other_plan("plan")
    st.caption("A is the plan in use. B begins as its copy: change what you want to know.")
    columns = st.columns(4)
    columns[0].number_input(
        "max_tokens_per_mb of B", 1, step=b.alignment, **_field("max_tokens_per_mb", b)
    )
    columns[1].selectbox(
        "packer of B",
        list(PACKERS),
        format_func=PACKERS.__getitem__,
        **_field("packer", b),
    )
    columns[2].number_input(
        "prompts per step of B", 0, help="0: all.", **_field("prompts_per_step", b)
    )
    columns[3].number_input(
        "samples per prompt of B", 0, help="0: all.", **_field("samples_per_prompt", b)
    )
    columns = st.columns(4)
    columns[0].number_input("data-parallel ranks of B", 1, **_field("dp_size", b))
    columns[1].number_input("ppo_n_minibatches of B", 1, **_field("ppo_n_minibatches", b))
    columns[2].selectbox(
        "model of B", with_chosen(MODELS, b.model), accept_new_options=True, **_field("model", b)
    )
    columns[3].selectbox(
        "device of B",
        with_chosen(devices(), b.device),
        accept_new_options=True,
        **_field("device", b),
    )
    if a == b:
        _first_steps(a)
        return None
    return plans(b, "plan")


def _first_steps(plan: TuningPlan) -> None:
    """What is worth a look where nothing has been changed."""
    st.info("B is the same plan as A. Change it above, or begin with one of these.")
    other = next(name for name in PACKERS if name != plan.packer)
    cap = plan.max_tokens_per_mb
    tries: list[tuple[str, str, object]] = [
        (f"Twice the cap, {2 * cap:,}", "max_tokens_per_mb", 2 * cap),
        (PACKERS[other], "packer", other),
        ("Four PPO minibatches", "ppo_n_minibatches", 4),
    ]
    with st.container(horizontal=True):
        for label, field, value in tries:
            if getattr(plan, field) != value:
                st.button(
                    plain(label), key=f"other_try_{field}", on_click=set_field, args=(field, value)
                )


def _another_dataset() -> Pair | None:
    a, b = state.plan(), other_plan("data")
    st.caption("A is the plan on its own rows. B is the same plan on other rows.")
    left, right = st.columns(2, vertical_alignment="bottom")
    names = list(SAMPLES)
    chosen = "b.data" in state.other()
    bundled = chosen and b.source.kind == "sample" and b.source.location in SAMPLES
    used = b.source.location if bundled else None
    left.segmented_control(
        "bundled rows of B",
        names,
        **_bound(
            "sample", used, lambda name: set_source(state.sample_source(name) if name else None)
        ),
    )
    with right.form("other_path", border=False):
        box, button = st.columns([3, 1], vertical_alignment="bottom")
        text = box.text_input(
            "or a path, glob or folder",
            b.source.location if chosen and b.source.kind == "file" else "",
            placeholder="rollouts/*.jsonl, or the folder of an AReaL rollout dump",
            help="Inside the working or home folder; ESPALIER_DATA adds more folders.",
        )
        if button.form_submit_button("Open") and text.strip():
            source = SourceSpec("file", text.strip())
            data.forget(source)
            set_source(source)
            st.rerun()
    if not chosen:
        st.info("Choose the rows of B: a bundled set, or a path.", icon=":material/database:")
        return None
    if a.source == b.source:
        st.info("B has the same rows as A. Choose others.", icon=":material/database:")
        return None
    return plans(b, "data")


def _two_runs() -> Pair | None:
    try:
        found = {run.id: run for run in all_runs(Store())}
    except StoreError as error:
        st.error(plain(error), icon=":material/error:")
        return None
    if len(found) < 2:
        known = "Only one run" if found else "Nothing"
        st.info(f"{known} has been measured on this machine yet.", icon=":material/speed:")
        to_tune()
        return None
    st.caption("Each run stands at the cap that it picked.")
    left, right = st.columns(2)
    chosen = [name for name in (_run("a", left, found), _run("b", right, found)) if name]
    if len(set(chosen)) < 2:
        st.info("Choose two different runs.", icon=":material/history:")
        return None
    return runs(chosen[0], chosen[1])


def _run(side: Markdown, column: DeltaGenerator, found: Mapping[str, Run]) -> str | None:
    """The run of a side, of those in the history."""
    key = f"{side}.run"
    run = state.other().get(key)
    if run is not None and run not in found:
        gone = f"The link's run {plain(run)} is not in this history."
        st.warning(gone, icon=":material/link_off:")
        run = None

    def chosen(name: str | None) -> None:
        state.set_other({key: name})

    column.selectbox(
        f"run {side.upper()}",
        list(found),
        index=None,
        format_func=lambda name: run_name(found[name]),
        placeholder="Choose a run",
        **_bound(f"run_{side}", run, chosen),
    )
    return run


def run_name(run: Run) -> str:
    """Such as ``20261130-100412-a1b2c3 · math-grpo · tiny · cpu, 2 threads · 12 points``."""
    rows, machine = data.source_name(run.plan.source), run.entries[0].point.question.machine
    points = many(len(run.entries), "point")
    return f"{run.id} · {rows} · {run.plan.model} · {machine} · {points}"


def _field(field: str, plan: TuningPlan) -> dict[str, Any]:
    return _bound(field, getattr(plan, field), lambda value: set_field(field, value))


def _bound(name: str, value: object, write: Callable[[Any], None]) -> dict[str, Any]:
    """``key`` and ``on_change`` that tie a widget to a choice of the comparison."""
    key = f"other.{name}"
    st.session_state[key] = value
    return {"key": key, "on_change": lambda: write(st.session_state[key])}
