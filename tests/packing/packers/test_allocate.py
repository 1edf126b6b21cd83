"""ffd, kk and balanced greedy are AReaL's, group for group, and say what AReaL says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.packers.allocate import (
    NO_CAPACITY,
    allocator,
    balanced_greedy_partition,
    ffd_allocate,
    kk_allocate,
)
from tests.packing.ties import same_ties

LENGTHS = [900, 850, 800, 700, 650, 640, 500, 450, 400, 300, 250, 200, 120, 60]

Sets = list[tuple[int, int, list[tuple[int, int]]]]

values = st.lists(st.integers(1, 40), min_size=1, max_size=30)


@pytest.mark.parametrize("case", range(60))
@pytest.mark.parametrize("algorithm", ["ffd", "kk"])
def test_groups_or_error_of_every_golden_case(
    small_cases: dict[str, Any], case: int, algorithm: str
) -> None:
    golden = small_cases["flat_packing"][case]
    arguments = (
        golden["lengths"],
        golden["capacity"],
        golden["min_groups"],
        golden["n_groups_divisor"],
    )
    allocate = allocator(algorithm)
    if f"{algorithm}_error" in golden:
        kind, _, message = golden[f"{algorithm}_error"].partition(": ")
        with pytest.raises(RuntimeError) as error:
            allocate(*arguments)
        assert (kind, message) == ("RuntimeError", str(error.value))
        return
    groups = allocate(*arguments)
    assert _as_values(groups, golden["lengths"]) == _as_values(golden[algorithm], golden["lengths"])
    if same_ties():
        assert groups == golden[algorithm]


def test_balanced_greedy_of_every_golden_case(small_cases: dict[str, Any]) -> None:
    cases = [c["balanced_greedy"] for c in small_cases["flat_packing"] if "balanced_greedy" in c]
    assert len(cases) == 57
    for case in cases:
        assert balanced_greedy_partition(case["lengths"], case["k"]) == case["groups"]


def test_figures_of_a_known_batch() -> None:
    ffd = ffd_allocate(LENGTHS, 2048)
    assert _sorted(ffd) == [[0, 1, 11], [2, 3, 7], [4, 5, 6, 13], [8, 9, 10, 12]]
    four = [[0, 7, 8], [1, 6, 9], [2, 5, 11, 13], [3, 4, 10, 12]]
    assert _sorted(ffd_allocate(LENGTHS, 2048, 4, 2)) == four
    assert _sorted(ffd_allocate(LENGTHS, NO_CAPACITY, 4)) == four
    kk = [[0, 4, 11], [1, 7, 10, 12], [2, 6, 9, 13], [3, 5, 8]]
    assert _sorted(kk_allocate(LENGTHS, 2048)) == kk
    halves = [[0, 3, 4, 6, 9, 10, 12], [1, 2, 5, 7, 8, 11, 13]]
    assert balanced_greedy_partition(LENGTHS, 2) == [sorted(half) for half in halves]


@pytest.mark.parametrize("least", [None, 0, 1])
def test_without_min_groups_the_divisor_is_the_least(least: int | None) -> None:
    assert len(ffd_allocate([5, 5, 5, 5], 100, least, 2)) == 2
    assert len(kk_allocate([5, 5, 5, 5], 100, least, 2)) == 2


def test_words_of_every_refusal() -> None:
    with pytest.raises(RuntimeError, match=r"^Values \[3, 9\] is larger than capacity 8$"):
        ffd_allocate([3, 9], 8)
    with pytest.raises(
        RuntimeError,
        match=r"^Some values exceed capacity 8\. Cannot pack a single item that is larger than",
    ):
        kk_allocate([3, 9], 8)
    with pytest.raises(
        RuntimeError,
        match=r"^Cannot allocate values \[6, 6, 6\] that satisfies capacity 8, min_groups 4 and "
        r"n_groups_divisor 2\.$",
    ):
        ffd_allocate([6, 6, 6], 8, 1, 2)
    with pytest.raises(ValueError, match=r"^The length of nums must be divisible by K\.$"):
        balanced_greedy_partition([1, 2, 3], 2)
    with pytest.raises(ValueError, match=r"^Number of items \(1\) must be >= K \(2\)\.$"):
        balanced_greedy_partition([1], 2)
    with pytest.raises(ValueError, match=r"^Unknown packing algorithm 'lpt'\. Supported .*'kk'\]$"):
        allocator("lpt")


def test_kk_falls_back_to_ffd_where_a_group_overflows() -> None:
    tight = [4, 4, 4]  # two groups by size, but one of them would hold 8
    assert kk_allocate(tight, 6) == ffd_allocate(tight, 6)
    assert len(kk_allocate(tight, 6)) == 3


def test_kk_never_makes_more_groups_than_values_even_against_the_divisor() -> None:
    assert len(kk_allocate([5, 5, 5], 5, 1, 2)) == 3


@given(values, st.integers(40, 120), st.integers(1, 5), st.integers(1, 3))
def test_ffd_equals_the_obvious_reference(
    lengths: list[int], capacity: int, least: int, divisor: int
) -> None:
    if len(lengths) < max(least, divisor):
        return
    assert _outcome(ffd_allocate, lengths, capacity, least, divisor) == _outcome(
        _slow_ffd, lengths, capacity, least, divisor
    )


@given(values, st.integers(1, 6))
def test_kk_equals_the_obvious_reference(lengths: list[int], k: int) -> None:
    if len(lengths) < k:
        return
    assert kk_allocate(lengths, NO_CAPACITY, k) == _slow_differencing(lengths, k)


@given(values, st.sampled_from(["ffd", "kk"]), st.integers(40, 120), st.integers(1, 5))
def test_every_value_in_one_group_none_above_capacity(
    lengths: list[int], algorithm: str, capacity: int, least: int
) -> None:
    if len(lengths) < least:
        return
    groups = allocator(algorithm)(lengths, capacity, least, 1)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    assert len(groups) >= least
    assert all(group and sum(lengths[i] for i in group) <= capacity for group in groups)


@given(values, st.integers(1, 5))
def test_without_capacity_group_sizes_differ_by_one_at_most(lengths: list[int], k: int) -> None:
    if len(lengths) < k:
        return
    sizes = [len(group) for group in ffd_allocate(lengths, NO_CAPACITY, k)]
    assert len(sizes) == k and max(sizes) - min(sizes) <= 1


@given(st.integers(1, 5), st.integers(1, 6), st.randoms())
def test_balanced_greedy_gives_equal_counts_in_descending_value(
    k: int, size: int, random: Any
) -> None:
    numbers = [random.randrange(50) for _ in range(k * size)]
    groups = balanced_greedy_partition(numbers, k)
    assert sorted(i for group in groups for i in group) == list(range(k * size))
    for group in groups:
        taken = [numbers[i] for i in group]
        assert len(group) == size and taken == sorted(taken, reverse=True)


def _as_values(groups: list[list[int]], lengths: list[int]) -> list[list[int]]:
    return [[lengths[i] for i in group] for group in groups]


def _sorted(groups: list[list[int]]) -> list[list[int]]:
    return sorted(sorted(group) for group in groups)


def _outcome(allocate: Any, *arguments: Any) -> Any:
    try:
        return allocate(*arguments)
    except RuntimeError as error:
        return str(error)


def _slow_ffd(lengths: list[int], capacity: int, least: int, divisor: int) -> list[list[int]]:
    """All groups looked at for every value."""
    least = max(least, divisor)
    while True:
        groups: list[list[int]] = []
        for i in np.argsort(-np.array(lengths)).tolist():
            sums = [sum(lengths[j] for j in group) for group in groups]
            fits = [g for g, total in enumerate(sums) if total + lengths[i] <= capacity]
            if len(groups) < least or not fits:
                groups.append([i])
            else:
                groups[min(fits, key=lambda g: (len(groups[g]), sums[g], g))].append(i)
        least += divisor - least % divisor
        if len(groups) % divisor == 0:
            return groups
        if len(lengths) < least:
            raise RuntimeError(
                f"Cannot allocate values {lengths} that satisfies capacity {capacity}, "
                f"min_groups {least} and n_groups_divisor {divisor}."
            )


def _slow_differencing(lengths: list[int], k: int) -> list[list[int]]:
    """All k sets written out, empty ones too; states searched through, widest spread first."""
    nothing: Sets = [(0, 0, [])] * (k - 1)
    states = [sorted([(v, 1, [(i, v)]), *nothing], reverse=True) for i, v in enumerate(lengths)]
    while len(states) > 1:
        states.sort(key=lambda sets: (sets[0][0] - sets[-1][0], sets[0]))
        first, second = states.pop(), states.pop()
        pairs = zip(first, reversed(second), strict=True)
        merged = [(a[0] + b[0], a[1] + b[1], a[2] + b[2]) for a, b in pairs]
        states.append(sorted(merged, reverse=True))
    return [[i for i, _ in members] for _, _, members in states[0]]
