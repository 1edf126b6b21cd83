"""What longer rollouts do to a pick, and how estimates of one machine are made narrower."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tests.tuning.sweep_cases import grpo_rows
from tuning.plan.batch import Batch
from tuning.plan.gpus import gpu_named
from tuning.plan.plan import TuningPlan
from tuning.sweep.headroom import FACTORS, longest_possible, stretched, with_headroom
from tuning.sweep.result import Pick, SweepResult
from tuning.sweep.roofline import calibrated, estimate_sweep, what_if

PLAN = TuningPlan(dtype="bfloat16", device="h100-80", model="qwen3-0.6b", caps=(2048, 4096))
PICK = Pick("tree", 256, "because", None, 1.0, "estimated")


def batch_of(rows: Rows) -> Batch:
    return Batch(rows, PrefixOrder.of(rows))


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=6),
    st.sampled_from((1.0, *FACTORS)),
)
@settings(max_examples=50)
def test_stretched_rows_share_as_much_as_before(rows: list[list[int]], factor: float) -> None:
    before = Rows.from_lists(rows)
    after = stretched(before, factor)
    assert after.lengths.tolist() == [int(len(row) * factor) for row in rows]
    cut = [after.tokens[a:b].tolist() for a, b in pairwise(after.offsets.tolist())]
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            shared = next(
                (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)),
            )
            now = min(int(-(-shared * factor // 1)), len(cut[i]), len(cut[j]))
            assert cut[i][:now] == cut[j][:now]
    if factor == 1.0:
        assert cut == rows


def test_the_pick_says_how_long_rows_may_get_and_what_longer_ones_cost() -> None:
    rows = grpo_rows()
    found = with_headroom(PICK, batch_of(rows), TuningPlan(), lambda cap: cap * 1000, 300_000)
    assert found is not None and found.holds_up_to == 256
    assert f"up to 256 tokens, {256 / rows.longest:.2f} times the longest" in found.runner_up
    assert [one.factor for one in found.headroom] == list(FACTORS)
    for one in found.headroom:
        assert one.longest_row == int(rows.longest * one.factor) <= one.max_tokens_per_mb
        assert one.memory_bytes == one.max_tokens_per_mb * 1000
        assert one.fits is (one.max_tokens_per_mb * 1000 <= 300_000)
        longer = batch_of(stretched(rows, one.factor))
        counted = longer.simulation(TuningPlan(), one.max_tokens_per_mb).padded_token_ratio
        assert one.padded_token_ratio == counted
    flat = replace(PICK, mode="flat")
    assert with_headroom(flat, batch_of(rows), TuningPlan(), lambda cap: None, 1) is flat


def test_max_new_tokens_bounds_a_row_where_its_answer_is_known() -> None:
    rows = Rows.from_lists([[1, 2, 3, 4, 5], [1, 2, 6]], [0, 0])
    assert longest_possible(rows, TuningPlan(max_new_tokens=100)) is None
    mask = np.array([0, 0, 1, 1, 1, 0, 0, 1], dtype=np.uint8)
    rows = replace(rows, loss_mask=mask)
    assert longest_possible(rows, TuningPlan(max_new_tokens=100)) == 102
    assert longest_possible(rows, TuningPlan()) is None
    plan = TuningPlan(max_new_tokens=300)
    found = with_headroom(PICK, batch_of(rows), plan, lambda cap: None, 1)
    assert found is not None and "reach 302, at which AReaL would stop" in found.runner_up


@pytest.fixture(scope="module")
def swept() -> SweepResult:
    gpu = gpu_named("h100-80")
    assert gpu is not None
    rows = grpo_rows(groups=8, samples=6)
    plan = replace(PLAN, caps=(2048, 131072), gradient_checkpointing=True)
    return estimate_sweep(rows, plan, gpu, rows.longest)


def test_what_fits_and_every_figure_are_of_the_chosen_step(swept: SweepResult) -> None:
    small, large = swept.points
    assert (small.fits, large.fits) == (True, False) and large.step_s is None
    assert "dense mask and create_block_mask" in large.message
    assert {p.step_of for p in swept.points} == {"areal"} and swept.step_of == "areal"
    assert swept.pick is not None and "AReaL as it is" in swept.pick.reason
    assert "AReaL as it is" in swept.memory_note
    assert SweepResult.from_json(swept.to_json()) == swept


def test_with_espalier_inside_the_same_cap_fits() -> None:
    gpu = gpu_named("h100-80")
    assert gpu is not None
    rows = grpo_rows(groups=8, samples=6)
    plan = replace(
        PLAN, step="areal-espalier", caps=(131072,), gradient_checkpointing=True, dp_size=2
    )
    (large,) = estimate_sweep(rows, plan, gpu, rows.longest).points
    assert large.fits is True and large.step_of == "areal-espalier"


def test_one_timed_step_leaves_only_what_differs_between_caps() -> None:
    gpu = gpu_named("h100-80")
    assert gpu is not None
    rows = grpo_rows(groups=8, samples=6)
    before = estimate_sweep(rows, PLAN, gpu, rows.longest)
    after, flat, said = calibrated(before.points, before.baselines["flat"], 2048, 7.5)
    assert flat is not None and flat.step_s
    assert (after[0].step_s, after[0].low_s, after[0].high_s) == pytest.approx((7.5,) * 3)
    for old, new in zip(before.points, after, strict=True):
        assert old.step_s and old.low_s and old.high_s and new.step_s and new.low_s and new.high_s
        scale = 7.5 / (before.points[0].step_s or 0)
        assert new.step_s == pytest.approx(old.step_s * scale)
        assert new.low_s <= new.step_s * (1 + 1e-9) and new.step_s <= new.high_s * (1 + 1e-9)
        assert (new.high_s - new.low_s) / new.step_s < (old.high_s - old.low_s) / old.step_s
    assert "the widest band goes from" in said
    timed = estimate_sweep(rows, PLAN, gpu, rows.longest, timed=(2048, 7.5))
    assert timed.points[1].step_s == after[1].step_s and said in timed.notes
    with pytest.raises(ValueError, match="no step is estimated at 512"):
        calibrated(before.points, None, 512, 7.5)


def test_a_measured_efficiency_makes_attention_as_fast_as_it_was() -> None:
    gpu = gpu_named("h100-80")
    assert gpu is not None
    rows = grpo_rows()
    slow, usual, other = (
        estimate_sweep(rows, PLAN, gpu, rows.longest, efficiencies=found).points[0].scenarios_s
        for found in ({"flex": 0.01}, {}, {"triton": 0.01})
    )
    assert slow[0] > usual[0] == other[0], "AReaL as it is attends by FlexAttention"


def test_a_grid_has_every_model_on_every_gpu() -> None:
    rows = grpo_rows()
    grid = what_if(rows, PLAN, ["qwen3-0.6b", "qwen3-1.7b"], ["a100-80", "h100-80"], rows.longest)
    assert [(m, g) for m, g, _ in grid] == [
        (m, g) for m in ("qwen3-0.6b", "qwen3-1.7b") for g in ("a100-80", "h100-80")
    ]
    steps = {(m, g): found.points[0].step_s or 0.0 for m, g, found in grid}
    assert steps["qwen3-1.7b", "a100-80"] > steps["qwen3-1.7b", "h100-80"]
    assert steps["qwen3-1.7b", "h100-80"] > steps["qwen3-0.6b", "h100-80"]
    with pytest.raises(ValueError, match="cpu is no GPU"):
        what_if(rows, PLAN, ["tiny"], ["cpu"])
