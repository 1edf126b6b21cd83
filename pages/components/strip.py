"""The packed strip: a tree on its own token axis, drawn on a canvas.

Notable:
- a node stands where its tokens stand, one lane a level; behind it the faint reach of its subtree
- arrays travel as base64, so that 50,000 nodes are under a megabyte
- wheel and +/- zoom, drag and arrows pan, click or Enter chooses, 0 shows all
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import streamlit as st

from packing.trie import Trie

_HERE = Path(__file__).parent
_HTML = """
<div class="strip"><canvas tabindex="0" role="img"></canvas><div class="tip" hidden></div></div>
"""
_CSS = """
.strip { position: relative; font: 12px var(--st-font); }
.strip canvas { width: 100%; display: block; border-radius: 4px; cursor: crosshair; }
.strip canvas:focus-visible { outline: 2px solid var(--st-primary-color); }
.tip { position: absolute; pointer-events: none; padding: 4px 8px; border-radius: 4px;
  max-width: 26rem; background: var(--st-text-color); color: var(--st-background-color);
  white-space: pre-wrap; z-index: 2; }
"""
_MAX_TIPS = 400
_component = st.components.v2.component(
    "espalier_strip", html=_HTML, css=_CSS, js=(_HERE / "strip.js").read_text()
)


def levels(trie: Trie) -> npt.NDArray[np.uint16]:
    """uint16 ``(K,)``: nodes above each node (65,535 where there are more)."""
    level = np.zeros(len(trie), dtype=np.int64)
    for node, parent in enumerate(trie.parent.tolist()):
        if parent >= 0:
            level[node] = level[parent] + 1
    return np.minimum(level, 65535).astype(np.uint16)


def packed_strip(
    trie: Trie,
    max_tokens_per_mb: int,
    node: int,
    tips: dict[int, str],
    window: tuple[int, int] | None,
    highlight: list[int],
) -> tuple[int | None, tuple[int, int] | None]:
    """Draw a tree; returns the node just clicked (-1: the padding) and the window just chosen.

    tips:      text of some nodes, shown on hover (at most 400 are sent)
    window:    tokens shown, ``[x0, x1)``; None shows all
    highlight: nodes drawn in the highlight colour (the path of a row)
    """
    result = _component(
        key="strip",
        data={
            "start": _packed(trie.start, np.int32),
            "end": _packed(trie.end, np.int32),
            "reach": _packed(trie.subtree_end, np.int32),
            "level": _packed(levels(trie), np.uint16),
            "rows": _packed(trie.row_count, np.int32),
            "cap": max_tokens_per_mb,
            "node": node,
            "tips": {str(k): v for k, v in list(tips.items())[:_MAX_TIPS]},
            "window": window,
            "highlight": highlight,
            "label": f"Packed strip: {len(trie)} nodes, {trie.n_tokens} of {max_tokens_per_mb} "
            "tokens. The table below the strip lists the same nodes.",
        },
        on_picked_change=lambda: None,
        on_moved_change=lambda: None,
    )
    picked, moved = result.get("picked"), result.get("moved")
    return (
        None if picked is None else int(picked),
        None if moved is None else (int(moved[0]), int(moved[1])),
    )


def _packed(array: npt.NDArray[Any], dtype: type[np.integer]) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()
