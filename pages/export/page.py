"""Export: the config, the report and the workspace that leave, and what comes back."""

from __future__ import annotations

import streamlit as st

from pages.export.config import draw_own_config
from pages.export.known import known_of
from pages.export.logs import draw_logs
from pages.export.open import draw_open
from pages.export.parts import draw_export, draw_refusal, draw_settings, draw_verdict, words_of
from pages.export.report import draw_report
from pages.export.save import draw_link, draw_save
from pages.shared import command, data, help_panel, state

batch = data.batch()
plan = state.plan()

st.title("Export", anchor=False)
st.caption(
    "AReaL checks most rules of tree training only when the first batch is packed, after a whole "
    "rollout, and some never. This page checks them now."
)
known = known_of(batch, plan)
# A place of their own: what comes and goes there leaves the tabs below where they are.
with st.container():
    choice = draw_settings(known.sweep.pick if known.sweep else None, batch, plan)
    runs = not draw_refusal(batch, plan)
    if runs:
        draw_verdict(batch, plan, choice)
new, own, logs, report, share = st.tabs(
    ["A config for AReaL", "Your own config", "Read a log back", "Report", "Save and share"],
    key="export_tabs",
    on_change="rerun",  # the server knows which is open, and so it stays open
)
with new:
    if runs:
        draw_export(batch, plan, choice)
    else:
        st.caption("There is no config to hand back until the plan above can run.")
with own:
    draw_own_config(batch, plan, choice)
with logs:
    draw_logs(batch, plan)
with report:
    draw_report(known)
with share:
    draw_link(known)
    draw_save(known)
    draw_open()
command.draw("export", words_of(choice))
help_panel.draw("max_tokens_per_mb", "paid", "minibatch")
