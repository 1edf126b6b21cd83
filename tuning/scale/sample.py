"""A part of the batches for all of them: which ones, and how far the mean may be off.

Notable:
- the unit is a whole batch: packing is per batch, and rows or groups by themselves have no trees
- batches are stratified by their tokens, which are known of all of them before anything is packed,
  and more of the large ones are drawn: what a batch pays follows its tokens
- figures come in steps (a tree more or less): where a stratum's sample is all alike, another step
  may still stand among the batches that were not drawn, and the interval allows for it
- a sample bounds no maximum: the worst batch is the worst *seen*
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

CONFIDENCE = 0.95
LEAST_IN_A_STRATUM = 4
"""Drawn first of every stratum: its variance is estimated from them."""

_STRATA = 4
_HEDGE = 0.1
"""Spread that is allowed for beside that of the tokens, in parts of their mean."""


def strata_of(tokens: Int64s) -> Int64s:
    """int64 ``(batches,)``: each batch's stratum; equal sums of the square roots of the tokens."""
    strata = min(_STRATA, len(tokens) // (2 * LEAST_IN_A_STRATUM)) or 1
    order = np.argsort(tokens, kind="stable")
    below = np.cumsum(np.sqrt(tokens[order] + 1.0))
    stratum = np.empty(len(tokens), dtype=np.int64)
    stratum[order] = np.minimum(below / below[-1] * strata, strata - 0.5).astype(np.int64)
    return np.unique(stratum, return_inverse=True)[1].astype(np.int64)


def drawing_order(tokens: Int64s, stratum: Int64s, seed: int) -> Int64s:
    """int64 ``(batches,)``: every batch once, at random inside each stratum.

    Any beginning of it is a sample that takes from each stratum by its batches and their spread
    (Neyman's allocation, of the tokens), so that it can be cut where time ends.
    """
    random = np.random.default_rng(seed)
    turn = np.empty(len(stratum))
    for one in np.unique(stratum):
        inside = random.permutation(np.flatnonzero(stratum == one))
        own = tokens[inside]
        rate = len(inside) * (own.std() + _HEDGE * own.mean() + 1.0)
        place = np.arange(len(inside)) - LEAST_IN_A_STRATUM
        turn[inside] = np.where(place < 0, place, (place + 1) / rate)
    return np.lexsort((stratum, turn)).astype(np.int64)


@dataclass(frozen=True)
class Mean:
    """A mean over all batches with its 95 % interval; the interval is the mean where all count."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Floats, stratum: Int64s, sizes: Int64s, step: float) -> Mean:
        """The stratified mean of a sample.

        values: ``(sampled,)``; stratum: ``(sampled,)``, of each; sizes: ``(strata,)``, batches in
        each, sampled or not; step: what two values differ by at least

        Variance without replacement and degrees of freedom after Satterthwaite: Cochran, Sampling
        Techniques (1977), 5.8 and 5.16. NaN bounds where a stratum that was not counted whole has
        fewer than two batches.
        """
        weight = sizes / sizes.sum()
        drawn = np.bincount(stratum, minlength=len(sizes))
        total = np.bincount(stratum, values, len(sizes))
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = total / drawn
            squares = np.bincount(stratum, (values - mean[stratum]) ** 2, len(sizes))
            spread = np.maximum(squares / (drawn - 1), step**2 / (drawn + 1))
            parts = weight**2 * (1 - drawn / sizes) * spread / drawn
            parts[drawn == sizes] = 0.0
            value, variance = float(weight @ mean), float(parts.sum())
            freedom = variance**2 / np.sum(np.nan_to_num(parts**2 / (drawn - 1)))
        if variance == 0.0:
            return cls(value, value, value)
        reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * variance**0.5
        return cls(value, value - reach, value + reach)


def quantile_bounds(
    values: Floats, share: float, whole: bool
) -> tuple[float, float | None, float | None]:
    """A quantile of all batches and its 95 % interval, from the sample's order statistics.

    whole: the values are those of all batches. The interval is distribution-free (binomial); an
    end that the sample is too small for is None.
    """
    found = np.sort(values)
    at = float(np.quantile(found, share, method="inverted_cdf"))
    if whole:
        return at, at, at
    tail = (1 - CONFIDENCE) / 2
    low = int(stats.binom.ppf(tail, len(found), share)) - 1
    high = int(stats.binom.ppf(1 - tail, len(found), share))
    return (
        at,
        float(found[low]) if low >= 0 else None,
        float(found[high]) if high < len(found) else None,
    )
