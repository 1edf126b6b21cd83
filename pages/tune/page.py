"""Tune: real training steps over the range of caps, and the one to use."""

from __future__ import annotations

import streamlit as st

from pages.shared import background, command, data, help_panel, state
from pages.shared.widgets import draw_unread
from pages.tune import history as tune_history
from pages.tune import jobs as tune_jobs
from pages.tune import settings as tune_settings
from pages.tune.parts import draw_pick, draw_result

batch = data.batch()

st.title("Tune", anchor=False)
st.caption(
    "Which `max_tokens_per_mb`, how fast, will it fit, how sure? Steps are run on this machine; a "
    "cost model fills the gaps and shows its error."
)
job = tune_jobs.current(batch)
if job is not None:
    draw_pick(job, state.plan())
tune_settings.draw(batch, None if job and job.origin else job)
job = tune_jobs.current(batch)
if job is None:
    st.info(
        "Nothing has been measured on these rows with these settings. Start: the ends of the range "
        "first, then around the best.",
        icon=":material/speed:",
    )
elif job.active:
    tune_jobs.follow(job)
else:
    tune_jobs.draw_ending(job)
    plan = state.plan()
    curve, complete = background.curve(batch, plan, plan.packer)
    draw_result(job, plan, curve)
    if not complete:
        background.watch()
if unread := tune_jobs.jobs().unread:
    draw_unread("jobs", unread, tune_jobs.jobs().set_aside)
tune_history.draw(batch)
command.draw("sweep")
help_panel.draw("step", "max_tokens_per_mb", "paid", "dummy tree", "compute_logp")
