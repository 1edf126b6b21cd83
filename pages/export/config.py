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
from pages.shared import own_config, state
from pages.shared.text import plain
from pages.shared.widgets import download, table
from tuning.areal.config import TRAINER_NAMES, ArealConfig, ConfigError
from tuning.export.tune import Tuned, tune_config
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan


def draw_own_config(batch: Batch, plan: TuningPlan, choice: Choice) -> None:
    """Drop in the config you run; leave with the same file, tuned."""
    own_config.draw_drop()
    found = own_config.given()
    if found is None:
        st.caption(
            "Your file keeps its comments, anchors and own keys; only tuned lines change. "
            "It is read here and goes nowhere."
        )
        return
    name, given = found
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


def _draw_plan(config: ArealConfig, plan: TuningPlan) -> None:
    """What the plan takes from the config."""
    changed, notes = own_config.changes(config, plan)
    st.header("Your settings as a plan", anchor=False)
    for note in notes:
        st.markdown(f"- {plain(note)}")
    if not changed:
        st.caption("The plan already has what this file says.")
        return
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
