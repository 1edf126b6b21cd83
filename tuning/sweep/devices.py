"""Devices to choose from, without importing torch."""

from __future__ import annotations

import subprocess
from functools import cache

from tuning.sweep.roofline import GPUS


@cache
def devices() -> tuple[str, ...]:
    """``cpu``, the CUDA devices of this machine, and GPUs that steps can be estimated for."""
    return ("cpu", *(f"cuda:{index}" for index in range(_cuda_count())), *GPUS)


def _cuda_count() -> int:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
