"""The parts of the Packing page: verdict, trees, ranks, order of rows, divergences."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from pages.shared import state, tokens
from pages.shared.forest import draw_forest, tree_columns
from pages.shared.text import plain
from pages.shared.widgets import table
from tuning.advice import verdict_of
from tuning.plan.batch import Batch
from tuning.plan.numbers import number, percent, ratio
from tuning.plan.plan import TuningPlan

_OPEN = "packing.open_tree"  # a tree was clicked: its page opens once the bars are drawn
_SHUFFLES = 5
_TABLE_ROWS = 2000
_PIECES = 3


def draw_verdict(batch: Batch, plan: TuningPlan) -> None:
    """The figures of this cap, and the sentence that a team decides by."""
    simulation = batch.simulation(plan)
    paid, least = simulation.comparison, simulation.bounds
    gap, dummies = simulation.n_trees - least.trees, simulation.n_dummy_trees
    bound = "optimal" if gap == 0 else f"{number(gap)} over the bound"
    metrics = {
        "trees": (
            number(simulation.n_trees),
            bound + (f", {number(dummies)} empty beside" if dummies else ""),
            "Trees with tokens in them, over all ranks and minibatches of an update. No packer "
            f"can do with fewer than {number(least.trees)} there (exact bound).",
        ),
        "tree_token_ratio": (
            ratio(simulation.tree_token_ratio),
            f"{simulation.prefix_reuse:.2f}× reuse",
            "Tokens in trees ÷ tokens of the rows; lower is better. AReaL logs the mean over its "
            f"calls: {simulation.areal_log['ppo_actor/update/tree_token_ratio']:.4f}.",
        ),
        "paid ÷ original": (
            ratio(simulation.padded_token_ratio),
            f"{percent(simulation.fill)} filled",
            "Ranks × the most trees of any rank × max_tokens_per_mb, over all minibatches, ÷ "
            "tokens of the rows: what really runs through the model.",
        ),
        "flat packing pays": (
            "refused" if paid.flat is None else ratio(paid.flat / paid.original_tokens),
            "without trees",
            "AReaL's ffd micro-batches of whole rows over the same ranks and minibatches, padded "
            f"as {plain(plan.engine)} pads them.",
        ),
        "attention area": (
            ratio(simulation.tree_area / max(simulation.flat_area, 1)),
            "trees ÷ flat rows",
            "Visible (query, key) pairs: attention gains differently from everything else.",
        ),
    }
    for column, (name, (value, below, said)) in zip(st.columns(5), metrics.items(), strict=True):
        column.metric(name, value, below, delta_color="off", delta_arrow="off", help=said)
    st.markdown(f"**{plain(verdict_of(simulation).sentence)}**")


def draw_trees(batch: Batch, plan: TuningPlan) -> None:
    """Every tree as a bar, and as a line of a table; a click opens it on the Trie page."""
    simulation = batch.simulation(plan)

    def picked(tree: int) -> None:
        state.set_view(tree=tree, node=None, row=None, x0=None, x1=None)
        st.session_state[_OPEN] = True

    draw_forest(simulation, picked)
    st.caption(
        "Each bar is a tree: as long as it is full, its colour the stronger the more its rows "
        "share. A click opens it on the Trie page."
    )
    if st.session_state.pop(_OPEN, False):
        st.switch_page("trie/page.py")
    shown = min(simulation.n_trees, _TABLE_ROWS)
    filled = st.column_config.ProgressColumn(
        format="localized", min_value=0, max_value=plan.max_tokens_per_mb
    )
    table(tree_columns(simulation, slice(shown)), {"tokens": filled})
    if simulation.n_trees > shown:
        st.caption(f"The first {shown:,} of {simulation.n_trees:,} trees.")


def draw_batch_plan(batch: Batch, plan: TuningPlan) -> None:
    """The plan of one step, and what ranks and minibatches cost."""
    columns = st.columns(5)
    least = {"prompts_per_step": 0, "samples_per_prompt": 0, "dp_size": 1, "ppo_n_minibatches": 1}
    for column, (name, low) in zip(columns, least.items(), strict=False):
        column.number_input(min_value=low, **state.widget(name))
    columns[4].selectbox(options=["controller", "spmd"], **state.widget("dispatch"))
    plan = state.plan()
    if batch.refusal(plan):
        return  # the page says it on top
    simulation = batch.simulation(plan)
    summary = simulation.summary()
    passes = [("compute_logp", 0, simulation.compute_logp)]
    passes += [("ppo_update", nth, one) for nth, one in enumerate(simulation.ppo_update)]
    lines = [
        {
            "pass": name,
            "rank": rank,
            "minibatch": index,
            "trees": one.n_trees,
            "dummy trees": part.trees_per_rank - one.n_trees,
            "tokens in trees": one.tree_tokens,
            "tree_token_ratio": one.tree_token_ratio,
        }
        for name, index, part in passes
        for rank, one in enumerate(part.ranks)
    ]
    table(lines[:_TABLE_ROWS])
    st.markdown(
        f"`ppo_update` pays **{summary['padded_ratio_ppo_update']:.3f}** tokens for each original "
        "one over all ranks and minibatches, `compute_logp` "
        f"{summary['padded_ratio_compute_logp']:.3f} "
        f"({summary['dummy_trees_ppo_update']:,} dummy trees; exact)."
    )


def draw_order_sensitivity(batch: Batch, plan: TuningPlan) -> None:
    """AReaL's loader shuffles prompts, and first fit depends on their order: how much, here."""
    as_it_is, ours = (
        batch.simulation(replace(plan, packer=packer)) for packer in ("areal", "prefix-aware")
    )
    shuffled = [batch.shuffled(replace(plan, packer="areal"), seed) for seed in range(_SHUFFLES)]
    lines = {
        "prompts as they stand, AReaL's packer": [as_it_is],
        f"prompts shuffled, AReaL's packer ({_SHUFFLES} seeds)": shuffled,
        "prompts as they stand, Espalier's packer in AReaL": [ours],
    }
    found_of = [
        {
            "rows fed": name,
            "trees": _median([s.n_trees for s in found], ","),
            "tree_token_ratio": _median([s.tree_token_ratio for s in found], ".4f"),
            "paid ÷ original": _median([s.padded_token_ratio for s in found], ".4f"),
        }
        for name, found in lines.items()
    ]
    table(found_of)
    least = as_it_is.bounds
    st.caption(
        f"No packer can do with fewer than {least.trees:,} trees and "
        f"{least.tokens / max(as_it_is.original_tokens, 1):.4f} of the tokens over these ranks and "
        "minibatches (exact bounds). AReaL sorts prompts by size before it packs them, so their "
        "order decides only among those of one size."
    )


