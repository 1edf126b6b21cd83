"""Numbers into groups: the three partitions AReaL uses for ranks, minibatches and micro-batches.

The algorithms of ``areal/utils/seqpack.py``, group for group and in the same order:

- ``ffd_allocate``: decreasing values, each into the group with the fewest members that has room
  (ties: the smallest sum). AReaL's docs call it first-fit decreasing; it is not
- ``kk_allocate``: Karmarkar-Karp largest differencing (Korf, "Multi-Way Number Partitioning",
  IJCAI 2009)
- ``balanced_greedy_partition``: decreasing values, each to the smallest sum among groups not full

Notable:
- AReaL sorts for ffd with numpy's default, unstable argsort, and so do we: equal values may change
  places from one CPU to another, which moves no group's sum or size
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Values = Sequence[int] | npt.NDArray[np.int64]
Groups = list[list[int]]

NO_CAPACITY = 10**12
"""What AReaL takes for max_tokens_per_mb where none is set."""


def allocator(algorithm: str) -> Callable[[Values, int, int | None, int], Groups]:
    """``ffd_allocate`` or ``kk_allocate`` by its name in ``MicroBatchSpec.packing_algorithm``."""
    known: dict[str, Callable[[Values, int, int | None, int], Groups]] = {
        "ffd": ffd_allocate,
        "kk": kk_allocate,
    }
    if algorithm not in known:
        raise ValueError(
            f"Unknown packing algorithm '{algorithm}'. Supported algorithms: {sorted(known)}"
        )
    return known[algorithm]


def ffd_allocate(
    values: Values, capacity: int, min_groups: int | None = 1, n_groups_divisor: int = 1
) -> Groups:
    """At least ``min_groups`` groups, a multiple of the divisor, no sum above ``capacity``.

    Raises RuntimeError, in AReaL's words, where a value exceeds the capacity, where there are
    fewer values than groups, and where no multiple of the divisor is reached.
    """
    wanted = max(min_groups or 0, n_groups_divisor)
    array = np.asarray(values, dtype=np.int64)
    if (array > capacity).any():
        raise RuntimeError(f"Values {values} is larger than capacity {capacity}")
    _refuse_too_few(len(array), wanted)
    order = np.argsort(-array).tolist()
    while True:
        groups = _fewest_members_first(array.tolist(), order, capacity, wanted)
        wanted += n_groups_divisor - wanted % n_groups_divisor
        if len(groups) % n_groups_divisor == 0:
            return groups
        if len(array) < wanted:
            raise RuntimeError(
                f"Cannot allocate values {values} that satisfies capacity {capacity}, "
                f"min_groups {wanted} and n_groups_divisor {n_groups_divisor}."
            )


def _fewest_members_first(
    values: list[int], order: list[int], capacity: int, min_groups: int
) -> Groups:
    groups: Groups = []
    # Groups by number of members, each heap by (sum, group): the first heap whose smallest sum
    # leaves room holds the group to take. ``sizes`` are the non-empty heaps, ascending.
    heaps: dict[int, list[tuple[int, int]]] = {}
    sizes: list[int] = []
    for index in order:
        room = capacity - values[index]
        size = None
        if len(groups) >= min_groups:
            size = next((s for s in sizes if heaps[s][0][0] <= room), None)
        if size is None:
            total, group, size = 0, len(groups), 0
            groups.append([])
        else:
            total, group = heapq.heappop(heaps[size])
            if not heaps[size]:
                sizes.remove(size)
        groups[group].append(index)
        heap = heaps.setdefault(size + 1, [])
        if not heap:
            insort(sizes, size + 1)
        heapq.heappush(heap, (total + values[index], group))
    return groups


def kk_allocate(
    values: Values, capacity: int, min_groups: int | None = 1, n_groups_divisor: int = 1
) -> Groups:
    """``max(min_groups, ceil(total / capacity))`` groups with sums as close as differencing gets.

    Rounded up to the divisor, but never more groups than values (which can break the divisor, as
    it does in AReaL). Falls back to ``ffd_allocate`` where a group exceeds the capacity. Raises
    RuntimeError, in AReaL's words, where a value exceeds it or there are too few values.
    """
    wanted = max(min_groups or 0, n_groups_divisor)
    numbers = np.asarray(values, dtype=np.int64).tolist()
    if any(v > capacity for v in numbers):
        raise RuntimeError(
            f"Some values exceed capacity {capacity}. "
            "Cannot pack a single item that is larger than the bin."
        )
    _refuse_too_few(len(numbers), wanted)
    k = max(wanted, -(-sum(numbers) // capacity))
    k = min(math.ceil(k / n_groups_divisor) * n_groups_divisor, len(numbers))
    groups = _largest_differencing(numbers, k)
    if any(sum(numbers[i] for i in group) > capacity for group in groups):
        return ffd_allocate(values, capacity, wanted, n_groups_divisor)
    return groups


class _Partition:
    """A partial partition into ``k`` sets; only sets with members are kept, largest first.

    A set is ``(sum, count, [(index, value), …])``, and sets compare in that order.
    """

    __slots__ = ("k", "sets")

    def __init__(self, index: int, value: int, k: int) -> None:
        self.k = k
        self.sets: list[tuple[int, int, list[tuple[int, int]]]] = [(value, 1, [(index, value)])]

    @property
    def spread(self) -> int:
        smallest = self.sets[-1][0] if len(self.sets) == self.k else 0
        return self.sets[0][0] - smallest

    def __lt__(self, other: _Partition) -> bool:
        """Widest spread first out of the heap, ties by the larger largest set."""
        if self.spread != other.spread:
            return self.spread > other.spread
        return self.sets[0] > other.sets[0]

    def absorb(self, other: _Partition) -> None:
        """Our largest set takes the other's smallest, and so on."""
        merged = list(self.sets)
        # Counted over all k sets, the other's set j meets our set k - 1 - j.
        for j in range(len(other.sets) - 1, -1, -1):
            mine, (total, count, members) = self.k - 1 - j, other.sets[j]
            if mine < len(self.sets):
                own_total, own_count, own_members = merged[mine]
                merged[mine] = (own_total + total, own_count + count, own_members + members)
            else:
                merged.append(other.sets[j])
        merged.sort(reverse=True)
        self.sets = merged


