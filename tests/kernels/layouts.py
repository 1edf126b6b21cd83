"""Small rows of every awkward kind, and their trees, for tests of the model and the step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from packing.layout import TreeLayout, depth_first_layout
from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import build_forest, whole_trie

VOCABULARY = 200


def awkward_rows(seed: int = 0) -> Rows:
    """Branches, nested prefixes, a duplicate, rows of one token, an empty row, two roots."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(1, VOCABULARY, 24).tolist()
    lists: list[list[int]] = [
        [*prompt[:at], *rng.integers(1, VOCABULARY, extra).tolist()]
        for at, extra in [
            (24, 9),
            (24, 5),
            (12, 7),
            (12, 0),
            (5, 0),
            (1, 0),
            (0, 6),
            (0, 1),
            (24, 0),
        ]
    ]
    return Rows.from_lists([*lists, lists[0], []])


def one_tree(rows: Rows) -> TreeLayout:
    """All rows as one depth-first tree."""
    return depth_first_layout(rows, whole_trie(PrefixOrder.of(rows)))


def trees(rows: Rows, members: Sequence[Sequence[int]]) -> list[TreeLayout]:
    """One depth-first tree for each list of row numbers."""
    order = PrefixOrder.of(rows)
    tree_of_row = np.full(len(rows), -1, dtype=np.int32)
    for tree, chosen in enumerate(members):
        tree_of_row[list(chosen)] = tree
    tokens = np.array([order.tree_tokens(np.array(chosen)) for chosen in members], dtype=np.int64)
    arrival = np.concatenate([np.array(chosen, dtype=np.int64) for chosen in members])
    packing = Packing(tree_of_row, tokens, int(tokens.max()), "test", arrival)
    forest = build_forest(order, packing)
    return [depth_first_layout(rows, forest.tree(i)) for i in range(len(forest))]
