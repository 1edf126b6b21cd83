"""The forest: every tree of a packing as a thin bar on one canvas, thousands of them at once.

Notable:
- only the bars in view are drawn; the canvas stays as high as its window
- arrows move, Enter opens, Home and End jump; every bar is read out
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.batch.simulation import BatchSimulation
from pages.shared.canvas import component, packed

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
_component = component(
    "forest", "Forest of trees", _HTML, _CSS, Path(__file__).with_name("forest.js")
)


def draw_forest(
    simulation: BatchSimulation,
    on_pick: Callable[[int], None],
    order: npt.NDArray[np.int64] | None = None,
    tree: int = -1,
    row_tree: int = -1,
) -> None:
    """Draw all trees; ``on_pick`` gets the number of the one that is clicked.

    order: tree numbers, as they shall stand; as they were packed by default
    tree:  the chosen tree, outlined; row_tree: the tree of the highlighted row, or -1
    """
    tokens = simulation.packing.tokens_per_tree
    reuse = simulation.row_tokens_per_tree / np.maximum(tokens, 1)

    def picked(value: Any) -> None:
        if 0 <= int(value) < len(tokens):
            on_pick(int(value))

    _component(
        data={
            "order": packed(np.arange(len(tokens)) if order is None else order, np.int32),
            "tokens": packed(tokens, np.int32),
            "rows": packed(simulation.forest.rows_per_tree, np.int32),
            "reuse": packed(reuse, np.float32),
            "cap": simulation.spec.max_tokens_per_mb,
            "tree": tree,
            "rowTree": row_tree,
            "label": f"Forest of {len(tokens):,} trees. Arrow keys move, Enter opens a tree. "
            "The list of trees below says the same as a table.",
        },
        picked=picked,
    )


def tree_columns(simulation: BatchSimulation, at: Any) -> dict[str, npt.NDArray[Any]]:
    """What a table says of the trees ``at``, a slice or their numbers."""
    forest, tokens = simulation.forest, simulation.packing.tokens_per_tree[at]
    row_tokens = simulation.row_tokens_per_tree[at]
    return {
        "tree": np.arange(simulation.n_trees)[at],
        "rank": simulation.rank_of_tree[at],
        "minibatch": simulation.minibatch_of_tree[at],
        "rows": forest.rows_per_tree[at],
        "nodes": forest.nodes_per_tree[at],
        "tokens": tokens,
        "padding": simulation.spec.max_tokens_per_mb - tokens,
        "row tokens": row_tokens,
        "reuse ×": row_tokens / np.maximum(tokens, 1),
    }
