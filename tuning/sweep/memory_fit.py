"""Peak memory against the cap, from measured peaks: a constant and so many bytes a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MemoryFit:
    """``base + per_token x cap`` bytes; per_token is None where nothing was measured."""

    base: float
    per_token: float | None
    budget: int

    @classmethod
    def of(cls, peaks: Mapping[int, int], budget: int) -> MemoryFit:
        """From peak bytes by cap. One peak is taken as if all of it grew with the cap."""
        if not peaks:
            return cls(0.0, None, budget)
        caps, bytes_ = np.array(list(peaks)), np.array(list(peaks.values()), dtype=np.float64)
        if len(peaks) == 1:
            return cls(0.0, float(bytes_[0] / caps[0]), budget)
        slope, base = np.polyfit(caps, bytes_, 1)
        if slope < 0:  # flat within noise
            return cls(float(bytes_.mean()), 0.0, budget)
        return cls(float(base), float(slope), budget)

    def predict(self, cap: int) -> int | None:
        """Peak bytes at a cap."""
        if self.per_token is None:
            return None
        return max(round(self.base + self.per_token * cap), 0)

    def fits(self, cap: int) -> bool | None:
        """Whether the budget holds it; None where nothing is known."""
        predicted = self.predict(cap)
        return None if predicted is None else predicted <= self.budget

    @property
    def largest(self) -> int | None:
        """The largest cap that fits; None where nothing is known or nothing grows with it."""
        if not self.per_token:
            return None
        return max(int((self.budget - self.base) / self.per_token), 0)
