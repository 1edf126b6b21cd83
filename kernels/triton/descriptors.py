"""Tensor descriptors: tiles of a tensor by the GPU's copy engine instead of by every thread.

Notable:
- a descriptor knows its tensor's strides and ends: rows past the last token and columns past the
  head dim arrive as zeros, with no bounds in the kernel
- where the engine cannot (before sm_90, odd strides) the kernels read by pointers
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FIRST_ARCH = 90
_ALIGNMENT = 16  # bytes of addresses and strides (CUDA driver API, cuTensorMapEncodeTiled)


def describable(*tensors: Tensor) -> bool:
    """Whether the copy engine can read all of these tensors, their last axis dense."""
    return all(
        x.data_ptr() % _ALIGNMENT == 0
        and x.stride(-1) == 1
        and all(
            stride > 0 and stride * x.element_size() % _ALIGNMENT == 0
            for stride, size in zip(x.stride()[:-1], x.shape[:-1], strict=True)
            if size > 1
        )
        for x in tensors
    )


def architecture(device: torch.device) -> int:
    """The compute capability, 90 for 9.0; 0 for Triton's interpreter (a CPU)."""
    if device.type != "cuda":
        return 0
    major, minor = torch.cuda.get_device_capability(device)
    return major * 10 + minor


def has_copy_engine(device: torch.device) -> bool:
    """Whether descriptors work on ``device``; Triton's interpreter plays them."""
    return device.type != "cuda" or architecture(device) >= FIRST_ARCH


def descriptor(x: Tensor, block: list[int]) -> Any:
    """A ``triton.tools.tensor_descriptor.TensorDescriptor`` of ``x`` for tiles of ``block``."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    # The stride of an axis of one entry is never taken, but must be one the engine accepts.
    dense = x.shape[-1] * 16
    strides = [s if n > 1 else dense for s, n in zip(x.stride(), x.shape, strict=True)]
    return TensorDescriptor(x, list(x.shape), [*strides[:-1], 1], block)
