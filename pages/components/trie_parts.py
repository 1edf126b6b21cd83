"""The parts of the Trie page: choice of tree, strip, breadcrumb, icicle, node."""

from __future__ import annotations

import numpy as np
import streamlit as st

from packing.trie import Forest, Trie
from pages import state
from pages.components import tokens
from pages.components.strip import packed_strip
from tuning.figures.trie import icicle, subtree_tokens
from tuning.plan import TuningPlan
from tuning.workbench import Workbench

_SORTS = {
    "order": "as packed",
    "waste": "most padding first",
    "size": "most tokens first",
    "sharing": "most reuse first",
}
_NODE_TOKENS = 400
_ROWS_LISTED = 12
_TIPS = 200


def draw_tree_choice(bench: Workbench, forest: Forest, tree: int, plan: TuningPlan) -> None:
    """Which tree, by number or by what is remarkable about it; and its figures."""
    tokens_of = bench.packing(plan.max_tokens_per_mb, plan.packer).tokens_per_tree
    row_tokens = bench.row_tokens_per_tree(plan.max_tokens_per_mb, plan.packer)
    columns = st.columns([2, 2, 1, 1, 1, 1, 1], vertical_alignment="bottom")
    sort = columns[0].selectbox(
        "sort trees",
        list(_SORTS),
        format_func=_SORTS.__getitem__,
        key="tree_sort",
        persist_state="session",
    )
    keys = {
        "order": np.arange(len(forest)),
        "waste": tokens_of,
        "size": -tokens_of,
        "sharing": -row_tokens / tokens_of,
    }
    ranked = np.argsort(keys[sort], kind="stable")
    place = int(np.flatnonzero(ranked == tree)[0])
    st.session_state["tree_place"] = place + 1
    columns[1].number_input(
        f"tree {tree:,} · place 1 to {len(forest):,}",
        1,
        len(forest),
        key="tree_place",
        on_change=lambda: state.set_view(
            tree=int(ranked[st.session_state["tree_place"] - 1]), node=None
        ),
    )
    trie = forest.tree(tree)
    for column, label, value in zip(
        columns[2:],
        ("rows", "nodes", "tokens", "padding", "reuse"),
        (
            f"{len(trie.rows):,}",
            f"{len(trie):,}",
            f"{trie.n_tokens:,}",
            f"{plan.max_tokens_per_mb - trie.n_tokens:,}",
            f"{row_tokens[tree] / trie.n_tokens:.2f}×",
        ),
        strict=True,
    ):
        column.metric(label, value)


def draw_strip(bench: Workbench, trie: Trie, node: int, plan: TuningPlan) -> None:
    """The packed axis: every node where its tokens stand, one lane a level."""
    read = _reader(bench, trie)
    largest = np.argsort(-trie.lengths, kind="stable")[:_TIPS]
    window = (state.view("x0", 0), state.view("x1", plan.max_tokens_per_mb))
    picked, moved = packed_strip(
        trie,
        plan.max_tokens_per_mb,
        node,
        tips={int(k): " ".join(read(int(k)).split())[:160] for k in largest},
        window=window if 0 <= window[0] < window[1] <= plan.max_tokens_per_mb else None,
        highlight=trie.path(node) if node >= 0 else [],
    )
    if moved is not None:
        everything = moved == (0, plan.max_tokens_per_mb)
        state.set_view(x0=None if everything else moved[0], x1=None if everything else moved[1])
    if picked is not None and picked != node:
        state.set_view(node=None if picked < 0 else picked)
        st.rerun()


def draw_breadcrumb(bench: Workbench, trie: Trie, node: int) -> None:
    """The nodes above, each a way back up."""
    path = [-1, *(trie.path(node) if node >= 0 else [])]
    shown = path if len(path) <= 7 else [*path[:2], *path[-5:]]
    with st.container(horizontal=True, key="breadcrumb"):
        for at in shown:
            label = "tree" if at < 0 else f"{trie.depth[at]:,}+{trie.lengths[at]:,}"
            st.button(
                label,
                key=f"crumb{at}",
                type="tertiary" if at != node else "secondary",
                on_click=state.set_view,
                kwargs={"node": None if at < 0 else at},
                help=None if at < 0 else "tokens above + tokens of this node",
            )


def draw_icicle(bench: Workbench, trie: Trie, node: int) -> None:
    read = _reader(bench, trie)
    event = st.plotly_chart(
        icicle(trie, node, read),
        key=f"icicle-{node}",
        on_select="rerun",
        alt="The chosen branch as an icicle: the wider a mark, the more tokens below it.",
    )
    points = event.selection.points
    chosen = str(points[0].get("id", "")) if points else ""
    if chosen.startswith("n") and chosen[1:].isdecimal() and int(chosen[1:]) != node:
        state.set_view(node=int(chosen[1:]))
        st.rerun()


def draw_node(bench: Workbench, trie: Trie, node: int) -> None:
    """What is at the chosen node: counts, text, rows through it."""
    if node < 0:
        st.markdown("**The whole tree.** Click a mark to look into a branch.")
        node = 0
        st.caption("Its first node:")
    own, rows = int(trie.lengths[node]), trie.rows_through(node)
    st.markdown(
        f"**{own:,} tokens** at depth {trie.depth[node]:,} · **{len(rows):,} rows** run through it"
    )
    st.markdown(
        f"{(len(rows) - 1) * own:,} tokens saved here (exact) · "
        f"{subtree_tokens(trie, node):,} in and below"
    )
    first = int(trie.first_row[node])
    depth = int(trie.depth[node])
    ids = bench.rows[first][depth : depth + own]
    tokens.draw(bench.rows, ids[:_NODE_TOKENS])
    if own > _NODE_TOKENS:
        st.caption(f"The first {_NODE_TOKENS} of {own:,} tokens.")
    listed = ", ".join(f"{r:,}" for r in rows[:_ROWS_LISTED])
    more = f" and {len(rows) - _ROWS_LISTED:,} more" if len(rows) > _ROWS_LISTED else ""
    st.caption(f"Rows {listed}{more}")


def _reader(bench: Workbench, trie: Trie):
    """Text at the start of a node, as much as a label holds."""

    def read(node: int) -> str:
        first, depth = int(trie.first_row[node]), int(trie.depth[node])
        length = min(int(trie.lengths[node]), 48)
        return bench.rows.text(bench.rows[first][depth : depth + length])

    return read
