"""The parts of the Packing page: verdict, trees, ranks, order of rows, divergences."""

from __future__ import annotations

import statistics

import numpy as np
import pandas as pd
import streamlit as st

from packing.metrics import PackingMetrics, padded_token_ratio
from pages.shared import state, tokens
from pages.shared.forest import forest_overview
from tuning.plan.batch import Batch, batch_plan
from tuning.plan.plan import TuningPlan

_OPEN = "packing.open_tree"  # a tree was clicked: its page opens once the bars are drawn
_SHUFFLES = 5
_TABLE_ROWS = 2000
_PIECES = 3
_WORTH_IT = 0.9


def draw_verdict(bench: Batch, plan: TuningPlan) -> None:
    """The figures of this cap, and the sentence that a team decides by."""
    cap = plan.max_tokens_per_mb
    m = bench.metrics(cap, plan.packer)
    paid = bench.comparison(cap, plan.packer)
    least = bench.bounds(cap)
    columns = st.columns(5)
    gap = m.n_trees - least.trees
    columns[0].metric(
        "trees",
        f"{m.n_trees:,}",
        "optimal" if gap == 0 else f"{gap:,} over the bound",
        delta_color="off",
        delta_arrow="off",
        help=f"No packer can do with fewer than {least.trees:,} (exact bound).",
    )
    columns[1].metric(
        "tree_token_ratio",
        f"{m.tree_token_ratio:.3f}",
        f"{m.prefix_reuse:.2f}× reuse",
        delta_color="off",
        delta_arrow="off",
        help="Tokens in trees ÷ tokens of the rows, AReaL's own figure; lower is better.",
    )
    columns[2].metric(
        "paid ÷ original",
        f"{m.padded_token_ratio:.3f}",
        f"{m.fill:.1%} filled",
        delta_color="off",
        delta_arrow="off",
        help="Trees × max_tokens_per_mb ÷ tokens of the rows: what really runs through the model.",
    )
    columns[3].metric(
        "flat packing pays",
        "refused" if paid.flat is None else f"{paid.flat / paid.original_tokens:.3f}",
        "without trees",
        delta_color="off",
        delta_arrow="off",
        help="AReaL's ffd micro-batches of whole rows, each padded to a multiple of 256.",
    )
    columns[4].metric(
        "attention area",
        f"{m.tree_area / m.flat_area:.3f}",
        "trees ÷ flat rows",
        delta_color="off",
        delta_arrow="off",
        help="Visible (query, key) pairs: attention gains differently from everything else.",
    )
    st.markdown(_verdict(m, paid.tree_over_flat))


def _verdict(m: PackingMetrics, tree_over_flat: float | None) -> str:
    if tree_over_flat is None:
        return "AReaL's flat packing refuses these rows at this cap, so there is no comparison."
    if tree_over_flat < _WORTH_IT:
        return (
            f"**Trees compute {1 / tree_over_flat:.2f}× fewer tokens than flat packing** at this "
            f"cap ({m.paid_tokens:,} paid, exact). Time and memory are measured on the Tune page."
        )
    if tree_over_flat <= 1.0:
        return (
            "**Trees and flat packing pay about the same here**: trees save "
            f"{1 - tree_over_flat:.1%} of the tokens, less than masks and branches usually cost. "
            "Measure on the Tune page before you turn tree training on."
        )
    return (
        f"**Trees lose here: they compute {tree_over_flat:.2f}× the tokens of flat packing.** "
        "The rows share too little, or the cap leaves too much padding."
    )


def draw_trees(bench: Batch, plan: TuningPlan) -> None:
    """Every tree as a bar, and as a line of a table; a click opens it on the Trie page."""
    m = bench.metrics(plan.max_tokens_per_mb, plan.packer)
    forest = bench.forest(plan.max_tokens_per_mb, plan.packer)
    row_tokens = bench.row_tokens_per_tree(plan.max_tokens_per_mb, plan.packer)

    def picked(tree: int) -> None:
        state.set_view(tree=tree, node=None, row=None, x0=None, x1=None)
        st.session_state[_OPEN] = True

    forest_overview(
        np.arange(m.n_trees),
        m.tokens_per_tree,
        forest.rows_per_tree,
        row_tokens,
        plan.max_tokens_per_mb,
        -1,
        -1,
        picked,
    )
    st.caption(
        "Each bar is a tree: as long as it is full, its colour the stronger the more its rows "
        "share. A click opens it on the Trie page."
    )
    if st.session_state.pop(_OPEN, False):
        st.switch_page("trie/page.py")
    shown = min(m.n_trees, _TABLE_ROWS)
    rows = forest.rows_per_tree[:shown]
    table = pd.DataFrame(
        {
            "tree": range(shown),
            "rows": rows,
            "nodes": forest.nodes_per_tree[:shown],
            "tokens": m.tokens_per_tree[:shown],
            "padding": plan.max_tokens_per_mb - m.tokens_per_tree[:shown],
            "row tokens": row_tokens[:shown],
        }
    )
    table["reuse ×"] = table["row tokens"] / table["tokens"]
    st.dataframe(
        table,
        hide_index=True,
        column_config={
            "tokens": st.column_config.ProgressColumn(
                format="localized", min_value=0, max_value=plan.max_tokens_per_mb
            ),
            "reuse ×": st.column_config.NumberColumn(format="%.2f"),
            "padding": st.column_config.NumberColumn(format="localized"),
            "row tokens": st.column_config.NumberColumn(format="localized"),
        },
    )
    if m.n_trees > shown:
        st.caption(f"The first {shown:,} of {m.n_trees:,} trees.")