def _largest_differencing(values: list[int], k: int) -> Groups:
    heap = [_Partition(index, value, k) for index, value in enumerate(values)]
    heapq.heapify(heap)
    while len(heap) > 1:
        first = heapq.heappop(heap)
        first.absorb(heapq.heappop(heap))
        heapq.heappush(heap, first)
    return [[index for index, _ in members] for _, _, members in heap[0].sets]


def balanced_greedy_partition(values: Values, k: int) -> Groups:
    """``k`` groups of equal size; members of each in descending value (ties: as they came).

    Raises ValueError, in AReaL's words, where ``len(values)`` is below or no multiple of ``k``.
    """
    numbers = np.asarray(values, dtype=np.int64).tolist()
    if len(numbers) < k:
        raise ValueError(f"Number of items ({len(numbers)}) must be >= K ({k}).")
    if len(numbers) % k:
        raise ValueError("The length of nums must be divisible by K.")
    size = len(numbers) // k
    groups: Groups = [[] for _ in range(k)]
    not_full = [(0, group) for group in range(k)]
    for index in sorted(range(len(numbers)), key=lambda i: -numbers[i]):
        total, group = heapq.heappop(not_full)
        groups[group].append(index)
        if len(groups[group]) < size:
            heapq.heappush(not_full, (total + numbers[index], group))
    return groups


def _refuse_too_few(values: int, min_groups: int) -> None:
    if values < min_groups:
        raise RuntimeError(f"Number of values {values} is smaller than min_groups {min_groups}")
