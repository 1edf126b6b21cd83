"""Dice: seeded choices that come out the same on every Python version.

Notable:
- only ``Random.random`` is used: its stream is the one that Python promises to keep
- a ``Habit`` makes samples of one prompt alike: each choice has a favourite, taken most of the time
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Choices drawn from one seeded stream."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def below(self, stop: int) -> int:
        """An integer in ``0 … stop - 1``."""
        return int(self._random.random() * stop)

    def between(self, low: int, high: int) -> int:
        """An integer in ``low … high``, both included."""
        return low + self.below(high - low + 1)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def some(self, choices: Sequence[T], count: int) -> list[T]:
        """``count`` different elements in random order (all of them where there are fewer)."""
        left = list(choices)
        for i in range(min(count, len(left))):
            j = i + self.below(len(left) - i)
            left[i], left[j] = left[j], left[i]
        return left[:count]


class Habit:
    """What the tries at one task have in common.

    The favourite answer to each question is drawn once per task; a try takes it with probability
    ``loyalty`` and any answer otherwise, so tries part at different depths, as real samples do.
    """

    def __init__(self, task: Dice, loyalty: float) -> None:
        self._task = task
        self._loyalty = loyalty
        self._favourites: dict[tuple[str, int], int] = {}

    def choose(self, sample: Dice, question: str, choices: Sequence[T]) -> T:
        """One of ``choices``; a ``question`` with another number of choices is another question."""
        key = question, len(choices)
        if key not in self._favourites:
            self._favourites[key] = self._task.below(len(choices))
        if sample.chance(self._loyalty):
            return choices[self._favourites[key]]
        return sample.pick(choices)
