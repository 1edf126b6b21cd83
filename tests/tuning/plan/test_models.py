"""The names that pages list are the presets that there are, and GPUs have their figures."""

from __future__ import annotations

import pytest

from kernels.model import PRESETS
from tuning.plan.gpus import GPUS, gpu_named
from tuning.plan.models import MODELS
from tuning.plan.plan import TuningPlan
from tuning.sweep.roofline import Shape, step_seconds


def test_listed_models_are_the_presets() -> None:
    assert tuple(PRESETS) == MODELS


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_has_figures(name: str) -> None:
    gpu = gpu_named(name.upper())
    assert gpu is not None and min(gpu.bfloat16_tflops, gpu.bandwidth_gbs, gpu.memory_gib) > 0
    assert gpu_named("cpu") is None and gpu_named("cuda:0") is None


def test_shapes_count_the_parameters_of_the_real_models() -> None:
    # https://huggingface.co/Qwen/Qwen3-8B and Qwen3-0.6B: 8.2 B, and 0.6 B with a tied head
    assert Shape.of("qwen3-8b").parameters == pytest.approx(8.19e9, rel=0.01)
    assert Shape.of("qwen3-0.6b").parameters == pytest.approx(0.596e9, rel=0.01)


def test_a_step_is_its_flops_over_the_peak_and_the_optimizer_over_the_bandwidth() -> None:
    gpu = gpu_named("gpu:100:1000:80")
    assert gpu is not None
    shape = Shape(10**9, 10**8, 11 * 10**8, 10, 8, 64)
    plan = TuningPlan(dtype="bfloat16")
    low, middle, high = step_seconds(gpu, shape, plan, padded=1000, predicted=500, area=10**6)
    flops = 6 * (10**9 * 1000 + 10**8 * 500) + 3.5 * 4 * 10 * 8 * 64 * 10**6
    optimizer = 28 * 11 * 10**8 / 1e12
    assert middle == pytest.approx(flops / (0.4 * 100e12) + optimizer)
    assert low < middle < high
    recomputed = step_seconds(
        gpu, shape, TuningPlan(dtype="bfloat16", gradient_checkpointing=True), 1000, 500, 10**6
    )
    assert recomputed[1] > middle
