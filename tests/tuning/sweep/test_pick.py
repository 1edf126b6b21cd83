"""The pick: fastest that fits, smaller within noise, and no trees where they do not pay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from packing.prefixes import PrefixOrder
from tests.tuning.sweep_cases import grpo_rows
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan
from tuning.sweep.pick import WORTH, advice_for, recommend
from tuning.sweep.result import Candidate

GIB = 2**30


def measured(cap: int, step_s: float, gib: float = 1.0, spread: float = 0.0) -> Candidate:
    return Candidate(
        cap,
        fits=True,
        step_s=step_s,
        step_kind="measured",
        low_s=step_s * (1 - spread),
        high_s=step_s * (1 + spread),
        repeats=3,
        memory_bytes=int(gib * GIB),
        memory_kind="measured",
    )


def estimated(cap: int, step_s: float) -> Candidate:
    return Candidate(cap, fits=True, step_s=step_s, step_kind="estimated")


def test_the_fastest_is_picked_and_compared_with_flat() -> None:
    pick = recommend(
        [measured(4096, 3.0), measured(8192, 2.0), measured(16384, 2.5)],
        {"flat": measured(8192, 5.0)},
        10 * GIB,
    )
    assert pick is not None
    assert (pick.mode, pick.max_tokens_per_mb, pick.speedup_vs_flat) == ("tree", 8192, 2.5)
    assert "2.00 s (measured), 2.50 times as fast as flat packing (measured)" in pick.reason
    assert pick.reason.count(". ") == 1, "two sentences"
    assert "16,384 takes 25% longer" in pick.runner_up


def test_within_noise_the_smaller_cap_wins_and_beyond_it_does_not() -> None:
    points = [measured(4096, 2.015, spread=0.02), measured(8192, 2.0, spread=0.02)]
    assert getattr(recommend(points, {}), "max_tokens_per_mb", None) == 4096
    points = [measured(4096, 2.04, spread=0.02), measured(8192, 2.0, spread=0.02)]
    assert getattr(recommend(points, {}), "max_tokens_per_mb", None) == 8192
    noisy = [measured(4096, 2.03, spread=0.5), measured(8192, 2.0, spread=0.5)]
    assert getattr(recommend(noisy, {}), "max_tokens_per_mb", None) == 8192, "at most 1 %"


def scenarios(cap: int, *seconds: float) -> Candidate:
    return replace(estimated(cap, seconds[0]), scenarios_s=seconds)


@pytest.mark.parametrize(
    ("small", "large", "picked"),
    [
        ((1.02, 1.1), (1.0, 1.0), 4096),  # 2 % is not worth a larger cap
        ((1.2, 1.3), (1.0, 1.0), 8192),  # slower whatever holds
        ((1.2, 0.9), (1.0, 0.95), 4096),  # perhaps slower, perhaps not
        ((2.4, 2.5), (2.0, 2.1), 8192),  # what all share does not matter
    ],
)
def test_estimates_that_may_be_equal_are_and_the_smaller_cap_is_picked(
    small: tuple[float, ...], large: tuple[float, ...], picked: int
) -> None:
    points = [scenarios(4096, *small), scenarios(8192, *large)]
    pick = recommend(points, {})
    assert pick is not None and pick.max_tokens_per_mb == picked
    slower = points[0].step_s != min(p.step_s or 0 for p in points)
    assert ("of their difference" in pick.reason) == (picked == 4096 and slower)
    assert "for all that is known" in pick.runner_up or picked == 8192


def test_what_does_not_fit_with_a_margin_is_left() -> None:
    points = [measured(4096, 3.0, gib=5), measured(8192, 2.0, gib=9.5)]
    pick = recommend(points, {}, 10 * GIB)
    assert pick is not None and pick.max_tokens_per_mb == 4096
    tight = recommend([measured(8192, 2.0, gib=9.5)], {}, 10 * GIB)
    assert tight is not None and "hardly any margin" in tight.reason


def test_an_estimate_is_picked_only_where_nothing_was_measured() -> None:
    points = [measured(4096, 3.0), estimated(8192, 1.0)]
    pick = recommend(points, {})
    assert pick is not None and (pick.max_tokens_per_mb, pick.step_kind) == (4096, "measured")
    pick = recommend(points[1:], {})
    assert pick is not None and pick.step_kind == "estimated" and "(estimated)" in pick.reason


@pytest.mark.parametrize(
    ("flat_s", "mode"), [(1.8, "flat"), (2.1, "flat"), (2.0 * WORTH + 0.1, "tree")]
)
def test_trees_that_lose_or_gain_little_are_advised_against(flat_s: float, mode: str) -> None:
    pick = recommend([measured(8192, 2.0)], {"flat": measured(4096, flat_s), "padded": None})
    assert pick is not None and pick.mode == mode
    if mode == "flat":
        assert pick.reason.startswith("Do not enable tree training")
        assert f"{flat_s:.2f} s" in pick.reason and "2.00 s" in pick.reason
        word = "1.11 times as long" if flat_s < 2 else "gain only 5%"
        assert word in pick.reason


def test_padding_that_beats_flat_and_trees_is_named() -> None:
    baselines = {"flat": measured(4096, 2.5), "padded": measured(4096, 1.5)}
    pick = recommend([measured(8192, 2.0)], baselines)
    assert pick is not None and pick.mode == "padded" and "padded rows takes" in pick.reason


def test_nothing_timed_is_no_pick() -> None:
    assert recommend([Candidate(4096, fits=False, message="does not fit")], {}) is None


def test_advice_counts_what_minibatches_and_order_cost() -> None:
    rows = grpo_rows(groups=12, samples=6)
    shuffled = rows.take(np.random.default_rng(5).permutation(len(rows)))
    bench = Batch(shuffled, PrefixOrder.of(shuffled))
    points = [measured(256, 1.0), Candidate(512, fits=False, message="does not fit")]
    found = advice_for(bench, TuningPlan(ppo_n_minibatches=4), points)
    assert any(s.startswith("ppo_n_minibatches 1 instead of 4 would pay") for s in found)
    assert any("gradient checkpointing" in s for s in found)
    plan, ours = TuningPlan(), TuningPlan(packer="prefix-aware")
    paid = [bench.simulation(p, 256).paid_tokens for p in (plan, ours)]
    told = [s for s in advice_for(bench, plan, points) if "Espalier's packer inside AReaL" in s]
    assert bool(told) == (paid[1] < 0.97 * paid[0])
    assert advice_for(bench, TuningPlan(), []) == []
