"""Compare: two datasets, two plans or two runs side by side, and their differences as numbers."""

from __future__ import annotations

import streamlit as st

from pages.compare import parts as compare_parts
from pages.compare.choice import choose
from pages.shared import command, help_panel, state
from tuning.workspace.compare import compare

st.title("Compare", anchor=False)
st.caption(
    "The same measures of two sides, on the same axes, and the differences as numbers. Both sides "
    "are in the address bar: the link opens this comparison again."
)
pair = choose()
if pair is not None:
    compare_parts.draw(pair, compare(pair.a.side, pair.b.side))
    if state.other().get("vs") != "runs" and not pair.b.side.refused:
        compare_parts.draw_take(pair)
    command.show(pair.line)
help_panel.draw("tree_token_ratio", "paid", "fill", "dummy tree", "step")
