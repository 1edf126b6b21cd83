"""Trie: what is shared, from the whole forest down to one token."""

from __future__ import annotations

import streamlit as st

from pages.shared import command, data, help_panel, refusal, state
from pages.trie.look import look
from pages.trie.node import draw_children, draw_node
from pages.trie.parts import (
    choose_share,
    choose_tree,
    draw_breadcrumb,
    draw_icicle,
    draw_strip,
    draw_trees,
)
from pages.trie.search import draw_hits, draw_row, search_box

batch = data.batch()
plan = state.plan()

st.title("Trie", anchor=False)
st.caption(
    "What rows share stands once, on the left, and is computed once; every branch is where rows "
    "part."
)
forest = refusal.forest(batch, plan, "trie")


@st.fragment
def explore() -> None:
    """All that a click changes: it runs again without the rest of the page."""
    seen = look(batch, forest, plan)
    left, right = st.columns(2)
    with left:
        sort = choose_tree(seen)
    with right:
        words = search_box()
    choose_share(seen)
    draw_trees(seen, sort)
    # Places of their own: what comes and goes in them does not make the drawings below start anew.
    with st.container(key="trie_hits"):
        draw_hits(seen, words)
    with st.container(key="trie_row"):
        draw_row(seen)
    draw_strip(seen)
    draw_breadcrumb(seen)
    with st.container(key="branch"):
        left, right = st.columns([5, 3], gap="medium")
        with left:
            draw_icicle(seen)
        with right:
            draw_node(seen)
            draw_children(seen)
    state.write_url()


explore()
command.draw("pack")
help_panel.draw("row", "trie", "tree_token_ratio", "paid", "fill")
