"""Our packer: a valid packing, never worse than AReaL's, that AReaL's first fit can follow."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.packers.areal import RowTooLong, pack_areal
from packing.packers.bounds import bounds
from packing.packers.prefix_aware import pack_prefix_aware
from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tests.packing.strategies import any_rows


@st.composite
def rows_and_cap(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Rows that share, nest and repeat, and a cap that holds the longest."""
    rows = draw(any_rows)
    return rows, max(1, max(map(len, rows))) + draw(st.integers(0, 20))


def assert_valid(packing: Packing, rows: list[list[int]], fed: list[int], cap: int) -> None:
    """Each fed row is in exactly one tree; a tree holds its distinct prefixes, within the cap."""
    assert sorted(packing.arrival.tolist()) == sorted(fed)
    for row, tree in enumerate(packing.tree_of_row.tolist()):
        assert (0 <= tree < packing.n_trees) == (row in fed and bool(rows[row]))
    for tree in range(packing.n_trees):
        inside = [rows[row] for row in packing.rows_of_tree(tree)]
        prefixes = {tuple(row[:end]) for row in inside for end in range(1, len(row) + 1)}
        assert packing.tokens_per_tree[tree] == len(prefixes) <= cap
        assert inside


@given(rows_and_cap())
@settings(max_examples=80, deadline=None)
def test_never_worse_than_areal_and_valid(case: tuple[list[list[int]], int]) -> None:
    rows, cap = case
    order = PrefixOrder.of(Rows.from_lists(rows))
    areal = pack_areal(order, cap)
    ours = pack_prefix_aware(order, cap)
    assert_valid(ours, rows, list(range(len(rows))), cap)
    assert (ours.n_trees, ours.tree_tokens) <= (areal.n_trees, areal.tree_tokens)
    assert bounds(order, cap).trees <= ours.n_trees
    assert bounds(order, cap).tokens <= ours.tree_tokens


@given(rows_and_cap(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_a_subset_is_packed_as_if_it_were_all(
    case: tuple[list[list[int]], int], random: Any
) -> None:
    rows, cap = case
    fed = random.sample(range(len(rows)), random.randint(0, len(rows)))
    order = PrefixOrder.of(Rows.from_lists(rows))
    ours = pack_prefix_aware(order, cap, arrival=fed)
    assert_valid(ours, rows, fed, cap)
    alone = PrefixOrder.of(Rows.from_lists([rows[row] for row in fed]))
    assert ours.n_trees <= pack_areal(alone, cap).n_trees


def test_a_prefix_rides_on_its_extension() -> None:
    long = [list(range(row * 100, row * 100 + 60)) for row in range(6)]
    rows = [row[:end] for row in long for end in (10, 30, 60)]
    ours = pack_prefix_aware(PrefixOrder.of(Rows.from_lists(rows)), 60)
    assert ours.tokens_per_tree.tolist() == [60] * 6
    assert all(len(set(ours.tree_of_row[i : i + 3])) == 1 for i in range(0, 18, 3))


def test_siblings_stay_together() -> None:
    # Eight groups of four samples: a tree holds one group (25 + 4 x 15 = 85), but only two rows
    # of different groups (2 x 40), whatever the order in which they come.
    rows = [[group] * 25 + [100 + sample] * 15 for group in range(8) for sample in range(4)]
    shuffled = np.random.default_rng(0).permutation(len(rows)).tolist()
    order = PrefixOrder.of(Rows.from_lists([rows[i] for i in shuffled]))
    ours = pack_prefix_aware(order, 85)
    assert ours.tokens_per_tree.tolist() == [85] * 8
    assert pack_areal(order, 85).n_trees > 8


def test_a_group_is_split_where_that_fills_a_tree() -> None:
    # Three groups of 10 + 5 x 10 = 60 tokens under a cap of 100: whole groups need three trees,
    # one of them divided over the room of the other two needs two.
    rows = [[group] * 10 + [100 + sample] * 10 for group in range(3) for sample in range(5)]
    order = PrefixOrder.of(Rows.from_lists(rows))
    ours = pack_prefix_aware(order, 100)
    assert ours.n_trees == bounds(order, 100).trees == 2


def test_the_answer_depends_on_the_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    lengths = generator.integers(20, 70, size=40)
    rows = [np.concatenate([[1] * 9, [row + 2] * n]) for row, n in enumerate(lengths)]
    order = PrefixOrder.of(Rows.from_lists(rows))
    searched = pack_prefix_aware(order, 128)
    # A machine on which every look at the clock takes an hour.
    hours = iter(range(10**9))
    monkeypatch.setattr(time, "perf_counter", lambda: 3600.0 * next(hours))
    monkeypatch.setattr(time, "monotonic", lambda: 3600.0 * next(hours))
    assert pack_prefix_aware(order, 128).tree_of_row.tolist() == searched.tree_of_row.tolist()


def test_nothing_to_pack() -> None:
    nothing: list[list[list[int]]] = [[], [[]], [[], []]]
    for rows in nothing:
        ours = pack_prefix_aware(PrefixOrder.of(Rows.from_lists(rows)), 8)
        assert ours.n_trees == 0
        assert ours.tree_of_row.tolist() == [-1] * len(rows)
        assert ours.arrival.tolist() == list(range(len(rows)))


def test_a_row_longer_than_the_cap_is_areals_error() -> None:
    with pytest.raises(RowTooLong, match="Sequence length 9 exceeds max_tokens_per_tree 8"):
        pack_prefix_aware(PrefixOrder.of(Rows.from_lists([[1], [2] * 9])), 8)


def test_a_long_spine_of_branch_points_needs_no_recursion() -> None:
    # Row i follows the spine for i tokens and then goes its own way: 3,000 nested branch points.
    depth = 3000
    shared = np.arange(depth - 1, dtype=np.int64)
    order = PrefixOrder(
        np.arange(depth),
        np.arange(depth),
        np.arange(depth, dtype=np.int64) + 2,
        np.concatenate([[0], shared]),
    )
    cap = depth + 1000
    ours = pack_prefix_aware(order, cap)
    assert ours.n_trees <= pack_areal(order, cap).n_trees
    assert ours.tokens_per_tree.max() <= cap
    assert [order.tree_tokens(ours.rows_of_tree(t)) for t in range(ours.n_trees)] == list(
        ours.tokens_per_tree
    )


@pytest.mark.parametrize(
    ("name", "caps", "trees", "ratios"),
    [
        ("tau_airline_turns", (12288, 16384, 32768), (51, 37, 18), (0.081, 0.0785, 0.0752)),
        ("tau_airline_trajectories", (12288, 16384, 32768), (52, 38, 18), (0.768, 0.746, 0.715)),
        ("gsm8k_solutions", (2048, 4096, 8192), (449, 223, 111), (0.71, 0.70, 0.70)),
    ],
)
def test_real_rollouts_meet_their_targets(
    golden_rows: Any,
    name: str,
    caps: tuple[int, ...],
    trees: tuple[int, ...],
    ratios: tuple[float, ...],
) -> None:
    rows = golden_rows(name)
    order = PrefixOrder.of(rows)
    for cap, at_most, ratio in zip(caps, trees, ratios, strict=True):
        ours = pack_prefix_aware(order, cap)
        assert ours.n_trees <= at_most and ours.tree_tokens / rows.n_tokens <= ratio
