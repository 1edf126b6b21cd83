"""Packing: what max_tokens_per_mb means for this batch, exactly, and what it costs."""

from __future__ import annotations

import streamlit as st

from pages.packing.cap_slider import cap_slider
from pages.packing.curve import draw_curve
from pages.packing.parts import (
    draw_batch_plan,
    draw_divergences,
    draw_order_sensitivity,
    draw_trees,
    draw_verdict,
)
from pages.shared import command, data, help_panel, refusal, state
from tuning.plan.batch import smallest_cap

batch = data.batch()
plan = state.plan()

st.title("Packing", anchor=False)
st.caption(
    "Rows that start alike are merged into trees of at most `max_tokens_per_mb` tokens, and every "
    "tree is padded to it. A larger cap shares more and pads more; it also costs memory."
)
low, high = smallest_cap(batch.rows, plan), data.largest_cap(batch, plan)
left, right = st.columns([3, 1], vertical_alignment="bottom")
with left:
    cap_slider(low, high, plan.alignment)
right.segmented_control(
    options=["areal", "prefix-aware"],
    format_func={"areal": "AReaL's", "prefix-aware": "Espalier's"}.__getitem__,
    required=True,
    **state.widget("packer"),
)
plan = state.plan()
if refused := batch.refusal(plan):
    refusal.draw(refused, "packing")
    draw_batch_plan(batch, plan)
    st.stop()
draw_verdict(batch, plan)
draw_curve(batch, plan, low, high)
parts = {
    "Trees": draw_trees,
    "Ranks and minibatches": draw_batch_plan,
    "Order of prompts": draw_order_sensitivity,
    "Where rows part too early": draw_divergences,
}
tabs = st.tabs(list(parts), on_change="rerun", key="packing_tabs")
for tab, part in zip(tabs, parts.values(), strict=True):
    if tab.open:  # a hidden tab works nothing out
        with tab:
            part(batch, plan)
command.draw("pack")
help_panel.draw(
    *("max_tokens_per_mb", "trie", "tree_token_ratio", "paid", "fill", "dummy tree", "bound"),
    *("attention area", "minibatch", "dispatch", "compute_logp"),
)
