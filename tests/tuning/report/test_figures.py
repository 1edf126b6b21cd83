"""Figures: within their budgets whatever the size, and dataset text never becomes markup."""

from __future__ import annotations

import numpy as np
import pytest

from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Trie, build_forest
from tuning.report.figures.lengths import length_histogram
from tuning.report.figures.style import escaped
from tuning.report.figures.trie import MAX_MARKS, choose_marks, nodes_below, subtree_tokens


def big_trie(rows: int = 3000) -> Trie:
    random = np.random.default_rng(1)
    made = Rows.from_lists(
        [random.integers(0, 3, random.integers(1, 40)).tolist() for _ in range(rows)]
    )
    order = PrefixOrder.of(made)
    return build_forest(order, pack_areal(order, 10**7)).tree(0)


@pytest.mark.parametrize("whole", [True, False])
def test_an_icicle_folds_what_is_small(whole: bool) -> None:
    trie = big_trie()
    largest = max(range(len(trie)), key=lambda node: subtree_tokens(trie, node))
    root = -1 if whole else largest
    assert len(trie) > 10 * MAX_MARKS
    marks = choose_marks(trie, root)
    assert len(marks) <= MAX_MARKS
    assert marks[0].tokens == (trie.n_tokens if root < 0 else subtree_tokens(trie, root))
    inside: dict[str, int] = {}
    for mark in marks[1:]:
        inside[mark.parent] = inside.get(mark.parent, 0) + mark.tokens
    for mark in marks:
        if mark.id in inside:
            assert inside[mark.id] == mark.tokens - mark.own, "children and folds are all of it"
            assert not mark.closed
        elif mark.node >= 0:
            below = sum(mark.node in trie.path(k)[:-1] for k in range(len(trie)))
            assert nodes_below(trie, mark.node) == below
            assert mark.closed == (below > 0), "what is not drawn is said"


def test_text_in_labels_is_escaped() -> None:
    shown = escaped("<b onmouseover=alert(1)>&</b>")
    assert "<b onmouse" not in shown and "&lt;b onmouse" in shown
    assert escaped("a" * 500).endswith("…") and len(escaped("a" * 500)) == 120


def test_histogram_weighs_the_same_for_a_million_rows() -> None:
    lengths = np.random.default_rng(0).integers(1, 5000, 1_000_000)
    figure = length_histogram(lengths, cap=4096)
    assert len(figure.to_json()) < 20_000
    assert sum(figure.data[0].y) == 1_000_000
    colors = set(figure.data[0].marker.color)
    assert len(colors) == 2, "rows over the cap stand out"
    assert length_histogram(np.empty(0, dtype=np.int64), 128).data
