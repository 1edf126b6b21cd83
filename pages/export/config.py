"""A user's own config on the Export page: read, judged, tuned, shown as a diff, given back."""

from __future__ import annotations

import streamlit as st

from packing.rows import Rows
from pages.export.parts import (
    Choice,
    accepted_by,
    draw_findings,
    draw_not_checked,
    report_of,
    show_verdict,
)
from pages.shared import state
from pages.shared.text import plain
from pages.shared.widgets import download, table
from tuning.areal.config import TRAINER_NAMES, ArealConfig, ConfigError
from tuning.export.tune import Tuned, tune_config
from tuning.plan.batch import Batch
from tuning.plan.from_config import fill_plan
from tuning.plan.plan import TuningPlan

_TEXT, _NAME = "own_config", "own_config_name"


def draw_own_config(batch: Batch, plan: TuningPlan, choice: Choice) -> None:
    """Drop in the config you run; leave with the same file, tuned."""
    _take_file()
    given = st.session_state.get(_TEXT)
    if given is None:
        st.caption(
            "Your file keeps its comments, anchors and own keys; only tuned lines change. "
            "It is read here and goes nowhere."
        )
        return
    name = st.session_state.get(_NAME, "config.yaml")
    try:
        config = ArealConfig.read(given)
        tuned = _tuned(given, plan, choice, batch.rows.fingerprint, batch.rows)
    except ConfigError as error:
        st.error(plain(f"{name}: {error}"), icon=":material/error:")
        return
    text = config.yaml.text
    kind = TRAINER_NAMES[config.trainer]
    st.markdown(f"**{plain(name)}** is {kind} with {len(text.splitlines())} lines.")
    st.header("As it stands", anchor=False)
    before = report_of(text, batch.rows, choice.target, plan.memory_budget_gib)
    show_verdict(before, accepted_by(text, None, choice.target))
    if not before.tree_on:
        st.markdown(plain(before.verdict_if_on))
    draw_findings(before.if_turned_on)
    draw_not_checked(before)
    _draw_plan(config, plan)
    _draw_tuned(config, tuned, name, choice)


@st.cache_resource(show_spinner=False, max_entries=16)
def _tuned(given: str | bytes, plan: TuningPlan, choice: Choice, data: str, _rows: Rows) -> Tuned:
    config = ArealConfig.read(given)
    return tune_config(config, plan, choice.target, rows=_rows, trees=choice.trees)


def _take_file() -> None:
    """A file or pasted text becomes the config of this session, on all visits of the page."""
    file = st.file_uploader(
        "An AReaL config", type=["yaml", "yml"], key="own_config_file", max_upload_size=64
    )
    if file is not None and st.session_state.get("own_config_id") != file.file_id:
        st.session_state["own_config_id"] = file.file_id
        st.session_state[_TEXT], st.session_state[_NAME] = file.getvalue(), file.name
    with st.expander("Or paste it", icon=":material/content_paste:"):
        pasted = st.text_area("YAML", key="own_config_pasted", height=200)
        if st.button("Read it", key="own_config_read", disabled=not pasted):
            st.session_state[_TEXT], st.session_state[_NAME] = pasted, "config.yaml"


def _draw_plan(config: ArealConfig, plan: TuningPlan) -> None:
    """What the plan takes from the config."""
    filled, notes = fill_plan(config, plan)
    new = {k: v for k, v in filled.to_json().items() if getattr(plan, k) != v}
    gone = [k for k in plan.to_json() if k not in filled.to_json()]
    st.header("Your settings as a plan", anchor=False)
    for note in notes:
        st.markdown(f"- {plain(note)}")
    if not new and not gone:
        st.caption("The plan already has what this file says.")
        return
    changed = {k: getattr(filled, k) for k in [*new, *gone]}
    table({"setting": list(changed), "in your file": [str(v) for v in changed.values()]})
    st.button(
        "Take these into the plan",
        on_click=state.update,
        kwargs=changed,
        icon=":material/input:",
        key="own_config_plan",
    )


def _draw_tuned(config: ArealConfig, tuned: Tuned, name: str, choice: Choice) -> None:
    st.header("Tuned", anchor=False)
    for note in tuned.notes:
        st.markdown(f"- {plain(note)}")
    diff = config.diff(tuned.config, name)
    if not diff:
        st.caption("Nothing needs to change.")
        return
    show_verdict(tuned.after, accepted_by(tuned.text, None, choice.target))
    draw_findings(tuned.after.errors)
    st.code(diff, language="diff", wrap_lines=True)
    download(f"Download the tuned {plain(name)}", lambda: tuned.text, name, "own_config_download")
