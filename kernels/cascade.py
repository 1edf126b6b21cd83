"""Tree attention from flash attention calls: the fast path on a CPU, a peer on a GPU.

Notable:
- ``CascadePlan`` cuts the mask into causal, full and small masked calls; their results merge by
  log-sum-exp as they come, so memory is that of the inputs
- the backward pass gives the merged output and log-sum-exp to the same flash operators: with them,
  a call's gradients are exactly its share of the whole (FlashAttention-2, arXiv 2307.08691, eq. 4)
- grouped-query heads are never copied: a key head is repeated by a stride of 0
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernels._cascade_plan import Call, CascadePlan, Index, Kind
from kernels.mask import TreeMask

_aten = torch.ops.aten
_plans: WeakKeyDictionary[TreeMask, CascadePlan] = WeakKeyDictionary()

_CPU_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_CUDA_DTYPES = (torch.bfloat16, torch.float16)


def cascade_unavailable(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """Why ``cascade_attention`` cannot run on this device with these inputs, or None."""
    name = str(dtype).removeprefix("torch.")
    if device.type == "cpu":
        if dtype not in _CPU_DTYPES:
            return f"cascade runs in float32, float64, bfloat16 or float16 on a CPU, not {name}"
        return None
    if device.type != "cuda":
        return f"cascade runs on a CPU or an NVIDIA GPU, not on {device.type}"
    if dtype not in _CUDA_DTYPES:
        return f"flash attention on a GPU runs in bfloat16 or float16, not {name}"
    if head_dim % 8 or head_dim > 256:
        return (
            "flash attention on a GPU needs a head dim that is a multiple of 8 up to 256, "
            f"not {head_dim}"
        )
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        return f"flash attention needs compute capability 8.0 or newer, not {major}.{minor}"
    return None


def cascade_attention(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float) -> Tensor:
    """Attention of packed tokens to their ancestors and themselves; differentiable once.

    q ``(B, Hq, N, D)``, k and v ``(B, Hkv, N, D)`` with Hq a multiple of Hkv, N tokens of ``mask``.
    Returns ``(B, Hq, N, D)`` in the dtype of ``q``; rows of padding are 0.
    """
    out: Tensor = _Cascade.apply(q, k, v, mask, scale)  # type: ignore[no-untyped-call]
    return out


class _Cascade(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float) -> Tensor:
        groups = k.shape[0] * k.shape[1]
        queries, keys, values = _grouped(q, groups), _grouped(k, groups), _grouped(v, groups)
        wide = _wide(q.dtype)
        out = torch.zeros(queries.shape, dtype=wide, device=q.device)
        lse = torch.full(queries.shape[:3], -torch.inf, dtype=wide, device=q.device)
        for call in _plan(mask).calls():
            at = call.queries
            part, part_lse = _forward(
                call, queries[:, :, at], _take(keys, call.keys), _take(values, call.keys),
                mask, scale,
            )  # fmt: skip
            if call.kind is Kind.FULL:
                # What is there and the part weigh in as exp(lse) : exp(part_lse).
                so_far = lse[:, :, at]
                weight = torch.sigmoid(part_lse - so_far).unsqueeze(-1)
                out[:, :, at].lerp_(part.to(wide), weight)
                torch.logaddexp(so_far, part_lse, out=so_far)
            else:  # the first call of these queries
                out[:, :, at] = part
                lse[:, :, at] = part_lse
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.mask, ctx.scale = mask, scale
        return out.view(q.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, lse = ctx.saved_tensors
        mask, scale = ctx.mask, ctx.scale
        groups = k.shape[0] * k.shape[1]
        queries, keys, values = _grouped(q, groups), _grouped(k, groups), _grouped(v, groups)
        grads = _grouped(dout, groups)
        wide = _wide(q.dtype)
        dq = torch.zeros(queries.shape, dtype=wide, device=q.device)
        dk = torch.zeros(keys.shape, dtype=wide, device=q.device)
        dv = torch.zeros(values.shape, dtype=wide, device=q.device)
        for call in _plan(mask).calls():
            at = call.queries
            part_dq, part_dk, part_dv = _backward(
                call, grads[:, :, at], queries[:, :, at], _take(keys, call.keys),
                _take(values, call.keys), out[:, :, at], lse[:, :, at], mask, scale,
            )  # fmt: skip
            dq[:, :, at] += part_dq
            _add(dk, call.keys, part_dk)
            _add(dv, call.keys, part_dv)
        return (
            dq.to(q.dtype).view(q.shape),
            dk.to(k.dtype).view(k.shape),
            dv.to(v.dtype).view(v.shape),
            None,
            None,
        )


def _forward(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float
) -> tuple[Tensor, Tensor]:
    """Output ``(groups, G, Q, D)`` and natural log-sum-exp ``(groups, G, Q)`` of one call."""
    if call.kind is Kind.MASKED:
        scores = _scores(call, q, k, mask, scale)
        lse = scores.logsumexp(-1)
        weights = scores.sub_(lse.unsqueeze(-1)).exp_()
        return (weights @ v.to(weights.dtype)).view(q.shape), lse.view(q.shape[:3])
    k, v = k.expand(-1, q.shape[1], -1, -1), v.expand(-1, q.shape[1], -1, -1)
    causal = call.kind is Kind.CAUSAL
    if q.device.type == "cpu":
        out, lse = _aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, scale=scale
        )
    else:
        out, lse, *_ = _aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)
    return out, lse


def _backward(
    call: Call,
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    mask: TreeMask,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """A call's share of dQ, dK and dV, given the output and log-sum-exp of all calls."""
    if call.kind is Kind.MASKED:
        weights = _scores(call, q, k, mask, scale).sub_(_rows(lse.unsqueeze(-1))).exp_()
        dout_rows = _rows(dout).to(weights.dtype)
        delta = (dout_rows * _rows(out)).sum(-1, keepdim=True)
        dv = weights.mT @ dout_rows
        dscores = (dout_rows @ v.to(weights.dtype).mT).sub_(delta).mul_(weights).mul_(scale)
        dq = (dscores @ k.to(weights.dtype)).view(q.shape)
        return dq, dscores.mT @ _rows(q).to(weights.dtype), dv
    heads = q.shape[1]
    keys, values = k.expand(-1, heads, -1, -1), v.expand(-1, heads, -1, -1)
    causal = call.kind is Kind.CAUSAL
    if q.device.type == "cpu":
        dq, dk, dv = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            dout, q, keys, values, out, lse, 0.0, causal, scale=scale
        )
    else:
        # Without dropout the generator's state is not read; the operator still asks for it.
        state = torch.empty(2, dtype=torch.uint64, device=q.device)
        dq, dk, dv = _aten._scaled_dot_product_flash_attention_backward(
            dout, q, keys, values, out, lse.contiguous(), None, None,
            q.shape[2], k.shape[2], 0.0, causal, state, state[:0], scale=scale,
        )  # fmt: skip
    if heads > 1:
        dk, dv = dk.sum(1, keepdim=True), dv.sum(1, keepdim=True)
    return dq, dk, dv


