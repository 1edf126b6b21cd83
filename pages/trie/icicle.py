"""The icicle: a branch from its root to the right, as high as its tokens are many.

Notable:
- marks are elements of the page, at most 300: their text is real text, cut where the mark ends
- a click or Enter looks into a mark; arrows walk the tree; the leftmost mark leads back up
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from packing.rows import Rows
from packing.trie import Trie
from pages.shared.canvas import component
from pages.trie.explorer import node_tokens
from tuning.report.figures.trie import MAX_MARKS, choose_marks, nodes_below

_HTML = """
<div class="icicle"><div class="marks" role="tree"></div><div class="tip" hidden></div></div>
"""
_CSS = """
.icicle { position: relative; font: 12px/15px var(--st-font); }
.marks { position: relative; height: 440px; }
.mark { position: absolute; overflow: hidden; cursor: pointer; border-radius: 2px;
  overflow-wrap: anywhere; white-space: pre-wrap; padding: 2px 6px 0; box-sizing: border-box; }
.mark:hover { filter: brightness(1.12); }
.mark.fold { cursor: default; border: 1px dashed currentColor; opacity: 0.75; }
.mark.path { box-shadow: inset 4px 0 var(--orange); padding-left: 9px; }
.mark.chosen { box-shadow: inset 0 0 0 2px var(--red); }
.mark b { font-weight: 600; }
"""
_LEVELS = 7
_SMALLEST = 0.012
_TEXT_TOKENS = 60
_TEXT_LENGTH = 240

_component = component(
    "icicle", "Branch of the tree", _HTML, _CSS, Path(__file__).with_name("icicle.js")
)


def icicle_view(
    rows: Rows, trie: Trie, node: int, path: list[int], on_pick: Callable[[int], None]
) -> None:
    """Draw the branch of ``node`` (-1: the whole tree); ``on_pick`` gets the node clicked.

    A leaf is drawn among its siblings. path: nodes that the highlighted row runs through
    """
    leaf = node >= 0 and not nodes_below(trie, node)
    root = int(trie.parent[node]) if leaf else node
    marks = choose_marks(trie, root, MAX_MARKS, _LEVELS, _SMALLEST)
    index = {mark.id: i for i, mark in enumerate(marks)}
    on_path = set(path)

    def text(at: int) -> str:
        ids = node_tokens(rows, trie, at)[:_TEXT_TOKENS]
        return rows.text(ids).replace("\n", "⏎ ")[:_TEXT_LENGTH]

    _component(
        data={
            "root": root,
            "chosen": node,
            "up": root if leaf else int(trie.parent[node]) if node >= 0 else -2,
            "marks": [
                {
                    "in": index.get(mark.parent, -1),
                    "node": mark.node,
                    "tokens": mark.tokens,
                    "own": mark.own,
                    "depth": mark.depth,
                    "rows": int(trie.row_count[mark.node]) if mark.node >= 0 else 0,
                    "folded": mark.folded,
                    "closed": nodes_below(trie, mark.node) if mark.closed else 0,
                    "path": mark.node in on_path,
                    "text": text(mark.node) if mark.node >= 0 else "",
                }
                for mark in marks
            ],
            "label": "The branch as an icicle: the higher a mark, the more tokens in and below it.",
        },
        picked=lambda node: on_pick(int(node)),
    )
