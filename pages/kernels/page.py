"""Kernels: tree attention on the user's own tree, proven right and timed, by every backend."""

from __future__ import annotations

import streamlit as st

from pages.kernels import jobs as kernel_jobs
from pages.kernels.parts import (
    draw_compile_table,
    draw_gpu_run,
    draw_proof,
    draw_settings,
    draw_tiles,
)
from pages.kernels.table import draw_runs
from pages.shared import command, data, help_panel, refusal, state
from tuning.plan.commands import command_line

batch = data.batch()
plan = state.plan()

st.title("Kernels", anchor=False)
st.caption(
    "Tree attention computes a shared prefix once. Here it runs on your own tree: first whether it "
    "gives what the rows would give one by one, then how fast each way of computing it is."
)
forest = refusal.forest(batch, plan, "kernels")
tree = min(max(state.view("tree"), 0), len(forest) - 1)
trie = forest.tree(tree)

active = kernel_jobs.running()
busy = {view.kind for view in active}
kernel_jobs.draw_activity(active)
draw_proof(batch, plan, kernel_jobs.newest("equivalence", batch), "equivalence" in busy)
draw_settings(batch, plan, trie, tree, len(forest), "kernels" in busy)
draw_runs(plan, tree, kernel_jobs.newest("kernels", batch, tree))
draw_tiles(trie, tree, batch.rows.fingerprint, plan)
draw_compile_table()
draw_gpu_run()
on_this_tree = ["--tree", str(tree)] if tree else []
command.show(f"{command_line('prove', plan)}\n{command_line('kernels', plan, on_this_tree)}")
help_panel.draw("block efficiency", "cascade", "trie", "max_tokens_per_mb")
