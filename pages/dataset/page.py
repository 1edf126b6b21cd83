"""Dataset: which rows, how long they are, how they group, and what is odd about them."""

from __future__ import annotations

import streamlit as st

from pages.dataset.source import draw_options, draw_source
from pages.dataset.view import (
    draw_batch,
    draw_figures,
    draw_lengths,
    draw_problems,
    draw_rows,
    draw_sharing,
)
from pages.shared import command, data, help_panel, own_config

st.title("Dataset", anchor=False)
st.caption(
    "Rollouts in; rows of tokens out. Rows sampled from one prompt form a group: they are what "
    "tree packing shares."
)
draw_source()
own_config.draw_start()
loaded = data.loaded()
if (batch := data.batch_or_none()) is not None and len(batch.rows):
    draw_sharing(batch)
draw_figures(loaded)
draw_options(loaded)
left, right = st.columns([3, 2])
with left:
    draw_lengths(loaded)
with right:
    draw_batch(loaded)
    draw_problems(loaded)
draw_rows(loaded)
command.draw("rows")
help_panel.draw("row", "trie", "max_tokens_per_mb")
