"""The plan and the view of one browser session, and their way into the URL and back.

Notable:
- the plan lives in the session and is written to the URL after every change, so that a link, a
  reload or a restarted server bring back the same question
- a widget is tied to a plan field by ``bind``: no page copies values by hand
- the view (chosen tree, node, row, window) is in the URL too, but is not part of the question
- so is the other side of a comparison, as text: what it changes of the plan, or two runs
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st

from packing.sources.spec import SourceSpec
from tuning.plan.commands import rows_argument
from tuning.plan.plan import TuningPlan, options

# Not the key of any widget: widgets write their values under their keys.
_PLAN, _UNDO, _VIEW, _OTHER = "state.plan", "state.undo", "state.view", "state.other"
_LAST = "state.last_change"
_WRITTEN, _REFUSED = "state.url_written", "state.url_refused"
_SESSION = "state.session"
_UNASKED = "state.redrawn_unasked"

VIEW_KEYS = ("tree", "node", "row", "x0", "x1", "token")
OTHER_KEYS = ("vs", "a.run", "b.run", *(f"b.{name}" for name in sorted(TuningPlan.query_names())))
_UNDO_STEPS = 50
_ASKED = "state.asked"
_QUICK_BYTES = 32 << 20
_ALLOWED: set[str] = set()
"""Sources that somebody has loaded on this server."""
_IN_A_ROW_S = 0.7
_MAKE_TREES = (
    "max_tokens_per_mb",
    "packer",
    "prompts_per_step",
    "samples_per_prompt",
    "max_new_tokens",
)


def session() -> str:
    """Names this session, to tell what it did from what others did; it outlives no reload."""
    return st.session_state.setdefault(_SESSION, secrets.token_hex(8))


def plan() -> TuningPlan:
    """The plan of this session; at first, the bundled rows that share the most."""
    return st.session_state.setdefault(_PLAN, TuningPlan(source=sample_source("agent-turns")))


def sample_source(name: str) -> SourceSpec:
    """Bundled rows; agent rollouts are trained one row a turn, as AReaL does."""
    source = SourceSpec("sample", name)
    return replace(source, expand="turn") if name == "agent-turns" else source


def update(**fields: Any) -> None:
    """Change fields of the plan; the plan before can be brought back with ``undo``.

    Changes of the same fields in a row, as when a slider is dragged, are undone as one.
    """
    before = plan()
    after = replace(before, **fields)
    if after == before:
        return
    last, then = st.session_state.get(_LAST, ((), 0.0))
    now = time.monotonic()
    st.session_state[_LAST] = (tuple(fields), now)
    if last != tuple(fields) or now - then > _IN_A_ROW_S:
        st.session_state[_UNDO] = _with_undo_step()
    st.session_state[_PLAN] = after
    if after.source != before.source:
        st.session_state[_VIEW] = {}
    elif any(getattr(after, name) != getattr(before, name) for name in _MAKE_TREES):
        # Trees and nodes have other numbers now; a row is the same row.
        set_view(tree=None, node=None, token=None, x0=None, x1=None)


def waits(source: SourceSpec) -> bool:
    """Whether a link's rows are loaded only once somebody has clicked.

    Whoever sends a link must not make this server ask the Hub, with its user's token, nor read for
    long: what leaves the machine or is large waits, unless it has been loaded here before.
    """
    if source.to_query() in _ALLOWED:
        return False
    return source.leaves_machine or (source.kind == "file" and _is_large(source.location))


def allow(source: SourceSpec) -> None:
    """From now on links of this server may load it."""
    _ALLOWED.add(source.to_query())


def asked() -> SourceSpec | None:
    """What the link would load, where that waits for a click."""
    return st.session_state.get(_ASKED)


def load_asked() -> None:
    """Load it after all."""
    source = st.session_state.pop(_ASKED)
    allow(source)
    update(source=source)


def _is_large(location: str) -> bool:
    path = Path(location).expanduser()
    try:
        if path.is_file():
            return path.stat().st_size > _QUICK_BYTES
        return path.is_dir() or not set("*?[").isdisjoint(location)
    except (OSError, ValueError):
        return False  # the load says why


def can_undo() -> bool:
    return bool(st.session_state.get(_UNDO))


def undo() -> None:
    """Bring back the plan, and what it is compared with, before the last change."""
    *rest, (before, beside) = st.session_state[_UNDO]
    st.session_state[_UNDO] = rest
    st.session_state[_OTHER] = beside
    st.session_state.pop(_LAST, None)
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


def widget(field: str, **other: Any) -> dict[str, Any]:
    """``bind`` with the field's own label and help; ``other`` is passed on."""
    option = options()[field]
    return {"label": option.label, "help": option.help} | bind(field) | other


