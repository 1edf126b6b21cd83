"""The plan and the view of one browser session, and their way into the URL and back.

Notable:
- the plan lives in the session and is written to the URL after every change, so that a link, a
  reload or a restarted server bring back the same question
- a widget is tied to a plan field by ``bind``: no page copies values by hand
- the view (chosen tree, node, row, window) is in the URL too, but is not part of the question
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import streamlit as st

from tuning.plan import TuningPlan

# Not the key of any widget: widgets write their values under their keys.
_PLAN, _UNDO, _VIEW = "state.plan", "state.undo", "state.view"
_WRITTEN, _REFUSED = "state.url_written", "state.url_refused"

VIEW_KEYS = ("tree", "node", "row", "x0", "x1", "token")
_UNDO_STEPS = 50
_MAKE_TREES = (
    "max_tokens_per_mb",
    "packer",
    "prompts_per_step",
    "samples_per_prompt",
    "max_new_tokens",
)


def plan() -> TuningPlan:
    """The plan of this session."""
    return st.session_state.setdefault(_PLAN, TuningPlan())


def update(**fields: Any) -> None:
    """Change fields of the plan; the plan before can be brought back with ``undo``."""
    before = plan()
    after = replace(before, **fields)
    if after == before:
        return
    st.session_state[_UNDO] = [*st.session_state.get(_UNDO, []), before][-_UNDO_STEPS:]
    st.session_state[_PLAN] = after
    if after.source != before.source:
        st.session_state[_VIEW] = {}
    elif any(getattr(after, name) != getattr(before, name) for name in _MAKE_TREES):
        # Trees and nodes have other numbers now; a row is the same row.
        set_view(tree=None, node=None, token=None, x0=None, x1=None)


def can_undo() -> bool:
    return bool(st.session_state.get(_UNDO))


def undo() -> None:
    """Bring back the plan before the last change."""
    *rest, before = st.session_state[_UNDO]
    st.session_state[_UNDO] = rest
    st.session_state[_PLAN] = before


def bind(
    field: str,
    read: Callable[[Any], Any] = lambda value: value,
    write: Callable[[Any], Any] = lambda value: value,
) -> dict[str, Any]:
    """``key`` and ``on_change`` that tie a widget to a plan field.

    ``read`` turns the field into the widget's value, ``write`` turns it back.
    """
    key = f"plan.{field}"
    st.session_state[key] = read(getattr(plan(), field))

    def changed() -> None:
        update(**{field: write(st.session_state[key])})

    return {"key": key, "on_change": changed}


def view(name: str, default: int = 0) -> int:
    """A number of the view: ``tree``, ``node``, ``row``, ``x0``, ``x1``, ``token``."""
    return st.session_state.setdefault(_VIEW, {}).get(name, default)


def set_view(**values: int | None) -> None:
    """Set numbers of the view; None clears one."""
    current = dict(st.session_state.get(_VIEW, {}))
    for name, value in values.items():
        current.pop(name, None)
        if value is not None:
            current[name] = int(value)
    st.session_state[_VIEW] = current


def refused() -> list[str]:
    """Sentences about parameters of the link that could not be used."""
    return st.session_state.get(_REFUSED, [])


def read_url() -> None:
    """Take plan and view from the URL where it is not the one that this session wrote."""
    query = st.query_params.to_dict()
    known = _plan_query(query) | _view_query(query)
    if query == st.session_state.get(_WRITTEN) or (not known and _PLAN in st.session_state):
        return
    st.session_state[_PLAN], st.session_state[_REFUSED] = TuningPlan.from_query(query)
    st.session_state[_VIEW] = {
        name: int(text) for name, text in _view_query(query).items() if text.isdecimal()
    }


def write_url() -> None:
    """Show plan and view in the address bar."""
    shown = {name: str(value) for name, value in st.session_state.get(_VIEW, {}).items()}
    wanted = plan().to_query() | shown
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)
    st.session_state[_WRITTEN] = wanted


def _plan_query(query: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in query.items() if k in TuningPlan.query_names()}


def _view_query(query: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in query.items() if k in VIEW_KEYS}
