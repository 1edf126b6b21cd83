"""Every ratio against its definition, spelt out token by token."""

from __future__ import annotations

from packing import metrics
from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows


def test_definitions() -> None:
    assert metrics.tree_token_ratio(30, 120) == 0.25
    assert metrics.prefix_reuse(30, 120) == 4.0
    assert metrics.paid_tokens([3, 1], 128) == 2 * 3 * 128
    assert metrics.paid_tokens(3, 128) == 384
    assert metrics.padded_token_ratio(384, 768) == 0.5
    assert metrics.fill(192, 3, 128) == 0.5
    assert metrics.dummy_trees([3, 1, 2]).tolist() == [0, 2, 1]
    assert metrics.block_efficiency(50, 200) == 0.25
    assert metrics.sharing_lost(60, 30) == 2.0
    assert metrics.flat_attention_area([3, 2]) == 9


def test_nothing_is_not_a_division_by_zero() -> None:
    ones = [
        metrics.tree_token_ratio(0, 0),
        metrics.prefix_reuse(0, 0),
        metrics.padded_token_ratio(0, 0),
        metrics.fill(0, 0, 128),
        metrics.block_efficiency(0, 0),
        metrics.sharing_lost(0, 0),
    ]
    assert ones == [1.0] * 6
    assert metrics.paid_tokens([], 128) == 0


def test_area_of_each_tree_is_its_tries() -> None:
    rows = Rows.from_lists([[1, 2, 3], [1, 2, 4], [5, 5, 5, 5], [1, 2, 3]])
    order = PrefixOrder.of(rows)
    packing = pack_areal(order, 4)
    assert packing.tree_of_row.tolist() == [0, 0, 1, 0]
    # Tree 0: depths 1, 2, 3, 3. Tree 1: depths 1 to 4.
    assert metrics.tree_attention_area(order, packing).tolist() == [9, 10]
