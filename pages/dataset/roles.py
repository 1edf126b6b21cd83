"""Roles given by hand: the file's own columns, and its first rows as they would come out.

Notable:
- the columns are those of the file, before any layout: a path may be typed, ``*`` stands for every
  element
- nothing of the plan changes until the rows are loaded; then Undo on top brings back what was there
"""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from packing.sources.columns import Column
from packing.sources.errors import SourceError
from packing.sources.load import columns_of
from packing.sources.loaded import Loaded
from packing.sources.spec import SourceSpec
from pages.shared import data, tokens
from pages.shared.text import plain

PREVIEWED_RECORDS = 3
# What rows are made of, and the roles that each takes beside groups and rewards.
KINDS = {
    "a prompt and what was sampled": ("prompt", "completion"),
    "conversations": ("messages", "tools"),
    "token ids": ("input_ids", "attention_mask", "loss_mask"),
    "segments": ("segments",),
    "text": ("text",),
}
BESIDE = ("group", "step", "reward")
_OPEN, _ROUND = "roles.source", "roles.round"


def offer(source: SourceSpec) -> None:
    """A button that opens the editor for a source."""
    if st.button("Give its columns roles", icon=":material/table_edit:", key="give_roles"):
        begin(source)
        st.rerun()


def begin(source: SourceSpec) -> None:
    """Show the editor for a source from now on."""
    st.session_state[_OPEN] = replace(source, roles=())
    st.session_state[_ROUND] = st.session_state.get(_ROUND, 0) + 1


def close() -> None:
    """Show it no more."""
    st.session_state.pop(_OPEN, None)


def draw() -> SourceSpec | None:
    """The editor, where it is open; the source to load once its roles are decided."""
    source = st.session_state.get(_OPEN)
    if source is None:
        return None
    with st.container(border=True):
        st.markdown(f"**Columns of {plain(data.source_name(source))} and their roles**")
        try:
            columns = _columns(source.to_query())
        except SourceError as error:
            st.error(plain(error), icon=":material/error:")
            st.button("Close", on_click=close, key="roles_close")
            return None
        wanted = source.with_roles(_chosen(columns))
        ready = _preview(wanted) if wanted.roles else False
        with st.container(horizontal=True):
            load = st.button(
                "Load with these roles", type="primary", disabled=not ready, key="roles_load"
            )
            st.button(
                "Start over",
                on_click=begin,
                args=(source,),
                disabled=not wanted.roles,
                icon=":material/undo:",
                key="roles_over",
            )
            st.button("Close", on_click=close, key="roles_close")
    if not load:
        return None
    close()
    return wanted


@st.cache_data(show_spinner="Looking at the file", max_entries=8, ttl=600)
def _columns(query: str) -> tuple[Column, ...]:
    return columns_of(SourceSpec.from_query(query), data.allowed_roots())


def _chosen(columns: tuple[Column, ...]) -> dict[str, str]:
    """Column paths by role, as they are chosen on screen."""
    turn = st.session_state[_ROUND]  # fresh widgets after a start over
    kind = st.segmented_control(
        "a record holds", list(KINDS), default=next(iter(KINDS)), key=f"roles_kind{turn}"
    )
    examples = {c.path: f"{c.path}: {c.kind}, {c.example}" for c in columns}
    own = KINDS[kind or next(iter(KINDS))]
    chosen = {}
    for place, role in zip(st.columns(len(own) + len(BESIDE)), (*own, *BESIDE), strict=True):
        path = place.selectbox(
            role,
            list(examples),
            index=None,
            key=f"roles_{role}{turn}",
            placeholder="none",
            accept_new_options=True,
            help="A column, or a path such as `answers.*.text`: `*` stands for every element.",
        )
        if path:
            chosen[role] = path
    with st.expander("What is in the columns", icon=":material/view_column:"):
        st.dataframe(
            [{"path": c.path, "is": c.kind, "for example": c.example} for c in columns],
            hide_index=True,
        )
    return chosen


def _preview(wanted: SourceSpec) -> bool:
    """The first rows; whether they can be loaded."""
    task = data.task_of(replace(wanted, limit=PREVIEWED_RECORDS))
    data.follow(task, "cancel_preview")
    if task.result is None:
        st.warning(plain(task.error or "Nothing was read."), icon=":material/info:")
        return False
    draw_preview(task.result)
    return True


def draw_preview(loaded: Loaded) -> None:
    """The first rows as text, their ids, and what is trained on."""
    count = len(loaded.rows)
    st.markdown(
        f"**The first {loaded.provenance.records:,} records as {count:,} rows**, "
        f"{loaded.rows.n_groups:,} groups; a group is {plain(loaded.provenance.grouped_by)}. "
        "Dim tokens are not trained on."
    )
    for row in loaded.preview:
        ids = loaded.rows[row.row][: len(row.tokens)]
        start = int(loaded.rows.offsets[row.row])
        mask = loaded.rows.loss_mask
        trained = None if mask is None else mask[start : start + len(ids)]
        of = int(trained.sum()) if trained is not None else 0
        said = f"{of:,} of them trained" if trained is not None else "nobody says which are trained"
        st.caption(f"row {row.row:,}: {row.length:,} tokens, {said}")
        tokens.draw(loaded.rows, ids, trained, row.tokens)
        st.caption("ids " + " ".join(f"{i:d}" for i in ids[:24].tolist()) + " …" * (len(ids) > 24))