def draw_batch_plan(bench: Batch, plan: TuningPlan) -> None:
    """The plan of one step, and what ranks and minibatches cost."""
    columns = st.columns(5)
    columns[0].number_input(
        "prompts per step",
        0,
        help="Groups of a global batch; 0: all.",
        **state.bind("prompts_per_step"),
    )
    columns[1].number_input(
        "samples per prompt",
        0,
        help="Rows kept of each group; 0: all.",
        **state.bind("samples_per_prompt"),
    )
    columns[2].number_input("data-parallel ranks", 1, 1024, **state.bind("dp_size"))
    columns[3].number_input(
        "ppo_n_minibatches",
        1,
        64,
        help="AReaL deals single rows to minibatches, so samples of one prompt part.",
        **state.bind("ppo_n_minibatches"),
    )
    columns[4].selectbox(
        "dispatch",
        ["controller", "spmd"],
        help="How AReaL shares groups over ranks: by padded size (controller), or by true tokens.",
        **state.bind("dispatch"),
    )
    plan = state.plan()
    try:
        chain = bench.chain(batch_plan(plan))
    except (ValueError, RuntimeError) as error:
        st.error(f"AReaL refuses this plan: “{error}”", icon=":material/block:")
        return
    summary = chain.summary()
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "pass": name,
                    "rank": rank,
                    "minibatch": index,
                    "trees": one.n_trees,
                    "dummy trees": part.trees_per_rank - one.n_trees,
                    "tokens in trees": one.tree_tokens,
                    "tree_token_ratio": one.tree_token_ratio,
                }
                for name, passes in (
                    ("compute_logp", (chain.compute_logp,)),
                    ("ppo_update", chain.ppo_update),
                )
                for index, part in enumerate(passes)
                for rank, one in enumerate(part.ranks)
            ][:_TABLE_ROWS]
        ),
        hide_index=True,
        column_config={"tree_token_ratio": st.column_config.NumberColumn(format="%.3f")},
    )
    whole = padded_token_ratio(summary["paid_compute_logp"]["tree"], summary["original_tokens"])
    st.markdown(
        f"`ppo_update` pays **{summary['padded_ratio_ppo_update']:.3f}** tokens for each original "
        f"one over all ranks and minibatches, `compute_logp` {whole:.3f} "
        f"({summary['dummy_trees_ppo_update']:,} dummy trees; exact)."
    )


def draw_order_sensitivity(bench: Batch, plan: TuningPlan) -> None:
    """First fit depends on the order in which rows arrive; how much, on these rows."""
    cap = plan.max_tokens_per_mb
    shuffled = [bench.shuffled(cap, seed) for seed in range(_SHUFFLES)]
    ours, replayed = bench.packing(cap, "prefix-aware"), bench.replayed(cap)
    original = bench.rows.n_tokens
    lines = [
        ("as they stand, AReaL's packer", bench.packing(cap, "areal")),
        ("Espalier's packer", ours),
        ("Espalier's order, AReaL's packer", replayed),
    ]
    table = [
        {
            "rows fed": name,
            "trees": f"{p.n_trees:,}",
            "tree_token_ratio": f"{p.tree_tokens / original:.4f}",
        }
        for name, p in lines
    ]
    trees = [p.n_trees for p in shuffled]
    ratios = [p.tree_tokens / original for p in shuffled]
    table.insert(
        1,
        {
            "rows fed": f"shuffled, AReaL's packer ({_SHUFFLES} seeds)",
            "trees": f"{statistics.median(trees):,.0f} ({min(trees):,}–{max(trees):,})",
            "tree_token_ratio": f"{statistics.median(ratios):.4f} "
            f"({min(ratios):.4f}–{max(ratios):.4f})",
        },
    )
    st.dataframe(pd.DataFrame(table), hide_index=True)
    least = bench.bounds(cap)
    st.caption(
        f"No packer can do with fewer than {least.trees:,} trees and "
        f"{least.tokens / original:.4f} of the tokens (exact bounds). The last line is what AReaL "
        "itself makes of the rows when they arrive in the order that Espalier suggests."
    )


def draw_divergences(bench: Batch, plan: TuningPlan) -> None:
    """Where rows part although the same tokens follow, and what sharing them would bring."""
    found = bench.divergences(plan.max_tokens_per_mb)
    if not found:
        st.success(
            "Nothing was found: where rows part, different text follows.", icon=":material/check:"
        )
        return
    st.caption(
        "Ranked by tokens to gain. A date or an id early in a prompt, stripped reasoning or "
        "another tokenisation keeps equal text apart. Some are coincidences of sampling, which "
        "nothing mends."
    )
    for d in found:
        with st.container(border=True):
            st.markdown(
                f"**{d.n_rows:,} rows of {d.n_groups:,} groups part at token {d.position:,}**, "
                f"then {d.equal_tokens:,} equal tokens follow. Sharing them would save "
                f"{d.tokens_saved:,} tokens: tree_token_ratio {d.ratio_from:.3f} → "
                f"**{d.ratio_to:.3f}**."
            )
            columns = st.columns(max(len(d.pieces[:_PIECES]), 1))
            for column, piece in zip(columns, d.pieces[:_PIECES], strict=False):
                with column:
                    tokens.draw_divergence(bench.rows, d.before, piece, d.after)
            if len(d.pieces) > _PIECES:
                st.caption(f"{len(d.pieces) - _PIECES:,} more variants.")