def _scores(call: Call, q: Tensor, k: Tensor, mask: TreeMask, scale: float) -> Tensor:
    """Masked scores ``(groups, 1, G * Q, K)`` in at least float32, heads of a group in a row."""
    wide = _wide(q.dtype)
    scores = (_rows(q).to(wide) @ k.to(wide).mT).mul_(scale)
    ends = mask.subtree_end[_on(mask.device, call.keys)]
    keys = torch.arange(mask.n, device=mask.device)[_on(mask.device, call.keys)]
    queries = torch.arange(call.queries.start, call.queries.stop, device=mask.device)[:, None]
    hidden = (keys > queries) | (ends <= queries)
    return scores.masked_fill_(hidden.repeat(q.shape[1], 1), -torch.inf)


def _rows(x: Tensor) -> Tensor:
    """``(groups, G, Q, …)`` as ``(groups, 1, G * Q, …)``: the heads of a group in a row."""
    return x.reshape(x.shape[0], 1, x.shape[1] * x.shape[2], x.shape[3])


def _grouped(x: Tensor, groups: int) -> Tensor:
    """``(B, H, N, D)`` as ``(B * Hkv, H / Hkv, N, D)``, the last axis dense."""
    heads = x.shape[0] * x.shape[1] // groups
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x.reshape(groups, heads, x.shape[2], x.shape[3])


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _on(device: torch.device, index: Index) -> slice | Tensor:
    return index if isinstance(index, slice) else torch.from_numpy(index).to(device)


def _take(x: Tensor, index: Index) -> Tensor:
    at = _on(x.device, index)
    return x[:, :, at] if isinstance(at, slice) else x.index_select(2, at)


def _add(total: Tensor, index: Index, part: Tensor) -> None:
    at = _on(total.device, index)
    if isinstance(at, slice):
        total[:, :, at] += part
    else:
        total.index_add_(2, at, part.to(total.dtype))


def _plan(mask: TreeMask) -> CascadePlan:
    if mask not in _plans:
        _plans[mask] = CascadePlan(mask)
    return _plans[mask]
