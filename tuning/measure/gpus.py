"""The GPUs that this process may use, by the names that its children take."""

from __future__ import annotations

import os

import torch


def visible_gpus() -> list[str]:
    """One name a device, in the order of ``cuda:0``, ``cuda:1`` …, for ``CUDA_VISIBLE_DEVICES``."""
    count = torch.cuda.device_count()
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if len(named) >= count else [str(index) for index in range(count)]
