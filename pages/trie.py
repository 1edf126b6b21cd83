"""Trie: what is shared, from a whole tree down to one token."""

from __future__ import annotations

import streamlit as st

from packing.packers.areal import RowTooLong
from pages import state
from pages.components import command, data, help_panel
from pages.components.trie_parts import (
    draw_breadcrumb,
    draw_icicle,
    draw_node,
    draw_strip,
    draw_tree_choice,
)

bench = data.bench()
plan = state.plan()

st.title("Trie", anchor=False)
st.caption(
    "One tree of the packing. Its trunk is what many rows share and is computed once; every "
    "branch is where rows part."
)
try:
    forest = bench.forest(plan.max_tokens_per_mb, plan.packer)
except RowTooLong as error:
    st.error(str(error), icon=":material/block:")
    st.page_link("packing.py", label="Choose a larger max_tokens_per_mb on the Packing page")
    st.stop()
if not len(forest):
    st.info("All rows are empty: there is no tree. Choose other data on the Dataset page.")
    st.stop()
tree = min(max(state.view("tree"), 0), len(forest) - 1)
trie = forest.tree(tree)
node = state.view("node", -1)
node = node if -1 <= node < len(trie) else -1

draw_tree_choice(bench, forest, tree, plan)
draw_strip(bench, trie, node, plan)
draw_breadcrumb(bench, trie, node)
left, right = st.columns([2, 1])
with left:
    draw_icicle(bench, trie, node)
with right:
    draw_node(bench, trie, node)
command.draw("pack")
help_panel.draw("row", "trie", "tree_token_ratio", "paid", "fill")
