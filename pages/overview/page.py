"""Overview: worth it, which cap, resting on what, what next; the rows before and after."""

from __future__ import annotations

import streamlit as st

from pages.overview.answer import advice_of, draw_answer, draw_way
from pages.overview.before_after import draw_bars, draw_fold
from pages.shared import command, data, help_panel, refusal, state
from pages.shared.text import plain

batch = data.batch()
plan = state.plan()

advice = advice_of(batch, plan)
with st.container(key="headline"):
    st.title(plain(advice.headline), anchor=False)
if refused := batch.refusal(plan):
    refusal.draw(refused, "overview")
    st.caption("One of these changes, and the answer is here.")
    st.stop()
st.markdown(f"**{plain(advice.sentence)}**")
with st.container(key="answer"):
    left, right = st.columns([2, 1], gap="medium")
    with left:
        draw_bars(batch, plan)
    with right:
        draw_answer(advice)
command.draw("advise")
draw_way(batch, advice)
draw_fold(batch, plan)
help_panel.draw("row", "trie", "max_tokens_per_mb", "paid", "fill", "dummy tree", "minibatch")
