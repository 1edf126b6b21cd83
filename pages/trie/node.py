"""The card of a node: its text, what it saves, the rows through it, where they part below it."""

from __future__ import annotations

import html

import numpy as np
import streamlit as st

from pages.shared import tokens
from pages.shared.text import Html
from pages.trie.explorer import child_nodes, ending_rows, node_at, node_tokens
from pages.trie.look import Look, chosen_node, highlight, open_node
from tuning.plan.numbers import many
from tuning.report.figures.trie import subtree_tokens

_NODE_TOKENS = 400
_ROWS_LISTED = 16
_CHILDREN = 8
_TAIL, _HEAD = 6, 10
"""Tokens shown before and after the place where rows part."""


def draw_node(look: Look) -> None:
    """Counts, text and rows of the chosen node."""
    node, trie, rows = chosen_node(look), look.trie, look.batch.rows
    own, through = int(trie.lengths[node]), trie.rows_through(node)
    if look.node < 0:
        st.caption("Nothing is chosen: this is the tree's first node. Click a mark or the strip.")
    st.markdown(
        f"**{many(own, 'token')}** at depth {trie.depth[node]:,}, "
        f"in **{many(len(through), 'row')}**\n\n"
        f"{(len(through) - 1) * own:,} tokens saved here · "
        f"{subtree_tokens(trie, node):,} tokens in and below"
    )
    _draw_token(look, node)
    first = rows.offsets[trie.first_row[node]] + trie.depth[node]
    mask = rows.loss_mask
    tokens.draw(
        rows,
        node_tokens(rows, trie, node)[:_NODE_TOKENS],
        None if mask is None else mask[first : first + min(own, _NODE_TOKENS)],
    )
    if own > _NODE_TOKENS:
        st.caption(f"The first {_NODE_TOKENS} of {own:,} tokens.")
    st.markdown("**Rows through it**: choose one to follow it everywhere")
    with st.container(horizontal=True, gap="xxsmall", key="node_rows"):
        for row in np.sort(through)[:_ROWS_LISTED].tolist():
            number = int(look.numbers[row])
            st.button(
                f"{number:,}",
                key=f"through{row}",
                type="primary" if number == look.row else "secondary",
                on_click=highlight,
                args=(look.tree, None if number == look.row else number),
            )
    if len(through) > _ROWS_LISTED:
        st.caption(f"{len(through) - _ROWS_LISTED:,} more rows; find one by its number, above.")


def _draw_token(look: Look, node: int) -> None:
    """The chosen token: its place, its id, its text."""
    if look.token < 0 or node_at(look.trie, look.token) != node:
        return
    rows, trie = look.batch.rows, look.trie
    inside = look.token - int(trie.start[node])
    ids = node_tokens(rows, trie, node)
    word = html.escape(rows.text([int(ids[inside])])).replace("\n", "⏎")
    st.html(
        f'<div class="token-text">Token {look.token:,} of the tree, '
        f"{trie.depth[node] + inside + 1:,} of its rows: <mark>{word}</mark> "
        f'<span class="off">id {int(ids[inside])}</span></div>'
    )


def draw_children(look: Look) -> None:
    """Side by side: what follows in each branch, the first different token marked."""
    trie, rows = look.trie, look.batch.rows
    roots = child_nodes(trie, -1)
    node = -1 if look.node < 0 and len(roots) > 1 else chosen_node(look)
    below = child_nodes(trie, node)
    ended = len(ending_rows(trie, node))
    if not len(below):
        st.caption(f"A leaf: {ended:,} rows end here." if ended > 1 else "A leaf: its row ends.")
        return
    where = "Where rows part here" if node >= 0 else "Where the rows of this tree part"
    ends = f"; {ended:,} end here" if ended else ""
    st.markdown(f"**{where}**: {len(below):,} branches{ends}")
    tail = rows.text(node_tokens(rows, trie, node)[-_TAIL:]) if node >= 0 else ""
    gap = "" if rows.decoder else " "  # token ids alone need a space between them
    total = int(trie.row_count[below].sum()) + ended
    for child in below[:_CHILDREN].tolist():
        ids = node_tokens(rows, trie, child)
        count = int(trie.row_count[child])
        left, right = st.columns([2, 5], gap="small")
        left.button(
            f"{many(count, 'row')} ›",
            key=f"child{child}",
            type="tertiary",
            on_click=open_node,
            args=(child,),
            help=f"{count / total:.0%} of the rows; {subtree_tokens(trie, child):,} tokens in "
            "and below. Click to look into this branch.",
        )
        right.html(
            f'<div class="token-text"><span class="off">…{_shown(tail)}</span>{gap}'
            f"<mark>{_shown(rows.text(ids[:1]))}</mark>{gap}{_shown(rows.text(ids[1:_HEAD]))}</div>"
        )
    if len(below) > _CHILDREN:
        rest = below[_CHILDREN:]
        st.caption(
            f"{len(rest):,} more branches with {int(np.sum(trie.row_count[rest])):,} rows, "
            f"{sum(subtree_tokens(trie, n) for n in rest.tolist()):,} tokens; the table of nodes "
            "lists them."
        )


def _shown(text: str) -> Html:
    return html.escape(text).replace("\n", "⏎")
