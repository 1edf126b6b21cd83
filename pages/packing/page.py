"""Packing: what AReaL will do with the rows at this cap, and what is paid for it."""

from __future__ import annotations

import streamlit as st

from packing.packers.areal import RowTooLong
from pages.packing import before_after
from pages.packing.cap_slider import cap_slider
from pages.packing.curve import draw_curve
from pages.packing.parts import (
    draw_batch_plan,
    draw_divergences,
    draw_order_sensitivity,
    draw_trees,
    draw_verdict,
)
from pages.shared import command, data, help_panel, state

bench = data.bench()
plan = state.plan()

st.title("Packing", anchor=False)
st.caption(
    "Rows that start alike are merged into trees of at most `max_tokens_per_mb` tokens, and every "
    "tree is padded to it. A larger cap shares more and pads more; it also costs memory."
)
low = data.smallest_cap(bench, plan)
high = max(data.largest_cap(bench, plan), low + plan.alignment)
if plan.max_tokens_per_mb < low:
    st.error(
        f"The longest row has {bench.smallest_cap:,} tokens: AReaL stops at the first batch with "
        f"“Sequence length {bench.smallest_cap} exceeds max_tokens_per_tree "
        f"{plan.max_tokens_per_mb}; adjust limit or split sequences.”",
        icon=":material/block:",
    )
    st.button(
        f"Use the smallest cap that works, {low:,}",
        on_click=state.update,
        kwargs={"max_tokens_per_mb": low},
        type="primary",
    )
    st.stop()
left, right = st.columns([3, 1], vertical_alignment="bottom")
with left:
    cap_slider(low, high, plan.alignment)
right.segmented_control(
    "packer",
    ["areal", "prefix-aware"],
    format_func={"areal": "AReaL's", "prefix-aware": "Espalier's"}.__getitem__,
    required=True,
    help="AReaL's own first fit, exactly; or ours, which AReaL can follow when rows are fed in "
    "the order it suggests.",
    **state.bind("packer"),
)
plan = state.plan()
try:
    draw_verdict(bench, plan)
except RowTooLong as error:
    st.error(str(error))
    st.stop()
draw_curve(bench, plan, low, high)
parts = {
    "Trees": draw_trees,
    "Before and after": before_after.draw,
    "Ranks and minibatches": draw_batch_plan,
    "Order of rows": draw_order_sensitivity,
    "Where rows part too early": draw_divergences,
}
tabs = st.tabs(list(parts), on_change="rerun", key="packing_tabs")
for tab, part in zip(tabs, parts.values(), strict=True):
    if tab.open:  # a hidden tab works nothing out
        with tab:
            part(bench, plan)
command.draw("pack")
help_panel.draw("max_tokens_per_mb", "trie", "tree_token_ratio", "paid", "fill", "dummy tree")
