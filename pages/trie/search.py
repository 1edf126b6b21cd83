"""Find a row by its number or a text in the tree; the highlighted row, and how to let it go."""

from __future__ import annotations

import html
import re

import streamlit as st

from pages.shared import state
from pages.trie.explorer import search_text
from pages.trie.look import Look, highlight, open_node, open_tree
from tuning.plan.numbers import many, number

_KEY = "trie_search.widget"
_ROW = re.compile(r"\s*(?:row|#)\s*([\d,_]+)\s*", re.IGNORECASE)


def search_box() -> str:
    """A box for "row 17" or words of a text; the words, if it is words."""
    asked = st.text_input(
        "find text in this tree, or “row 17”",
        key=_KEY,
        persist_state="session",
        on_change=_follow_row,
        placeholder="words, or row and its number",
    )
    return "" if _ROW.fullmatch(asked) else asked.strip()


def _follow_row() -> None:
    """A row's number takes us to its tree at once."""
    match = _ROW.fullmatch(st.session_state[_KEY])
    if match:
        state.set_view(
            row=int(re.sub(r"\D", "", match[1])[:12] or 0),
            tree=None,
            node=None,
            token=None,
            x0=None,
            x1=None,
        )


def draw_hits(look: Look, words: str) -> None:
    """Where the words stand in the tree, and how far they were looked for."""
    if not words:
        return
    trie = look.trie
    search = search_text(look.batch.rows, trie, words)
    where = "the whole tree"
    if search.nodes < len(trie):
        where = f"the first {search.nodes:,} of {len(trie):,} nodes ({search.tokens:,} tokens)"
    st.caption(f"{len(search.hits):,} places found; looked at {where}.")
    with st.container(
        height=220 if len(search.hits) > 5 else "content", border=False, gap="xxsmall"
    ):
        for hit in search.hits:
            left, right = st.columns([1, 8], vertical_alignment="center", gap="small")
            left.button(
                many(int(trie.row_count[hit.node]), "row"),
                key=f"hit{hit.node}",
                on_click=open_node,
                args=(hit.node, int(trie.start[hit.node])),
                help=f"node {hit.node:,} at depth {trie.depth[hit.node]:,}",
            )
            right.html(
                f'<div class="token-text">…{html.escape(hit.before)}'
                f"<mark>{html.escape(hit.found)}</mark>{html.escape(hit.after)}</div>"
            )


def draw_row(look: Look) -> None:
    """Which row is highlighted, where it is, and a button that lets it go."""
    if look.row < 0:
        return
    if look.row > look.last_row:
        st.markdown(f"There is no row {number(look.row)}: the last one is {number(look.last_row)}.")
        return
    with st.container(horizontal=True, vertical_alignment="center", key="row_line"):
        if look.batch_row < 0:
            st.markdown(f"Row {look.row:,} is not in this batch.", width="content")
        elif look.row_tree < 0:
            st.markdown(f"Row {look.row:,} is empty: no tree holds it.", width="content")
        elif look.row_tree != look.tree:
            st.markdown(f"Row {look.row:,} is in tree {look.row_tree:,}.", width="content")
            st.button(f"Go to tree {look.row_tree:,}", on_click=open_tree, args=(look.row_tree,))
        else:
            shared = sum(int(look.trie.lengths[n]) for n in look.path if look.trie.row_count[n] > 1)
            total = int(look.batch.rows.lengths[look.batch_row])
            st.markdown(
                f":orange[**━**] **Row {look.row:,}**: {total:,} tokens, "
                f"{shared:,} shared, in {len(look.path):,} nodes",
                width="content",
            )
            st.button("Go to its end", on_click=open_node, args=(look.path[-1],))
        st.button(
            "Clear",
            icon=":material/close:",
            on_click=highlight,
            args=(look.tree, None),
            key="clear_row",
            help="Take the highlight away.",
        )
