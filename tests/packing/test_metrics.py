"""Every ratio against its definition, spelt out token by token."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing import metrics
from packing.metrics import PackingMetrics
from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tests.packing.strategies import any_rows


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


@given(any_rows, st.integers(1, 20))
def test_packing_metrics_count_tokens_one_by_one(sequences: list[list[int]], spare: int) -> None:
    rows = Rows.from_lists(sequences)
    cap = rows.longest + spare
    packing = pack_areal(PrefixOrder.of(rows), cap)
    figures = PackingMetrics.of(packing, rows)
    trees = [_prefixes(sequences, packing.rows_of_tree(t)) for t in range(packing.n_trees)]
    assert figures.tokens_per_tree.tolist() == [len(tree) for tree in trees]
    assert figures.original_tokens == sum(map(len, sequences))
    assert figures.ideal_tokens == len(_prefixes(sequences, range(len(sequences))))
    assert figures.tree_area == sum(len(prefix) for tree in trees for prefix in tree)
    assert figures.flat_area == sum(n + 1 for s in sequences for n in range(len(s)))
    assert figures.paid_tokens == packing.n_trees * cap
    if figures.original_tokens:
        assert 0 < figures.tree_token_ratio <= 1 <= figures.prefix_reuse
        assert figures.tree_token_ratio <= figures.padded_token_ratio
        assert 0 < figures.fill <= 1 <= figures.sharing_lost
        assert figures.tree_area <= figures.flat_area


def test_area_of_each_tree_is_its_tries() -> None:
    rows = Rows.from_lists([[1, 2, 3], [1, 2, 4], [5, 5, 5, 5], [1, 2, 3]])
    order = PrefixOrder.of(rows)
    packing = pack_areal(order, 4)
    assert packing.tree_of_row.tolist() == [0, 0, 1, 0]
    # Tree 0: depths 1, 2, 3, 3. Tree 1: depths 1 to 4.
    assert metrics.tree_attention_area(order, packing).tolist() == [9, 10]


def test_a_packing_of_some_rows_counts_only_those() -> None:
    rows = Rows.from_lists([[1, 2], [1, 3], [7, 7, 7]])
    order = PrefixOrder.of(rows)
    figures = PackingMetrics.of(pack_areal(order, 8, [1, 0]), rows, order)
    assert figures.original_tokens == 4 and figures.ideal_tokens == 3 and figures.flat_area == 6


def test_json_has_areals_figures() -> None:
    rows = Rows.from_lists([[1, 2, 3], [1, 2, 4], [9] * 6])
    packing = pack_areal(PrefixOrder.of(rows), 8)
    printed = json.loads(json.dumps(PackingMetrics.of(packing, rows).to_json()))
    assert printed["n_trees"] == 2 and printed["tree_tokens"] == 10
    assert printed["original_tokens"] == 12 and printed["tokens_per_tree"] == [4, 6]
    assert printed["tree_of_row"] == [0, 0, 1]
    assert printed["tree_token_ratio"] == 10 / 12 and printed["padded_token_ratio"] == 16 / 12


@pytest.mark.parametrize("name", ["gsm8k_solutions", "tau_airline_trajectories"])
def test_figures_equal_areals(golden_rows: Any, shared_dir: Any, name: str) -> None:
    golden = json.loads((shared_dir / "golden" / "areal_golden.json").read_text())
    cases = [case for case in golden.values() if case["dataset"] == name]
    assert cases
    for case in cases:
        rows = golden_rows(name).take(np.arange(*case["rows"]))
        packing = pack_areal(PrefixOrder.of(rows), case["max_tokens_per_mb"])
        printed = PackingMetrics.of(packing, rows).to_json()
        for field in ("n_trees", "tree_tokens", "original_tokens", "tree_token_ratio"):
            assert printed[field] == case[field]
        assert printed["tokens_per_tree"] == case["tokens_per_tree"]


def _prefixes(sequences: list[list[int]], members: Any) -> set[tuple[int, ...]]:
    rows = [sequences[int(row)] for row in members]
    return {tuple(row[: n + 1]) for row in rows for n in range(len(row))}
