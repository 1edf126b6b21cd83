"""The packed strip: a tree on its own token axis, drawn on a canvas, with tracks below it.

Notable:
- a node stands where its tokens stand, one lane a level; behind it the faint reach of its subtree
- below: rows that run through, depth, trained tokens, the path of a row, the tokens themselves
- arrays travel as base64, so that 50,000 nodes are about a megabyte
- wheel and +/- zoom, drag and arrows pan, click or Enter chooses, 0 shows all
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from packing.rows import Rows
from packing.trie import Trie
from pages.shared.canvas import component, packed
from pages.trie.explorer import levels, node_at, node_tokens, runs, trained_tokens

_HTML = """
<div class="strip"><canvas tabindex="0" role="application"></canvas><div class="tip" hidden></div>
<div class="live" aria-live="polite"></div>
<div class="buttons"><button class="far" aria-label="zoom out">−</button>
<button class="near" aria-label="zoom in">+</button><button class="all">whole tree</button>
<button class="chosen" hidden>chosen branch</button>
<span>wheel or + − zoom · drag or ← → pan · click or Enter chooses</span></div></div>
"""
_CSS = """
.strip { position: relative; font: 12px var(--st-font); color: var(--st-text-color); }
.strip canvas { width: 100%; display: block; border-radius: 4px; cursor: crosshair;
  touch-action: pan-y; }
.buttons { display: flex; gap: 6px; align-items: center; margin-top: 4px; flex-wrap: wrap; }
.buttons span { opacity: 0.75; margin-left: 6px; }
button { font: inherit; color: inherit; background: var(--st-secondary-background-color);
  border: 1px solid var(--st-border-color); border-radius: 4px; padding: 1px 9px; min-width: 26px;
  min-height: 24px; cursor: pointer; }
button:hover { border-color: var(--st-primary-color); }
"""
_TIPS = 200
_TIP_TOKENS = 40
_READABLE = 256
"""Tokens in a window whose texts are sent."""

_component = component(
    "strip",
    "Tree on its token axis",
    _HTML,
    _CSS,
    *(Path(__file__).with_name(name) for name in ("strip_tracks.js", "strip.js")),
)


@dataclass
class _Drawing:
    """What of a tree does not change while one looks around in it."""

    data: dict[str, Any]
    tips: dict[int, str] = field(default_factory=dict)


@st.cache_resource(show_spinner=False, max_entries=16)
def _drawing(tree_key: str, _rows: Rows, _trie: Trie) -> _Drawing:
    trained = trained_tokens(_rows, _trie)
    return _Drawing(
        {
            "tree_key": tree_key,
            "start": packed(_trie.start, np.int32),
            "end": packed(_trie.end, np.int32),
            "reach": packed(_trie.subtree_end, np.int32),
            "level": packed(levels(_trie), np.uint16),
            "rows": packed(_trie.row_count, np.int32),
            "depth": packed(_trie.depth, np.int32),
            "trained": None if trained is None else packed(runs(trained), np.int32),
            "most_rows": int(_trie.row_count.max()),
            "most_depth": int((_trie.depth + _trie.lengths).max()),
        }
    )


def packed_strip(
    rows: Rows,
    trie: Trie,
    tree_key: str,
    max_tokens_per_mb: int,
    *,
    node: int,
    token: int,
    row: int,
    path: list[int],
    window: tuple[int, int] | None,
    on_pick: Callable[[int, int], None],
    on_move: Callable[[int, int], None],
) -> None:
    """Draw a tree. ``on_pick(node, token)`` gets what was clicked, -1 for neither;
    ``on_move(x0, x1)`` the window that was zoomed or panned to.

    tree_key: names the tree among all trees of all packings
    node:     chosen node; token: chosen packed position (-1: none)
    row:      number of the highlighted row (-1: none), and the nodes of its path
    window:   tokens shown, ``[x0, x1)``; None shows all
    """
    drawing = _drawing(tree_key, rows, trie)
    x0, x1 = window or (0, max_tokens_per_mb)

    _component(
        data=drawing.data
        | {
            "cap": max_tokens_per_mb,
            "node": node,
            "token": token,
            "row": row,
            "path": packed(path, np.int32),
            "window": window,
            "tips": _tips(drawing, rows, trie, x0, x1),
            "words": _words(rows, trie, x0, x1) if x1 - x0 <= _READABLE else None,
            "words_from": x0,
            "label": f"Packed strip: {len(trie):,} nodes, {trie.n_tokens:,} of "
            f"{max_tokens_per_mb:,} tokens. Plus and minus zoom, arrows pan, Enter chooses the "
            "node in the middle. The list of nodes below says the same as a table.",
        },
        picked=lambda at: on_pick(int(at[0]), int(at[1])),
        moved=lambda ends: on_move(int(ends[0]), int(ends[1])),
    )


def _tips(drawing: _Drawing, rows: Rows, trie: Trie, x0: int, x1: int) -> dict[str, str]:
    """Text at the start of the largest nodes in the window."""
    seen = np.flatnonzero((trie.end > x0) & (trie.start < x1))
    largest = seen[np.argsort(-trie.lengths[seen], kind="stable")[:_TIPS]]
    for k in largest.tolist():
        if k not in drawing.tips:
            text = rows.text(node_tokens(rows, trie, k)[:_TIP_TOKENS])
            drawing.tips[k] = " ".join(text.split())[:160]
    return {str(k): drawing.tips[k] for k in largest.tolist()}


def _words(rows: Rows, trie: Trie, x0: int, x1: int) -> list[str]:
    """Text of each token of the window, line breaks visible."""
    words: list[str] = []
    at = x0
    while at < min(x1, trie.n_tokens):
        node = node_at(trie, at)
        first = at - int(trie.start[node])
        ids = node_tokens(rows, trie, node)[first : first + x1 - at]
        words += [rows.text([int(t)]).replace("\n", "⏎") for t in ids]
        at += len(ids)
    return words