def _median(values: Sequence[float], style: str) -> str:
    middle = statistics.median(values)
    if len(values) == 1:
        return format(values[0], style)
    shown = f"{middle:,.0f}" if style == "," else format(middle, style)
    return f"{shown} ({min(values):{style}}–{max(values):{style}})"


def draw_divergences(batch: Batch, plan: TuningPlan) -> None:
    """Where rows part although the same tokens follow, and what sharing them would bring."""
    found = batch.divergences(plan)
    if not found:
        st.success(
            "Nothing was found that would help: where rows part, different text follows.",
            icon=":material/check:",
        )
        return
    st.caption(
        "Ranked by what the update would pay less. A date or an id early in a prompt, stripped "
        "reasoning or another tokenisation keeps equal text apart. Some are coincidences of "
        "sampling, which nothing mends."
    )
    for d in found:
        with st.container(border=True):
            st.markdown(
                f"**{d.n_rows:,} rows of {d.n_groups:,} groups part at token {d.position:,}**, "
                f"then {d.equal_tokens:,} equal tokens follow. One trie would hold "
                f"**{d.tokens_saved:,} fewer tokens**; the update would pay "
                f"{d.paid_tokens[1]:,} tokens instead of {d.paid_tokens[0]:,}."
            )
            columns = st.columns(max(len(d.pieces[:_PIECES]), 1))
            for column, piece in zip(columns, d.pieces[:_PIECES], strict=False):
                with column:
                    tokens.draw_divergence(batch.rows, d.before, piece, d.after)
            if len(d.pieces) > _PIECES:
                st.caption(f"{len(d.pieces) - _PIECES:,} more variants.")
