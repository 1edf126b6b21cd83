"""The names that pages list are the presets that there are, and GPUs have their figures."""

from __future__ import annotations

import pytest

from kernels.model import PRESETS
from tuning.plan.gpus import GPUS, gpu_named
from tuning.plan.models import MODELS


def test_listed_models_are_the_presets() -> None:
    assert tuple(PRESETS) == MODELS


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_has_figures(name: str) -> None:
    gpu = gpu_named(name.upper())
    assert gpu is not None and min(gpu.bfloat16_tflops, gpu.bandwidth_gbs, gpu.memory_gib) > 0
    assert gpu_named("cpu") is None and gpu_named("cuda:0") is None