def view(name: str, default: int = 0) -> int:
    """A number of the view: ``tree``, ``node``, ``row``, ``x0``, ``x1``, ``token``."""
    return st.session_state.setdefault(_VIEW, {}).get(name, default)


def set_view(**values: int | None) -> None:
    """Set numbers of the view; None clears one."""
    merged = st.session_state.get(_VIEW, {}) | values
    st.session_state[_VIEW] = {k: int(v) for k, v in merged.items() if v is not None}


def other() -> dict[str, str]:
    """What the plan is compared with, as ``OTHER_KEYS`` of the URL have it."""
    return dict(st.session_state.get(_OTHER, {}))


def set_other(values: Mapping[str, str | None]) -> None:
    """Change what the plan is compared with; None clears a key. ``undo`` brings it back."""
    before = other()
    after = {k: v for k, v in (before | dict(values)).items() if v is not None}
    if after != before:
        st.session_state[_UNDO] = _with_undo_step()
        st.session_state.pop(_LAST, None)
        st.session_state[_OTHER] = after


def _with_undo_step() -> list[tuple[TuningPlan, dict[str, str]]]:
    return [*st.session_state.get(_UNDO, []), (plan(), other())][-_UNDO_STEPS:]


def refused() -> list[str]:
    """Sentences about parameters of the link that could not be used."""
    return st.session_state.get(_REFUSED, [])


def read_url() -> None:
    """Take plan, view and comparison from the URL where it is not what this session wrote.

    A browser sends the address it has, which lags behind: keys pressed faster than the page is
    drawn come with the address of an earlier press. So a run that follows a change made here, or
    one that nobody asked for (``redraw``), does not take it.
    """
    query, written = st.query_params.to_dict(), st.session_state.get(_WRITTEN)
    unasked = st.session_state.pop(_UNASKED, False)
    if written is not None and (unasked or _address() != written):
        return
    known = _plan_query(query) | _view_query(query) | _other_query(query)
    if query == written or not known:
        return
    linked, st.session_state[_REFUSED] = TuningPlan.from_query(query)
    st.session_state[_ASKED] = linked.source if waits(linked.source) else None
    if st.session_state[_ASKED] is not None:
        linked = replace(linked, source=plan().source)
    st.session_state[_PLAN] = linked
    st.session_state[_VIEW] = {
        name: int(text) for name, text in _view_query(query).items() if text.isdecimal()
    }
    st.session_state[_OTHER] = _other_query(query)


def write_url() -> None:
    """Show plan, view and comparison in the address bar."""
    wanted = _address()
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)
    st.session_state[_WRITTEN] = wanted


def redraw() -> None:
    """Draw the whole page again, unasked: the address it comes with may be an old one."""
    st.session_state[_UNASKED] = True
    st.rerun()


def _address() -> dict[str, str]:
    """Plan, view and comparison as the address bar should show them."""
    shown = {name: str(value) for name, value in st.session_state.get(_VIEW, {}).items()}
    # A link without any parameter opens on other rows than a plan's own default.
    asked = plan().to_query() or {"data": rows_argument(plan().source)}
    return asked | shown | other()


def _plan_query(query: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in query.items() if k in TuningPlan.query_names()}


def _view_query(query: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in query.items() if k in VIEW_KEYS}


def _other_query(query: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in query.items() if k in OTHER_KEYS}
