"""A step's time as a sum of costs, fitted to measured steps, with the error it has shown.

``t = a steps + b micro_batches + c padded_tokens + d visited_area + e nodes + f row_tokens``, no
cost below zero (non-negative least squares, as AReaL-DTA balances its ranks,
https://arxiv.org/abs/2602.00482). Notable:
- relative errors are minimised: a short step weighs as much as a long one
- the error shown is that of points left out of the fit, one at a time
- a step whose features lie beyond 1.25 times what was measured is refused, unless asked for
- peak memory is fitted beside it: a constant and so many bytes a token of the cap
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

Floats = npt.NDArray[np.float64]

FEATURES = ("steps", "micro_batches", "padded_tokens", "visited_area", "nodes", "row_tokens")
BEYOND = 1.25
_LEAST_BAND = 0.03


class BeyondMeasured(ValueError):
    """A prediction further out than measurements carry; the message names the feature."""


@dataclass(frozen=True)
class Prediction:
    """Seconds of a step, with a band as wide as the model's own error on points left out."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class CostModel:
    """Fitted costs.

    costs:          seconds per unit of each feature
    ranges:         least and most of each feature among the fitted steps
    points:         fitted steps
    holdout_errors: relative error of each step when it was left out; empty below 3 steps
    """

    costs: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    points: int
    holdout_errors: tuple[float, ...]

    @classmethod
    def fit(cls, steps: Sequence[tuple[Mapping[str, float], float]]) -> CostModel:
        """From features and seconds of at least two measured steps; raises ValueError below."""
        if len(steps) < 2:
            raise ValueError(f"a cost model needs two measured steps; there are {len(steps)}")
        x = np.array([[features[name] for name in FEATURES] for features, _ in steps])
        y = np.array([seconds for _, seconds in steps])
        errors: tuple[float, ...] = ()
        if len(steps) > 2:
            rows = np.arange(len(steps))
            left_out = [float(x[i] @ _solve(x[rows != i], y[rows != i])) for i in rows]
            errors = tuple((np.abs(np.array(left_out) - y) / y).tolist())
        return cls(
            costs=dict(zip(FEATURES, _solve(x, y).tolist(), strict=True)),
            ranges={
                name: (float(low), float(high))
                for name, low, high in zip(FEATURES, x.min(axis=0), x.max(axis=0), strict=True)
            },
            points=len(steps),
            holdout_errors=errors,
        )

    @property
    def holdout_error(self) -> float | None:
        """Median relative error on points left out; None where too few were measured."""
        return float(np.median(self.holdout_errors)) if self.holdout_errors else None

    def outside(self, features: Mapping[str, float]) -> str | None:
        """The first feature further than 1.25 times from all measured steps, or None."""
        for name, (low, high) in self.ranges.items():
            if not low / BEYOND <= features[name] <= high * BEYOND:
                return name
        return None

    def predict(self, features: Mapping[str, float], beyond: bool = False) -> Prediction:
        """Seconds of a step. Raises BeyondMeasured unless ``beyond`` says that it is marked."""
        far = None if beyond else self.outside(features)
        if far is not None:
            low, high = self.ranges[far]
            raise BeyondMeasured(
                f"{features[far]:,.0f} {far.replace('_', ' ')} lie beyond {BEYOND} times what was "
                f"measured ({low:,.0f} to {high:,.0f}); measure a step nearer to it."
            )
        seconds = sum(self.costs[name] * features[name] for name in FEATURES)
        worst = max(self.holdout_errors, default=0.5)
        band = max(worst, _LEAST_BAND)
        return Prediction(seconds, seconds * max(1 - band, 0.0), seconds * (1 + band))


def _solve(x: Floats, y: Floats) -> Floats:
    """Costs >= 0 that minimise the relative error; columns are scaled, so that none is lost."""
    rows = x / y[:, None]
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1.0
    costs: Floats = nnls(rows / scale, np.ones(len(y)))[0] / scale
    return costs


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
