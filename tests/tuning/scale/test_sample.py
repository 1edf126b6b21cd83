"""A sample of batches: its interval covers the mean as often as it says, and is narrow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuning.scale import sample

CAP = 2048
N_BATCHES = 400


def paid(tokens: np.ndarray, share: np.ndarray) -> np.ndarray:
    """What batches pay: a share of their tokens, in whole trees."""
    return np.ceil(tokens * share / CAP) * CAP


def kind(name: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(11)
    if name == "alike":
        tokens = random.integers(80_000, 120_000, N_BATCHES)
        return tokens, paid(tokens, random.uniform(0.38, 0.42, N_BATCHES))
    if name == "long tail":
        tokens = np.exp(random.normal(9, 0.8, N_BATCHES)).astype(np.int64)
        return tokens, paid(tokens, random.uniform(0.2, 0.6, N_BATCHES))
    tokens = np.where(random.random(N_BATCHES) < 0.05, 80_000, 6_000)
    tokens = tokens + random.integers(0, 2_000, N_BATCHES)
    return tokens, paid(tokens, random.uniform(0.2, 0.9, N_BATCHES))


@pytest.mark.parametrize("name", ["alike", "long tail", "few large ones"])
def test_the_interval_covers_the_mean_in_95_of_100(name: str) -> None:
    tokens, values = kind(name)
    stratum = sample.strata_of(tokens)
    sizes = np.bincount(stratum)
    n, covered, widths, plain = 80, 0, [], []
    for seed in range(1000):
        drawn = sample.drawing_order(tokens, stratum, seed)[:n]
        mean = sample.Mean.of(values[drawn], stratum[drawn], sizes, CAP)
        covered += mean.low <= values.mean() <= mean.high
        widths.append(mean.high - mean.low)
        at_random = np.random.default_rng(seed).permutation(N_BATCHES)[:n]
        plain.append(2 * 1.96 * values[at_random].std() * ((1 / n - 1 / N_BATCHES) ** 0.5))
    assert 930 <= covered <= 975
    assert np.mean(widths) < np.mean(plain), "stratifying pays"
    assert np.mean(widths) < 2 * best_width(values, stratum, n)


def best_width(values: np.ndarray, stratum: np.ndarray, n: int) -> float:
    """The width if the true spread in each stratum were known: Neyman's allocation, capped."""
    sizes = np.bincount(stratum)
    spread = np.array([values[stratum == h].std(ddof=1) for h in range(len(sizes))])
    take = np.minimum(n * sizes * spread / (sizes * spread).sum(), sizes)
    share = sizes / sizes.sum()
    variance = (share**2 * (1 - take / sizes) * spread**2 / take).sum()
    return float(2 * 1.96 * variance**0.5)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=90), st.integers(0, 5))
def test_every_batch_is_drawn_once_and_all_of_them_are_the_mean(
    tokens: list[int], seed: int
) -> None:
    of = np.array(tokens)
    stratum = sample.strata_of(of)
    order = sample.drawing_order(of, stratum, seed)
    assert sorted(order) == list(range(len(of)))
    first = order[: sample.LEAST_IN_A_STRATUM * (int(stratum.max()) + 1)]
    least = np.minimum(np.bincount(stratum), sample.LEAST_IN_A_STRATUM)
    assert (np.bincount(stratum[first], minlength=len(least)) >= least).all()
    mean = sample.Mean.of(of[order].astype(float), stratum[order], np.bincount(stratum), 1.0)
    assert mean.low == mean.high == pytest.approx(of.mean())


def test_quantiles_of_a_sample_hold_those_of_all_batches() -> None:
    random = np.random.default_rng(5)
    values = random.lognormal(size=N_BATCHES)
    for share in (0.5, 0.95):
        true = np.quantile(values, share, method="inverted_cdf")
        inside = 0
        for _ in range(500):
            drawn = random.choice(values, 120)
            _, low, high = sample.quantile_bounds(drawn, share, False)
            assert low is not None and high is not None
            inside += int(low <= true <= high)
        assert inside >= 0.93 * 500
    assert sample.quantile_bounds(values, 1.0, True)[0] == values.max()
