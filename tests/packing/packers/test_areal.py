"""AReaL's packer: equal to AReaL's own results and to the plain specification."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.packers.areal import RowTooLong, pack_areal
from packing.packers.naive import pack_naive
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import build_forest, whole_trie
from tests.packing.strategies import any_rows


def test_areal_small_cases(small_cases: dict[str, Any]) -> None:
    refused = 0
    for case in small_cases["tree_packing"]:
        order = PrefixOrder.of(Rows.from_lists(case["sequences"]))
        if "error" in case:
            with pytest.raises(ValueError) as error:
                pack_areal(order, case["max_tokens_per_mb"])
            assert f"ValueError: {error.value}" == case["error"]
            refused += 1
            continue
        packing = pack_areal(order, case["max_tokens_per_mb"])
        assert packing.tree_of_row.tolist() == case["tree_of_row"]
        assert packing.tokens_per_tree.tolist() == case["tokens_per_tree"]
        original = sum(map(len, case["sequences"]))
        assert packing.tree_tokens / original == case["tree_token_ratio"]
        forest = build_forest(order, packing)
        nodes = [
            [
                [start, end, sorted(tree.rows_through(k).tolist())]
                for k, (start, end, _, _) in enumerate(tree.areal_nodes())
            ]
            for tree in map(forest.tree, range(len(forest)))
        ]
        assert nodes == case["nodes"]
    assert refused >= 2


def test_areal_golden(shared_dir: Path, golden_rows: Any) -> None:
    golden = json.loads((shared_dir / "golden" / "areal_golden.json").read_text())
    for name, case in golden.items():
        rows = golden_rows(case["dataset"]).take(np.arange(*case["rows"]))
        order = PrefixOrder.of(rows)
        packing = pack_areal(order, case["max_tokens_per_mb"])
        forest = build_forest(order, packing)
        assert packing.tree_of_row.tolist() == case["tree_of_row"], name
        assert packing.tokens_per_tree.tolist() == case["tokens_per_tree"], name
        assert packing.tree_tokens / rows.n_tokens == case["tree_token_ratio"], name
        assert forest.nodes_per_tree.tolist() == case["nodes_per_tree"], name
        nodes = [forest.tree(t).areal_nodes() for t in range(len(forest))]
        compact = json.dumps(nodes, separators=(",", ":")).encode()
        assert hashlib.sha256(compact).hexdigest() == case["nodes_sha256"], name


@settings(max_examples=300)
@given(any_rows, st.integers(1, 60))
def test_equals_the_plain_first_fit(sequences: list[list[int]], cap: int) -> None:
    order = PrefixOrder.of(Rows.from_lists(sequences))
    if max(map(len, sequences)) > cap:
        with pytest.raises(RowTooLong):
            pack_areal(order, cap)
        return
    packing = pack_areal(order, cap)
    assert (packing.tree_of_row.tolist(), packing.tokens_per_tree.tolist()) == pack_naive(
        sequences, cap
    )


@given(any_rows, st.randoms(use_true_random=False))
def test_any_arrival_of_a_subset_needs_no_new_sort(sequences: list[list[int]], random: Any) -> None:
    arrival = [i for i in range(len(sequences)) if random.random() < 0.7]
    random.shuffle(arrival)
    order = PrefixOrder.of(Rows.from_lists(sequences))
    cap = max(20, order.lengths.max())
    packing = pack_areal(order, cap, arrival, whole_trie(order))
    trees, tokens = pack_naive([sequences[i] for i in arrival], cap)
    assert packing.tree_of_row[arrival].tolist() == trees
    assert packing.tokens_per_tree.tolist() == tokens
    left_out = set(range(len(sequences))) - set(arrival)
    assert all(packing.tree_of_row[i] == -1 for i in left_out)


def test_many_open_trees_split_and_drop_chunks() -> None:
    """Hundreds of trees stay open at one shared node, and are entered out of order."""
    random = np.random.default_rng(3)
    stems = [[1, 2, 3, 10 + s] for s in range(6)]
    sequences = [
        stems[random.integers(6)] + random.integers(0, 3, random.integers(1, 24)).tolist()
        for _ in range(3000)
    ]
    for cap in (28, 40):
        packing = pack_areal(PrefixOrder.of(Rows.from_lists(sequences)), cap)
        trees, tokens = pack_naive(sequences, cap)
        assert len(tokens) > 200
        assert packing.tree_of_row.tolist() == trees
        assert packing.tokens_per_tree.tolist() == tokens


def test_ten_thousand_nested_prefixes() -> None:
    longest = np.arange(10_000, dtype=np.int32)
    rows = Rows.from_lists([longest[:n] for n in range(1, 10_001)])
    order = PrefixOrder.of(rows)
    packing = pack_areal(order, 10_000)
    assert packing.tokens_per_tree.tolist() == [10_000]
    trie = build_forest(order, packing).tree(0)
    assert len(trie) == 10_000 and trie.parent.tolist() == list(range(-1, 9_999))


def test_the_row_that_is_too_long_is_named() -> None:
    with pytest.raises(
        RowTooLong, match="Sequence length 3 exceeds max_tokens_per_tree 2"
    ) as error:
        pack_areal(PrefixOrder.of(Rows.from_lists([[1], [1, 2, 3], [1, 2, 3, 4]])), 2)
    assert (error.value.row, error.value.length) == (1, 3)


def test_empty_rows_are_dropped() -> None:
    packing = pack_areal(PrefixOrder.of(Rows.from_lists([[], [5], []])), 4)
    assert packing.tree_of_row.tolist() == [-1, 0, -1]
    nothing = pack_areal(PrefixOrder.of(Rows.from_lists([[], []])), 4)
    assert nothing.n_trees == 0 and nothing.tree_of_row.tolist() == [-1, -1]
