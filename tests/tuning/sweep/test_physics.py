"""The terms of an estimated step, each against a case worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.tuning.sweep_cases import grpo_rows
from tuning.measure.shares import share_of
from tuning.plan.batch import Batch
from tuning.plan.gpus import GPUS, Gpu, gpu_named
from tuning.plan.plan import TuningPlan
from tuning.sweep.physics import Physics, Shape, Work

# 100 TFLOP/s, 1,000 GB/s of memory, 100 GB/s between GPUs
GPU = Gpu("made up", 100.0, 10.0, 1_000.0, 80.0, 100.0)
# 10 layers of 10**8 parameters, a head of 1,000 tokens times 500 dimensions
SHAPE = Shape(10**9, 500_000, 10**9 + 500_000, 10, 8, 64, 500)
WORK = Work(tokens=1000, predicted=600, area=10**6, micro_batches=4, largest=250, trees=True)
P = SHAPE.parameters


def parts(work: Work = WORK, **plan: Any) -> dict[str, float]:
    asked = TuningPlan(**({"dtype": "bfloat16", "device": "h100-80", "step": "espalier"} | plan))
    return dict(Physics(GPU, SHAPE, asked).step(work).parts)


def test_shapes_count_the_parameters_of_the_real_models() -> None:
    # https://huggingface.co/Qwen/Qwen3-8B and Qwen3-0.6B: 8.2 B, and 0.6 B with a tied head
    assert Shape.of("qwen3-8b").parameters == pytest.approx(8.19e9, rel=0.01)
    assert Shape.of("qwen3-0.6b").parameters == pytest.approx(0.596e9, rel=0.01)


@pytest.mark.parametrize(("checkpointing", "passes"), [(False, 3), (True, 4)])
def test_layers_attention_and_optimizer_alone_on_one_gpu(checkpointing: bool, passes: int) -> None:
    found = parts(gradient_checkpointing=checkpointing)
    linear = 2 * passes * (10**9 * 1000 + 500_000 * 600) / (0.4 * 100e12)
    attention = 4 * (passes + 0.5) * 10 * 8 * 64 * 10**6 / (0.4 * 100e12)
    assert found["linear layers"] == pytest.approx(linear)
    assert found["attention"] == pytest.approx(attention)
    assert found["optimizer"] == pytest.approx(28 * P / 1e12)
    for name in ("masks", "loss", "tensor parallelism", "parameters and gradients between ranks"):
        assert found[name] == 0, name
    # 4 micro-batches, 25 kernels a layer and pass of 5 µs: 15 or 20 ms, less than the work
    assert found["launches"] == 0
    idle = parts(replace(WORK, tokens=1, predicted=1, area=0), gradient_checkpointing=checkpointing)
    assert idle["launches"] + idle["linear layers"] == pytest.approx(passes * 4 * 10 * 25 * 5e-6)


def test_fsdp_moves_the_model_three_times_in_every_micro_batch() -> None:
    # of 4 ranks each receives 3/4: twice 2 bytes a parameter, and 4 bytes a gradient
    traffic = 4 * 0.75 * P * 8 / 100e9
    work = parts()["linear layers"] + parts()["attention"]
    assert traffic > work
    found = parts(dp_size=4)
    name = "parameters and gradients between ranks"
    assert found[name] == pytest.approx(traffic - work)
    # where work hides it, the first of 10 layers is still waited for
    hidden = parts(replace(WORK, tokens=10**5), dp_size=4)
    assert hidden[name] == pytest.approx(traffic / 10)
    assert found["optimizer"] == pytest.approx(28 * P / 4 / 1e12)
    once = parts(dp_size=4, engine="megatron", step="areal")
    assert once[name] == pytest.approx(0.75 * P * 6 / 100e9)
    # InfiniBand has 50 GB/s, and half as many micro-batches halve what is moved
    assert parts(dp_size=4, network="ib")[name] == pytest.approx(2 * traffic - work)
    few = parts(replace(WORK, micro_batches=2), dp_size=4)
    assert few[name] == pytest.approx(max(traffic / 2 - work, traffic / 20))


def test_tensor_parallelism_reduces_activations_in_full_view() -> None:
    # 2 ranks: a ring moves 2 x 1/2 of 1,000 tokens x 500 x 2 bytes, 4 times a layer, or 6
    assert parts(tp_size=2)["tensor parallelism"] == pytest.approx(10 * 4 * 1000 * 500 * 2 / 100e9)
    again = parts(tp_size=2, gradient_checkpointing=True)
    assert again["tensor parallelism"] == pytest.approx(10 * 6 * 1000 * 500 * 2 / 100e9)
    assert parts(tp_size=2)["linear layers"] == pytest.approx(parts()["linear layers"] / 2)


def test_areal_pays_for_masks_cuts_of_the_logits_and_a_head_over_padding() -> None:
    cut = replace(WORK, cuts=24)
    ours, with_ours, areal = (
        parts(cut, step=step) for step in ("espalier", "areal-espalier", "areal")
    )
    assert ours == with_ours
    # a dense mask and ten times that, of 4 trees of 250 tokens
    assert areal["masks"] == pytest.approx(4 * 250**2 * 11 / 1e12)
    # all cuts but the first of each tree: 4 passes over a gradient of 250 x 1,000 x 2 bytes
    assert areal["loss"] == pytest.approx(20 * 4 * 250 * 1000 * 2 / 1e12)
    head = 6 * 500_000 * 400 / (0.4 * 100e12)
    assert areal["linear layers"] == pytest.approx(ours["linear layers"] + head)
    megatron = parts(cut, step="areal", engine="megatron", gradient_checkpointing=True)
    assert megatron["masks"] == pytest.approx(4 * 250**2 * (1 + 10 * 20) / 1e12)
    flat = parts(replace(cut, trees=False, cuts=0), step="areal")
    assert flat["masks"] == flat["loss"] == 0


def test_the_band_is_wider_than_what_differs_between_caps() -> None:
    plan = TuningPlan(dtype="bfloat16", device="h100-80", dp_size=4, step="areal")
    found = Physics(GPU, SHAPE, plan).step(replace(WORK, cuts=24))
    assert found.scenarios[0] == found.middle == pytest.approx(sum(found.parts.values()))
    assert found.low < min(found.scenarios) <= found.middle <= max(found.scenarios) < found.high


def test_a_measured_efficiency_of_attention_takes_the_place_of_the_band() -> None:
    plan = TuningPlan(dtype="bfloat16", device="h100-80")
    known, guessed = (Physics(GPU, SHAPE, plan, one).step(WORK) for one in (0.5, None))
    attention = 4 * 3.5 * 10 * 8 * 64 * 10**6 / 100e12
    assert known.parts["attention"] == pytest.approx(attention / 0.5)
    assert guessed.parts["attention"] == pytest.approx(attention / 0.4)
    assert max(known.scenarios) - min(known.scenarios) < max(guessed.scenarios) - min(
        guessed.scenarios
    )


def test_work_is_counted_of_the_slowest_rank() -> None:
    rows, plan = grpo_rows(groups=6, samples=4), TuningPlan(dp_size=2, max_tokens_per_mb=256)
    share = share_of(rows, Batch.of(rows, plan).simulation(plan), "tree")
    work = Work.of(share)
    assert work.tokens == 256 * work.micro_batches == sum(b.padded_tokens for b in share.batches)
    assert work.largest == 256 and work.trees and 0 < work.predicted < work.tokens
    assert work.cuts == 2 * share.features["nodes"]
    flat = Work.of(share_of(rows, Batch.of(rows, plan).simulation(plan), "flat"))
    assert not flat.trees and flat.cuts == 0 and flat.predicted <= flat.tokens


@pytest.mark.parametrize("name", GPUS)
def test_a_network_by_name_or_what_the_gpu_is_sold_with(name: str) -> None:
    gpu = gpu_named(name)
    assert gpu is not None
    assert gpu.network_gbs("auto") == (gpu.nvlink_gbs or gpu.network_gbs("pcie"))
    assert gpu.network_gbs("ib") == 50 and gpu.network_gbs("nvlink") >= 300
