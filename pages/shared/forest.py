"""The forest: every tree of a packing as a thin bar on one canvas, thousands of them at once.

Notable:
- only the bars in view are drawn; the canvas stays as high as its window
- arrows move, Enter opens, Home and End jump; every bar is read out
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import streamlit as st

from pages.shared.canvas import component, packed

_KEY = "forest"
_HTML = """
<div class="forest"><div class="view" tabindex="0" role="application">
<canvas aria-hidden="true"></canvas><div class="spacer"></div></div>
<div class="tip" hidden></div><div class="live" aria-live="polite"></div></div>
"""
_CSS = """
.forest { position: relative; }
.view { overflow-y: auto; overflow-x: hidden; cursor: pointer; border-radius: 4px; }
.view canvas { position: sticky; top: 0; width: 100%; display: block; }
"""
_component = component("espalier_forest", _HTML, _CSS, Path(__file__).with_name("forest.js"))


def forest_overview(
    order: npt.NDArray[np.int64],
    tokens: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    row_tokens: npt.NDArray[np.int64],
    max_tokens_per_mb: int,
    tree: int,
    row_tree: int,
    on_pick: Callable[[int], None],
) -> None:
    """Draw all trees; ``on_pick`` gets the number of the one that is clicked.

    order:      tree numbers, as they shall stand
    tokens:     ``(trees,)`` tokens of each tree; rows, row_tokens: rows in it and their tokens
    tree:       the chosen tree, outlined; row_tree: the tree of the highlighted row, or -1
    """

    def picked() -> None:
        value = st.session_state[_KEY].get("picked")
        if value is not None and 0 <= int(value) < len(tokens):
            on_pick(int(value))

    _component(
        key=_KEY,
        data={
            "order": packed(order, np.int32),
            "tokens": packed(tokens, np.int32),
            "rows": packed(rows, np.int32),
            "reuse": packed(row_tokens / np.maximum(tokens, 1), np.float32),
            "cap": max_tokens_per_mb,
            "tree": tree,
            "rowTree": row_tree,
            "label": f"Forest of {len(tokens):,} trees. Arrow keys move, Enter opens a tree. "
            "The list of trees below says the same as a table.",
        },
        on_picked_change=picked,
    )
