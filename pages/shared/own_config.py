"""The AReaL config that a user runs: taken on any page, kept for the session, made the plan.

Notable:
- on the Dataset page it becomes the plan at once, and Undo brings back the one before; on the
  Export page the tuned settings go back into it, as a diff
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from pages.shared import state
from pages.shared.widgets import table
from tuning.areal.config import ArealConfig, ConfigError
from tuning.plan.from_config import fill_plan
from tuning.plan.plan import TuningPlan, as_text

_TEXT, _NAME, _SEEN = "own_config", "own_config_name", "own_config_id"
_TAKEN = "own_config_taken"


def given() -> tuple[str, str | bytes] | None:
    """Name and content of the config; None where none was given."""
    text = st.session_state.get(_TEXT)
    return None if text is None else (st.session_state.get(_NAME, "config.yaml"), text)


def draw_drop() -> bool:
    """A file or pasted text becomes the config of this session; whether it came just now."""
    file = st.file_uploader(
        "An AReaL config", type=["yaml", "yml"], key="own_config_file", max_upload_size=64
    )
    if file is not None and st.session_state.get(_SEEN) != file.file_id:
        st.session_state[_SEEN] = file.file_id
        return _keep(file.name, file.getvalue())
    with st.expander("Or paste it", icon=":material/content_paste:"):
        pasted = st.text_area("YAML", key="own_config_pasted", height=200)
        if st.button("Read it", key="own_config_read", disabled=not pasted):
            return _keep("config.yaml", pasted)
    return False


def _keep(name: str, text: str | bytes) -> bool:
    st.session_state[_TEXT], st.session_state[_NAME], st.session_state[_TAKEN] = text, name, {}
    return True


def draw_start() -> None:
    """The Dataset page's way: the file's engine, batch, caps and model become the plan's."""
    with st.expander("Start from the AReaL config that you run", icon=":material/description:"):
        if draw_drop():
            st.session_state[_TAKEN] = _take()
            st.rerun()
        if found := given():
            _draw_taken(*found)


def _take() -> dict[str, str]:
    """The config into the plan; the settings that changed, by name."""
    found = given()
    try:
        config = ArealConfig.read(found[1]) if found else None
    except ConfigError:
        config = None  # said where the file is drawn
    changed = changes(config, state.plan())[0] if config else {}
    state.update(**changed)
    return {name: as_text(value) for name, value in changed.items()}


def _draw_taken(name: str, text: str | bytes) -> None:
    try:
        config = ArealConfig.read(text)
    except ConfigError as error:
        st.error("This file cannot be used; the plan stays as it is.", icon=":material/error:")
        st.text(f"{name}: {error}")
        return
    taken: dict[str, str] = st.session_state.get(_TAKEN, {})
    st.text(f"{name}: {len(taken)} settings were taken into the plan." if taken else name)
    if taken:
        table({"setting": list(taken), "from your file": list(taken.values())}, key="own_taken")
    for note in changes(config, state.plan())[1]:
        st.text(note)
    st.page_link(
        "export/page.py",
        label="Tuned, it leaves on the Export page",
        icon=":material/arrow_forward:",
    )


def changes(config: ArealConfig, plan: TuningPlan) -> tuple[dict[str, Any], list[str]]:
    """What the config would change in the plan, and what a plan does not cover of it."""
    filled, notes = fill_plan(config, plan)
    names = dict.fromkeys([*filled.to_json(), *plan.to_json()])
    pairs = {name: (getattr(filled, name), getattr(plan, name)) for name in names}
    return {name: new for name, (new, old) in pairs.items() if new != old}, notes
