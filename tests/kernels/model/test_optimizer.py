"""AdamW over master copies: the same steps as all at once, and never all gradients twice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernels.memory.live import PERSISTENT, LiveBytes
from kernels.memory.trace import Device, TracedModel, TraceOptions, trace_step
from kernels.model import adamw
from kernels.model.optimizer import _MasterAdamW

SHAPES = ((40, 10), (10,), (10, 10), (300,), (20, 20), (5,))


def model_of(dtype: torch.dtype = torch.bfloat16) -> nn.ParameterList:
    torch.manual_seed(0)
    return nn.ParameterList([nn.Parameter(torch.randn(s).to(dtype)) for s in SHAPES])


def set_gradients(model: nn.ParameterList, seed: int) -> None:
    torch.manual_seed(seed)
    for number, parameter in enumerate(model):
        parameter.grad = None if number == seed else torch.randn_like(parameter)


def test_master_copies_take_the_steps_of_adamw_over_all_of_them() -> None:
    model = model_of()
    optimizer = adamw(model, lr=0.01, dtype=torch.float32)
    masters = [nn.Parameter(p.detach().float()) for p in model]
    plain = torch.optim.AdamW(masters, lr=0.01)
    for seed in range(4):  # at each step another parameter has no gradient
        set_gradients(model, seed)
        for master, parameter in zip(masters, model, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
        plain.step()
        optimizer.step()
        for master, parameter in zip(masters, model, strict=True):
            assert torch.equal(parameter.detach(), master.detach().bfloat16())
    assert model[5].grad is not None, "the model's own gradients stay until they are cleared"
    optimizer.zero_grad()
    assert all(p.grad is None for p in model)


def test_only_a_part_of_the_gradients_exists_twice() -> None:
    model = model_of()
    optimizer = _MasterAdamW(list(model), lr=1e-3, dtype=torch.float32)
    set_gradients(model, 6)
    optimizer.step()  # makes the states
    set_gradients(model, 7)
    live = LiveBytes()
    live.label([*model, *(p.grad for p in model if p.grad is not None)], "parameters")
    for _, masters, adam in optimizer._parts:
        live.label(masters, "parameters")
        live.label([x for state in adam.state.values() for x in state.values()], "optimizer")
    live.phase = "step"
    with live:
        optimizer.step()
    peak = live.take_peaks()["step"].passing
    made = sum(peak.values()) - sum(peak[kind] for kind in PERSISTENT)
    largest = max(torch.Size(s).numel() for s in SHAPES)
    everything = sum(torch.Size(s).numel() for s in SHAPES)
    # One part of fp32 gradients, and what AdamW makes for one of them: at most three times that.
    assert 4 * largest <= made <= 4 * 4 * largest
    assert len(optimizer._parts) > 2
    assert 4 * largest < 4 * everything / 2


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_estimate_counts_one_part_of_them(device: Device) -> None:
    """Of ``tiny`` the embedding is the largest parameter; fused AdamW makes nothing besides."""
    options = TraceOptions(
        "bfloat16", "float32", False, 1024, device, "espalier", "fsdp", whole=True
    )
    traced = trace_step(TracedModel.of("tiny"), 2, 8, options).optimizer
    assert traced is not None
    embedding, everything = 1024 * 64, traced.whole["parameters"] // 2
    assert everything > 1.5 * embedding
    spare = 4 * embedding * (3 if device == "cpu" else 0)
    assert 4 * embedding <= traced.whole["temporaries"] <= 4 * embedding + spare + 2**14
