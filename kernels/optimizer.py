"""AdamW over the model's own parameters, or over wider master copies of them."""

from __future__ import annotations

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
        self._masters = [nn.Parameter(p.detach().to(dtype)) for p in parameters]
        self._adamw = _torch_adamw(self._masters, lr)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self._parameters:
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.zero_()

    @torch.no_grad()
    def step(self) -> None:
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            grad = parameter.grad
            master.grad = None if grad is None else grad.to(master.dtype)
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            parameter.copy_(master)
