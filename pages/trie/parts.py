"""The parts of the Trie page around one tree: which tree, its strip, the way up, the icicle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import streamlit as st

from packing.batch.simulation import BatchSimulation
from pages.shared import state
from pages.shared.forest import draw_forest, tree_columns
from pages.shared.text import plain
from pages.shared.widgets import table
from pages.trie.icicle import icicle_view
from pages.trie.look import Look, open_node, open_tree
from pages.trie.strip import packed_strip
from tuning.plan.numbers import many

_SORTS = {
    "order": "as packed",
    "waste": "most padding first",
    "size": "most tokens first",
    "sharing": "most reuse first",
}
_TABLE_ROWS = 500
_ALL = "all"


def choose_tree(look: Look) -> str:
    """How the trees are sorted, and a tree by its number."""
    left, right = st.columns(2)
    sort = left.selectbox(
        "sort trees",
        list(_SORTS),
        format_func=_SORTS.__getitem__,
        key="tree_sort.widget",
        persist_state="session",
    )
    last = len(look.forest) - 1
    st.session_state["tree_number.widget"] = look.tree
    right.number_input(
        f"tree, 0 to {last:,}",
        0,
        last,
        key="tree_number.widget",
        on_change=lambda: open_tree(st.session_state["tree_number.widget"]),
    )
    return sort


def draw_trees(look: Look, sort: str) -> None:
    """All trees at once, in the order that is asked for, and the same as a table."""
    plan, simulation = look.plan, look.batch.simulation(look.plan)
    tokens_of, row_tokens = simulation.packing.tokens_per_tree, simulation.row_tokens_per_tree
    keys = {
        "order": np.arange(len(tokens_of)),
        "waste": tokens_of,
        "size": -tokens_of,
        "sharing": -row_tokens / np.maximum(tokens_of, 1),
    }
    order = np.argsort(keys[sort], kind="stable")
    order = order[_chosen(order, simulation)]
    draw_forest(simulation, open_tree, order, look.tree, look.row_tree)
    st.caption(
        "Each bar is a tree: as long as it is full, its colour the stronger the more its rows "
        f"share. **Tree {look.tree:,}**: {len(look.trie.rows):,} rows, {len(look.trie):,} nodes, "
        f"{look.trie.n_tokens:,} tokens, {plan.max_tokens_per_mb - look.trie.n_tokens:,} padding, "
        f"{row_tokens[look.tree] / look.trie.n_tokens:.2f}× reuse."
    )
    trees = st.expander("Trees as a table", key="tree_table.expander", on_change="rerun")
    if trees.open:
        with trees:
            page = _page(len(order), "tree_page.widget")
            at = order[page]
            _table(
                tree_columns(simulation, at),
                f"tree_table.{sort}.{page.start}",
                lambda i: open_tree(int(at[i])),
            )


def choose_share(look: Look) -> None:
    """Which rank and minibatch of the update, where there are several."""
    plan = look.plan
    counts = {"rank": plan.dp_size, "minibatch": plan.ppo_n_minibatches}
    several = {name: count for name, count in counts.items() if count > 1}
    for column, (name, count) in zip(st.columns(2), several.items(), strict=False):
        column.selectbox(
            plain(name),
            [_ALL, *range(count)],
            key=f"tree_{name}.widget",
            persist_state="session",
        )


def _chosen(order: npt.NDArray[np.int64], simulation: BatchSimulation) -> npt.NDArray[np.bool_]:
    """bool ``(trees,)``: those of ``order`` that belong to the rank and minibatch chosen."""
    inside = np.ones(len(order), dtype=bool)
    shares = {"rank": simulation.rank_of_tree, "minibatch": simulation.minibatch_of_tree}
    for name, of_tree in shares.items():
        value = st.session_state.get(f"tree_{name}.widget", _ALL)
        if value != _ALL and (of_tree == value).any():
            inside &= of_tree[order] == value
    return inside


def draw_strip(look: Look) -> None:
    """The packed axis of the tree with its tracks, and its nodes as a table."""
    trie, cap = look.trie, look.plan.max_tokens_per_mb
    x0, x1 = state.view("x0", 0), state.view("x1", cap)

    def pick(node: int, token: int) -> None:
        if node < len(trie) and token < trie.n_tokens:
            open_node(node, token)

    def move(x0: int, x1: int) -> None:
        everything = (x0, x1) == (0, cap)
        state.set_view(x0=None if everything else x0, x1=None if everything else x1)

    packed_strip(
        look.batch.rows,
        trie,
        look.tree_key,
        cap,
        node=look.node,
        token=look.token,
        row=look.row if look.path else -1,
        path=look.path,
        window=(x0, x1) if 0 <= x0 < x1 <= cap and (x0, x1) != (0, cap) else None,
        on_pick=pick,
        on_move=move,
    )
    nodes = st.expander("Nodes as a table", key="node_table.expander", on_change="rerun")
    if nodes.open:
        with nodes:
            page = _page(len(trie), "node_page.widget")
            _table(
                {
                    "node": np.arange(len(trie))[page],
                    "starts at": trie.start[page],
                    "tokens": trie.lengths[page],
                    "depth": trie.depth[page],
                    "rows": trie.row_count[page],
                    "tokens saved": ((trie.row_count - 1) * trie.lengths)[page],
                    "below node": trie.parent[page],
                },
                f"node_table.{look.tree}.{page.start}",
                lambda i: open_node(page.start + i),
            )


def draw_breadcrumb(look: Look) -> None:
    """The nodes above, each a way back up."""
    path = [-1, *(look.trie.path(look.node) if look.node >= 0 else [])]
    shown = path if len(path) <= 8 else [*path[:2], *path[-5:]]
    with st.container(horizontal=True, key="breadcrumb", vertical_alignment="center", gap="small"):
        for place, at in enumerate(shown):
            if place:
                st.html("…" if len(path) > 8 and place == 2 else "›", width="content")
            st.button(
                f"tree {look.tree:,}" if at < 0 else many(int(look.trie.lengths[at]), "token"),
                key=f"crumb{at}",
                type="tertiary" if at != look.node else "secondary",
                on_click=open_node,
                args=(at,),
                help=None if at < 0 else f"node {at:,} at depth {look.trie.depth[at]:,}",
            )


def draw_icicle(look: Look) -> None:
    """The chosen branch; a click on a token's node in the strip opens the same."""
    icicle_view(look.batch.rows, look.trie, look.node, look.path, open_node)


def _page(count: int, key: str) -> slice:
    """The part of a long table that is on screen."""
    pages = max(-(-count // _TABLE_ROWS), 1)
    if pages == 1:
        return slice(0, count)
    number = st.number_input(f"page, 1 to {pages:,}", 1, pages, key=key)
    return slice((number - 1) * _TABLE_ROWS, min(number * _TABLE_ROWS, count))


def _table(
    columns: dict[str, npt.NDArray[np.int64]], key: str, pick: Callable[[int], None]
) -> None:
    """Numbers of trees or nodes; ``pick(i)`` is called with the line that is chosen."""

    def chosen() -> None:
        lines = st.session_state[key].selection.rows
        if lines:
            pick(lines[0])

    table(columns, height=240, key=key, on_select=chosen, selection_mode="single-row")
