"""The cost model finds the costs that made the steps, shows its error, and knows its limits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tuning.sweep.costmodel import FEATURES, BeyondMeasured, CostModel

COSTS = {
    "steps": 0.05,
    "micro_batches": 0.01,
    "padded_tokens": 1e-4,
    "visited_area": 1e-8,
    "nodes": 1e-5,
    "row_tokens": 0.0,
}


def features_at(cap: int) -> dict[str, float]:
    trees = -(-60_000 // cap) + 1
    return {
        "steps": 1.0,
        "micro_batches": float(trees),
        "padded_tokens": float(trees * cap),
        "visited_area": float(40_000_000 + 900 * cap + trees * 10_000),
        "nodes": 300.0 + 4 * trees,
        "row_tokens": 400_000.0,
    }


def seconds(features: Mapping[str, float]) -> float:
    return sum(COSTS[name] * features[name] for name in FEATURES)


def steps_at(*caps: int, noise: float = 0.0, seed: int = 0) -> list[tuple[dict[str, float], float]]:
    random = np.random.default_rng(seed)
    features = [features_at(cap) for cap in caps]
    return [(f, seconds(f) * (1 + noise * random.standard_normal())) for f in features]


CAPS = (2048, 3072, 4096, 8192, 16384, 32768)


def test_exact_steps_are_predicted_exactly_in_between() -> None:
    model = CostModel.fit(steps_at(*CAPS))
    for cap in (2560, 6144, 24576):
        found = model.predict(features_at(cap))
        assert found.seconds == pytest.approx(seconds(features_at(cap)), rel=0.01)
        assert found.low < found.seconds < found.high
    assert model.holdout_error is not None and model.holdout_error < 0.02


def test_costs_are_never_negative_and_the_holdout_error_is_that_of_the_noise() -> None:
    model = CostModel.fit(steps_at(*CAPS, noise=0.04, seed=3))
    assert min(model.costs.values()) >= 0
    assert model.holdout_error is not None
    assert 0.001 < model.holdout_error < 0.15


def test_each_holdout_error_comes_from_a_fit_without_that_step() -> None:
    steps = steps_at(*CAPS)
    features, right = steps[2]
    model = CostModel.fit([*steps[:2], (features, 3 * right), *steps[3:]])
    others = [error for i, error in enumerate(model.holdout_errors) if i != 2]
    assert model.holdout_errors[2] == pytest.approx(2 / 3, rel=0.1)
    assert len(others) == len(CAPS) - 1


def test_far_from_what_was_measured_is_refused_unless_marked() -> None:
    model = CostModel.fit(steps_at(*CAPS))
    far = {name: 3 * value for name, value in features_at(2048).items()}
    with pytest.raises(BeyondMeasured, match=r"lie beyond 1\.25 times"):
        model.predict(far)
    assert model.predict(far, beyond=True).seconds > 0
    assert model.outside(features_at(2048)) is None
    near = {name: 1.2 * value for name, value in features_at(2048).items()}
    assert model.outside(near) is None


def test_one_step_is_no_model_and_two_have_no_error() -> None:
    with pytest.raises(ValueError, match="two measured steps; there are 1"):
        CostModel.fit(steps_at(4096))
    two = CostModel.fit(steps_at(2048, 32768))
    assert two.holdout_error is None
    band = two.predict(features_at(4096))
    assert band.high / band.seconds >= 1.5, "without an error shown, the band is wide"
