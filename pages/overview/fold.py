"""The fold: rows of one tree, whose shared pieces slide together and become the packed strip.

Notable:
- nothing moves until Play; Skip shows the end; who wants less motion goes from start to end at once
- rows, tree and strip have one scale: a strip that is too long for a line goes on in the next
- the sentence below says what the picture says
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from packing.rows import Rows
from pages.shared.canvas import component
from pages.shared.text import Markdown
from tuning.plan.numbers import many
from tuning.report.figures.fold import Fold

_HTML = """
<div class="fold">
<div class="head"><div class="count"><b></b> <span></span></div>
<div class="buttons"><button class="play">Play</button><button class="skip">Skip</button></div>
</div><div class="key"></div><canvas role="img"></canvas><div class="tip" hidden></div>
<div class="live" aria-live="polite"></div></div>
"""
_CSS = """
.fold { position: relative; font: 13px/1.4 var(--st-font); color: var(--st-text-color); }
.head { display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: center;
  justify-content: space-between; margin-bottom: 6px; }
.count { font-variant-numeric: tabular-nums; min-height: 2.1rem; }
.count b { font-size: 1.5rem; font-weight: 650; }
.buttons { display: flex; gap: 8px; }
.key { display: flex; flex-wrap: wrap; gap: 2px 18px; font-size: 12.5px; margin-bottom: 8px; }
.key i { display: inline-block; width: 11px; height: 11px; margin-right: 6px;
  vertical-align: -1px; }
button { font: inherit; color: inherit; background: var(--st-secondary-background-color);
  border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius);
  padding: 4px 14px; min-width: 76px; min-height: 32px; cursor: pointer; }
button.play { background: var(--st-primary-color); border-color: var(--st-primary-color);
  color: #ffffff; font-weight: 600; }
button:hover { border-color: var(--st-text-color); }
button[aria-disabled=true] { opacity: 0.55; cursor: default; border-color: transparent; }
canvas { width: 100%; display: block; }
"""
_MOST_LINES = 12
_LINES = 6
_TIP_TOKENS = 40
_TIP_LENGTH = 160

_component = component("fold", "Rows of a tree", _HTML, _CSS, Path(__file__).with_name("fold.js"))


def fold_view(rows: Rows, fold: Fold) -> None:
    """Draw a fold of ``rows``, ready to be played, and say in words what it shows."""
    longest = max(row.length for row in fold.rows)
    whole = fold.max_tokens_per_mb <= _MOST_LINES * longest
    # Where the tree is far longer than its rows, rows keep a width and the strip ends early.
    end = fold.max_tokens_per_mb if whole else fold.tokens
    _component(
        data={
            "line": max(longest, -(-end // _LINES)),
            "cap": fold.max_tokens_per_mb,
            "whole": whole,
            "treeTokens": fold.tree_tokens,
            "tokens": fold.tokens,
            "rowTokens": fold.row_tokens,
            "rows": [
                {"row": one.row, "nodes": [piece.node for piece in one.pieces]} for one in fold.rows
            ],
            "nodes": [
                {
                    "start": node.start,
                    "length": node.length,
                    "depth": node.depth,
                    "parent": node.parent,
                    "first": node.first_row,
                    "rows": node.rows,
                    "text": _text(rows, fold, k),
                }
                for k, node in enumerate(fold.nodes)
            ],
            "before": f"{many(len(fold.rows), 'row')} of tree {fold.tree:,}, one below the other: "
            f"{fold.row_tokens:,} tokens.",
            "after": f"The same rows as a tree: {fold.tokens:,} tokens. {_rest(fold)}",
        },
    )
    st.caption(says(fold))


def says(fold: Fold) -> Markdown:
    """The fold in words: what the rows hold, what they repeat, what is left."""
    repeated = fold.row_tokens - fold.tokens
    of = f" of its {fold.rows_in_tree:,}" if fold.rows_left_out else ""
    folded = (
        f"{repeated:,} of them repeat the beginning of another row; the tree computes these once, "
        f"and {fold.tokens:,} are left ({fold.row_tokens / fold.tokens:.2f}× reuse)."
        if repeated
        else "No two of them begin alike, so nothing merges."
    )
    return (
        f"Tree {fold.tree:,}, {len(fold.rows):,}{of} rows: {fold.row_tokens:,} tokens. {folded} "
        f"{_rest(fold)} A bar is as long as its tokens are many, before and after."
    )


def _rest(fold: Fold) -> Markdown:
    """What stands behind these rows in their tree."""
    others = fold.tree_tokens - fold.tokens
    hidden = many(fold.rows_left_out, "row")
    left_out = f"{others:,} tokens of {hidden} not shown and " if others else ""
    return f"Behind them: {left_out}{fold.padding:,} of padding up to {fold.max_tokens_per_mb:,}."


def _text(rows: Rows, fold: Fold, k: int) -> str:
    """How the text of a node begins."""
    node = fold.nodes[k]
    row = rows[fold.rows[node.first_row].row]
    tokens = row[node.depth : node.depth + min(node.length, _TIP_TOKENS)]
    return " ".join(rows.text(tokens).split())[:_TIP_LENGTH]
