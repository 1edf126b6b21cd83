"""AdamW over the model's own parameters, or over wider master copies of them.

Notable:
- master copies take their step a few parameters at a time, no more at once than the largest
  parameter has: so many gradients exist twice, once in each dtype, and never all of them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import nn


class StepOptimizer(Protocol):
    """What a training step asks of an optimizer."""

    def zero_grad(self, set_to_none: bool = True) -> None: ...

    def step(self) -> object: ...


def adamw(model: nn.Module, lr: float = 1e-6, dtype: torch.dtype | None = None) -> StepOptimizer:
    """AdamW with its states in ``dtype`` (None: each parameter's own dtype).

    Where that is another dtype than the model's, master copies of the parameters are kept in it,
    as mixed-precision training does: 12 more bytes a parameter for fp32 over a bf16 model.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if dtype is None or all(p.dtype == dtype for p in parameters):
        return _torch_adamw(parameters, lr)
    return _MasterAdamW(parameters, lr, dtype)


def _torch_adamw(parameters: list[nn.Parameter], lr: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=lr, fused=all(p.is_cuda for p in parameters))


class _MasterAdamW:
    def __init__(self, parameters: list[nn.Parameter], lr: float, dtype: torch.dtype) -> None:
        self._parameters = parameters
        self._parts = []
        for part in _parts(parameters):
            masters = [nn.Parameter(p.detach().to(dtype)) for p in part]
            self._parts.append((part, masters, _torch_adamw(masters, lr)))

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self._parameters:
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.zero_()

    @torch.no_grad()
    def step(self) -> None:
        for parameters, masters, optimizer in self._parts:
            for parameter, master in zip(parameters, masters, strict=True):
                grad = parameter.grad
                master.grad = None if grad is None else grad.to(master.dtype)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            for parameter, master in zip(parameters, masters, strict=True):
                parameter.copy_(master)


def _parts(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Neighbours, in parts of at most as many elements as the largest parameter has."""
    most = max((p.numel() for p in parameters), default=0)
    part: list[nn.Parameter] = []
    held = 0
    for parameter in parameters:
        if part and held + parameter.numel() > most:
            yield part
            part, held = [], 0
        part.append(parameter)
        held += parameter.numel()
    if part:
        yield part
