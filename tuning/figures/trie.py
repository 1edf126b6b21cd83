"""A tree as an icicle of at most 300 marks, small branches folded with their count."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go

from packing.trie import Trie
from tuning.figures.style import DEPTH_SCALE, GREY, escaped, styled

MAX_MARKS = 300


@dataclass(frozen=True)
class _Mark:
    id: str
    parent: str
    node: int
    tokens: int
    own: int
    depth: int
    folded: int = 0
    closed: bool = False


def subtree_tokens(trie: Trie, node: int) -> int:
    """Tokens in and below a node."""
    return int(trie.subtree_end[node] - trie.start[node])


def children(trie: Trie) -> dict[int, list[int]]:
    """Child nodes by parent node; -1 holds the roots."""
    out: dict[int, list[int]] = {}
    for node, parent in enumerate(trie.parent.tolist()):
        out.setdefault(parent, []).append(node)
    return out


def icicle(
    trie: Trie, root: int, read: Callable[[int], str], max_marks: int = MAX_MARKS
) -> go.Figure:
    """The tree below ``root`` (-1: all of it), left to right, as wide as its tokens are many.

    read: text of a node's own tokens. The largest branches are drawn first; what does not fit
    into ``max_marks`` stands as one grey mark per parent that says how many nodes it folds.
    """
    marks = _choose(trie, root, max_marks)
    levels = {m.node: len(trie.path(m.node)) for m in marks if m.node >= 0}
    base = min(levels.values(), default=0)
    texts = [_label(m, trie, read) for m in marks]
    figure = go.Figure(
        go.Icicle(
            ids=[m.id for m in marks],
            parents=[m.parent for m in marks],
            labels=[t[0] for t in texts],
            values=[m.tokens for m in marks],
            branchvalues="total",
            hovertext=[t[1] for t in texts],
            hoverinfo="text",
            marker={
                "colors": [
                    GREY
                    if m.folded or m.node < 0
                    else DEPTH_SCALE[min(levels[m.node] - base, len(DEPTH_SCALE) - 1)]
                    for m in marks
                ],
                "line": {"width": 1, "color": "rgba(255,255,255,0.5)"},
            },
            tiling={"orientation": "h"},
            pathbar={"visible": False},
            sort=False,
            maxdepth=-1,
        )
    )
    figure.update_layout(uniformtext={"minsize": 9, "mode": "hide"})
    return styled(figure, 460, legend=False)


def _choose(trie: Trie, root: int, max_marks: int) -> list[_Mark]:
    """Nodes to draw: always the branch with the most tokens that is still folded."""
    below = children(trie)
    if root < 0:
        first = _Mark("n-1", "", -1, trie.n_tokens, 0, 0)
    else:
        own = int(trie.lengths[root])
        first = _Mark(f"n{root}", "", root, subtree_tokens(trie, root), own, int(trie.depth[root]))
    marks = [first]
    heap = [(-first.tokens, root)]
    closed: set[int] = set()
    while heap:
        _, node = heapq.heappop(heap)
        inside = sorted(below.get(node, []), key=lambda n: -subtree_tokens(trie, n))
        room = max_marks - len(marks)
        if not inside:
            continue
        if room <= 0:
            closed.add(node)
            continue
        # A fold takes the last place, so that no branch is left out without a word.
        shown = inside if len(inside) <= room else inside[: room - 1]
        for child in sorted(shown):
            size, own = subtree_tokens(trie, child), int(trie.lengths[child])
            marks.append(_Mark(f"n{child}", f"n{node}", child, size, own, int(trie.depth[child])))
            heapq.heappush(heap, (-size, child))
        hidden = inside[len(shown) :]
        if hidden:
            tokens = sum(subtree_tokens(trie, n) for n in hidden)
            marks.append(_Mark(f"f{node}", f"n{node}", -1, tokens, 0, 0, folded=len(hidden)))
    return [replace(m, closed=True) if m.node in closed else m for m in marks]


def _label(mark: _Mark, trie: Trie, read: Callable[[int], str]) -> tuple[str, str]:
    if mark.folded:
        return f"+{mark.folded:,} branches", (
            f"{mark.folded:,} smaller branches, {mark.tokens:,} tokens; "
            "click the mark to their left to see them"
        )
    if mark.node < 0:
        return "tree", f"the whole tree: {mark.tokens:,} tokens, {len(trie):,} nodes"
    text = read(mark.node)
    rows = int(trie.row_count[mark.node])
    saved = (rows - 1) * mark.own
    return escaped(text, 18), (
        f"<b>{mark.own:,} tokens</b> at depth {mark.depth:,} · {rows:,} rows · "
        f"{saved:,} tokens saved here<br>{mark.tokens:,} tokens in and below"
        f"{_below(trie, mark.node) if mark.closed else ''}"
        f"<br>{escaped(text, 160)}"
    )


def _below(trie: Trie, node: int) -> str:
    """How many nodes stand below a mark that is drawn closed."""
    last = int(np.searchsorted(trie.start, trie.subtree_end[node]))
    return f" (its {last - node - 1:,} nodes below are not drawn: click)"
