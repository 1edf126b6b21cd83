"""Groups of a batch, their ranks, and the minibatches of their rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.batch.dispatch import GroupTable, batches, dispatch, ppo_minibatches
from packing.rows import Rows


def _rows(lengths: list[int], group: list[int]) -> Rows:
    return Rows.from_lists([[7] * n for n in lengths], group)


def test_groups_keep_file_order_and_their_order_of_arrival() -> None:
    rows = _rows([3, 5, 1, 2, 4], [9, 2, 9, 2, 9])
    table = GroupTable.of(rows, [9, 2])
    assert table.ids.tolist() == [9, 2]
    assert table.rows.tolist() == [0, 2, 4, 1, 3]
    assert table.sample.tolist() == [0, 1, 2, 0, 1]
    assert table.sizes.tolist() == [3, 2]
    assert table.tokens.tolist() == [8, 7] and table.width.tolist() == [4, 5]
    assert table.places([1, 0]).tolist() == [3, 4, 0, 1, 2]
    assert GroupTable.of(rows).ids.tolist() == [2, 9]


def test_samples_per_prompt_keeps_the_first_rows() -> None:
    rows = _rows([3, 5, 1, 2, 4], [9, 2, 9, 2, 9])
    table = GroupTable.of(rows, samples_per_prompt=2)
    assert table.rows.tolist() == [1, 3, 0, 2] and table.width.tolist() == [5, 3]


def test_unknown_and_repeated_groups_are_named() -> None:
    rows = _rows([3, 5], [1, 2])
    with pytest.raises(ValueError, match=r"names group 4, but the dataset has no rows of it"):
        GroupTable.of(rows, [1, 4])
    with pytest.raises(ValueError, match=r"names group 2 twice"):
        GroupTable.of(rows, [2, 1, 2])


def test_controller_weighs_the_rectangle_spmd_the_tokens() -> None:
    # Group 0: one long row beside a short one; its rectangle is the largest, its tokens are not.
    rows = _rows([50, 1, 30, 30, 25, 24, 20, 20], [0, 0, 1, 1, 2, 2, 3, 3])
    table = GroupTable.of(rows)
    assert dispatch(table, 2, "controller") == [[0, 3], [1, 2]]
    assert dispatch(table, 2, "spmd") == [[1, 3], [0, 2]]


def test_words_of_indivisible_batches() -> None:
    table = GroupTable.of(_rows([1, 1, 1], [0, 1, 2]))
    with pytest.raises(ValueError, match=r"^The length of nums must be divisible by K\.$"):
        dispatch(table, 2, "controller")
    with pytest.raises(ValueError, match=r"^batch size\(3\) must be divisible by world_size\(2\)"):
        dispatch(table, 2, "spmd")


def test_fewer_rows_than_minibatches() -> None:
    with pytest.raises(RuntimeError, match=r"^Number of values 2 is smaller than min_groups 3$"):
        ppo_minibatches([5, 6], 3)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 6))
def test_every_row_in_one_minibatch_of_equal_count(lengths: list[int], n: int) -> None:
    if len(lengths) < n:
        return
    minibatches = ppo_minibatches(lengths, n)
    assert sorted(i for mb in minibatches for i in mb) == list(range(len(lengths)))
    sizes = [len(mb) for mb in minibatches]
    assert len(minibatches) == n and max(sizes) - min(sizes) <= 1
    assert all(mb == sorted(mb) for mb in minibatches)


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from(["controller", "spmd"]),
    st.sampled_from(["ffd", "kk"]),
    st.integers(0, 2**31),
)
def test_no_group_is_split_over_ranks(
    dp: int, per_rank: int, most_rows: int, mode: str, algorithm: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(dp * per_rank), rng.integers(1, most_rows + 1, dp * per_rank))
    table = GroupTable.of(_rows(rng.integers(1, 60, len(group)).tolist(), group.tolist()))
    ranks = dispatch(table, dp, mode, algorithm)  # type: ignore[arg-type]
    assert sorted(g for rank in ranks for g in rank) == list(range(dp * per_rank))
    if mode == "controller":
        assert {len(rank) for rank in ranks} == {per_rank}
    elif algorithm == "ffd":
        assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


def test_batches_cover_the_dataset_and_drop_what_is_not_full() -> None:
    rows = _rows([1] * 14, [g for g in range(7) for _ in range(2)])
    assert [b.tolist() for b in batches(rows, 3)] == [[0, 1, 2], [3, 4, 5]]
    assert batches(rows, 8) == []
    shuffled = [b.tolist() for b in batches(rows, 3, shuffle_seed=5)]
    assert shuffled == [b.tolist() for b in batches(rows, 3, shuffle_seed=5)]
    assert shuffled != [[0, 1, 2], [3, 4, 5]]
    assert max(Counter(g for b in shuffled for g in b).values()) == 1


def test_batches_leave_out_prompts_with_too_few_samples() -> None:
    rows = _rows([1] * 5, [0, 0, 1, 2, 2])
    assert [b.tolist() for b in batches(rows, 1, samples_per_prompt=2)] == [[0], [2]]
