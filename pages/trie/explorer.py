"""One tree looked into: levels, a row's path, trained tokens, branches, search.

Notable:
- a row is named by its number in the data set; a batch may hold only some of them
- work on text is bounded: what was not looked at is said
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packing.layout import depth_first_layout
from packing.rows import Rows
from packing.trie import Trie
from tuning.plan.batch import batch_rows
from tuning.plan.plan import TuningPlan

Int64s = npt.NDArray[np.int64]

_SEARCHED_TOKENS = 400_000
_OVERLAP = 12  # tokens above a node read with it, so that a hit may begin there
_BEFORE, _AFTER = 24, 60  # characters of text around a hit


def batch_row_numbers(rows: Rows, plan: TuningPlan) -> Int64s:
    """int64 ``(batch rows,)``: number in ``rows`` of each row of the plan's batch."""
    numbered = Rows(np.arange(len(rows), dtype=np.int32), np.arange(len(rows) + 1), rows.group)
    return batch_rows(numbered, plan).tokens.astype(np.int64)


def levels(trie: Trie) -> npt.NDArray[np.uint16]:
    """uint16 ``(K,)``: nodes above each node (65,535 where there are more)."""
    level: list[int] = []
    for parent in trie.parent.tolist():
        level.append(level[parent] + 1 if parent >= 0 else 0)
    return np.minimum(np.array(level, dtype=np.int64), 65_535).astype(np.uint16)


def row_path(trie: Trie, row: int) -> list[int]:
    """Nodes that a row runs through, from the root down; none where it is not in this tree."""
    at = np.flatnonzero(trie.sorted_rows == row)
    return trie.path(int(trie.leaf[at[0]])) if len(at) else []


def node_at(trie: Trie, token: int) -> int:
    """The node that holds a packed position of the tree."""
    return int(np.searchsorted(trie.start, token, side="right")) - 1


def child_nodes(trie: Trie, node: int) -> Int64s:
    """Nodes right below ``node`` (-1: the roots), the one with the most rows first."""
    below = np.flatnonzero(trie.parent == node)
    return below[np.argsort(-trie.row_count[below], kind="stable")]


def ending_rows(trie: Trie, node: int) -> Int64s:
    """Rows whose last token is the node's last token."""
    ended: Int64s = trie.sorted_rows[trie.leaf == node]
    return ended


def trained_tokens(rows: Rows, trie: Trie) -> npt.NDArray[np.bool_] | None:
    """bool ``(N,)``, in packed order: trained on in some row; None where nothing is masked."""
    if rows.loss_mask is None:
        return None
    layout = depth_first_layout(rows, trie)
    trained = np.zeros(trie.n_tokens, dtype=bool)
    trained[layout.row_positions[rows.loss_mask[rows.take_tokens(layout.rows)] == 1]] = True
    return trained


def runs(marks: npt.NDArray[np.bool_]) -> Int64s:
    """int64 ``(R, 2)``: where ``marks`` are true, as ranges ``[start, end)``."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marks, [False]]).astype(np.int8)))
    return edges.reshape(-1, 2)


def node_tokens(rows: Rows, trie: Trie, node: int) -> npt.NDArray[np.int32]:
    """Token ids of a node: int32 ``(n,)``."""
    depth = int(trie.depth[node])
    return rows[int(trie.first_row[node])][depth : depth + int(trie.lengths[node])]


@dataclass(frozen=True)
class Hit:
    """A place that holds the searched text: its node, and the text around it."""

    node: int
    before: str
    found: str
    after: str


@dataclass(frozen=True)
class Search:
    """What was found and how far it was looked for: nodes and tokens read."""

    hits: list[Hit]
    nodes: int
    tokens: int


def search_text(
    rows: Rows, trie: Trie, words: str, most: int = 20, budget: int = _SEARCHED_TOKENS
) -> Search:
    """Nodes whose text holds ``words`` (any case), in packed order, at most ``most``.

    budget: tokens read at most. A hit may begin up to 12 tokens above its node.
    """
    wanted = " ".join(words.split()).casefold()
    hits: list[Hit] = []
    read = node = 0
    while wanted and node < len(trie) and read < budget and len(hits) < most:
        depth, length = int(trie.depth[node]), int(trie.lengths[node])
        row = rows[int(trie.first_row[node])]
        above = _one_line(rows.text(row[max(depth - _OVERLAP, 0) : depth]))
        whole = _one_line(rows.text(row[max(depth - _OVERLAP, 0) : depth + length]))
        at = whole.casefold().find(wanted, max(len(above) - len(wanted) + 1, 0))
        if at >= 0:
            end = at + len(wanted)
            hits.append(
                Hit(
                    node, whole[max(at - _BEFORE, 0) : at], whole[at:end], whole[end : end + _AFTER]
                )
            )
        read += length
        node += 1
    return Search(hits, node, read)


def _one_line(text: str) -> str:
    return " ".join(text.split())
