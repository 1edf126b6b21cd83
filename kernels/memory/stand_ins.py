"""What attention and AReaL's loss make and keep, without computing it: for fake tensors.

Notable:
- on a GPU the Triton kernels keep q, k, v, the output and one fp32 log-sum-exp a query; the
  backward adds dQ, dK, dV and one fp32 a query (their sums over split key tiles, at most some
  70 MB, are left out)
- on a CPU cascade also makes fp32 sums and a call's parts; they are taken as those of one call of
  all tokens, the largest there is: a row without branches. Bushy trees need less
- AReaL's head holds all logits, and in the backward the gradient summed so far beside that of one
  slice, each as large as the logits (measured on AReaL 1.0.4; its cost grows with slices)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface

from kernels.memory.live import LiveBytes

ATTENTION = "espalier_memory"
_AREAL_CHUNK = 1024  # tokens of one slice in AReaL's loss

BLOCK_MASK_TRANSIENT = 10
"""Bytes a (query, key) pair of ``create_block_mask`` beside the dense mask, measured on a CPU."""


class StandIn:
    """How a layer attends. live: told what is made; block_masks: each layer makes its own."""

    def __init__(self, live: LiveBytes, *, cpu: bool, areal: bool, block_masks: bool) -> None:
        self.live, self.cpu, self.areal, self.block_masks = live, cpu, areal, block_masks


def block_mask_transient(n_tokens: int) -> None:
    """What ``create_block_mask`` needs for a moment."""
    torch.empty(BLOCK_MASK_TRANSIENT, n_tokens, n_tokens, dtype=torch.uint8)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    espalier_memory: StandIn,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention call: q ``(1, Hq, N, D)``, k, v ``(1, Hkv, N, D)``."""
    with espalier_memory.live.making("activations"):  # also where a checkpoint is recomputed
        if espalier_memory.block_masks:
            with espalier_memory.live.making("masks"):
                block_mask_transient(query.shape[2])
        if espalier_memory.areal:
            query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        function = _CascadeStandIn if espalier_memory.cpu else _Kernels
        out: Tensor = function.apply(query, key, value)  # type: ignore[no-untyped-call]
        return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _attend)


class _Kernels(torch.autograd.Function):
    """Our Triton kernels, and compiled FlexAttention."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.empty(q.shape, dtype=q.dtype)
        lse = torch.empty(q.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, k, _, out, lse = ctx.saved_tensors
        dq, delta = torch.empty_like(out), torch.empty_like(lse)
        dk = torch.empty(k.shape, dtype=k.dtype)
        del delta
        return dq, dk, torch.empty_like(dk)


class _CascadeStandIn(torch.autograd.Function):
    """``cascade.py`` with one flash call of all tokens."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        out = torch.empty(q.shape, dtype=wide)
        lse = torch.empty(q.shape[:3], dtype=wide)
        part, part_lse = torch.empty(q.shape, dtype=q.dtype), torch.empty_like(lse)
        del part, part_lse
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, _, lse = ctx.saved_tensors
        dq = torch.empty(q.shape, dtype=lse.dtype)
        dk, dv = (torch.empty(x.shape, dtype=lse.dtype) for x in (k, v))
        parts = [torch.empty(q.shape, dtype=q.dtype) for _ in range(3)]  # a key head per query head
        del parts
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


class ArealLogprobs(torch.autograd.Function):
    """Log-probabilities of all tokens but one from all logits ``(N, V)``."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        chunk = torch.empty(min(_AREAL_CHUNK, len(logits)), logits.shape[1])
        del chunk
        ctx.save_for_backward(logits)
        return torch.empty(len(logits) - 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dlogp: Tensor) -> Tensor:
        (logits,) = ctx.saved_tensors
        chunk = torch.empty(min(_AREAL_CHUNK, len(logits)), logits.shape[1])
        so_far, slice_gradient = torch.empty_like(logits), torch.empty_like(logits)
        del chunk, slice_gradient
        return so_far
