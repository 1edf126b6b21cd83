"""Tree attention from flash attention calls: the fast path on a CPU, a peer on a GPU.

Notable:
- ``CascadePlan`` cuts the mask into causal, full and small masked calls; their results merge by
  log-sum-exp as they come, so memory is that of the inputs
- the backward pass gives the merged output and log-sum-exp to the same flash operators: with them,
  a call's gradients are exactly its share of the whole (FlashAttention-2, arXiv 2307.08691, eq. 4)
- grouped-query heads are never copied: a key head is repeated by a stride of 0
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kernels.attention.cascade_plan import Call, CascadePlan, Index, Kind
from kernels.attention.mask import TreeMask

_aten = (
    torch.ops.aten
)  # .default: resolving the overload at each call would cost as much as a small one
_plans: WeakKeyDictionary[TreeMask, CascadePlan] = WeakKeyDictionary()
_additives: WeakKeyDictionary[TreeMask, dict[tuple[int, torch.dtype], Tensor]] = WeakKeyDictionary()

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


def cascade_forward(
    q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention of packed tokens to their ancestors and themselves.

    q ``(B, Hq, N, D)``, k and v ``(B, Hkv, N, D)`` with Hq a multiple of Hkv, N tokens of ``mask``.
    Returns ``(B, Hq, N, D)`` in the dtype of ``q``, rows of padding 0, and the natural log-sum-exp
    ``(B * Hkv, Hq / Hkv, N)``, in at least float32.
    """
    groups = k.shape[0] * k.shape[1]
    queries, keys, values = _grouped(q, groups), _grouped(k, groups), _grouped(v, groups)
    wide = _wide(q.dtype)
    out = _empty(queries, mask)
    lse = torch.empty(queries.shape[:3], dtype=wide, device=q.device)
    lse[:, :, mask.n_real :] = -torch.inf
    for call in _plan(mask).calls():
        at = call.queries
        part, part_lse = _forward(
            call, _take(queries, at), _take(keys, call.keys), _take(values, call.keys),
            mask, scale,
        )  # fmt: skip
        out_here, lse_here = _take(out, at), _take(lse, at)
        if call.kind is Kind.FULL:
            # What is there and the part weigh in as exp(lse) : exp(part_lse).
            weight = torch.sigmoid(part_lse - lse_here).unsqueeze(-1)
            out_here.lerp_(part.to(wide), weight)
            torch.logaddexp(lse_here, part_lse, out=lse_here)
        else:  # the first call of these queries
            out_here.copy_(part)
            lse_here.copy_(part_lse)
    return out.to(q.dtype).view(q.shape), lse


def cascade_backward(
    dout: Tensor,
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    mask: TreeMask,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv; ``saved`` is q, k, v and what ``cascade_forward`` returned."""
    q, k, v, out, lse = saved
    groups = k.shape[0] * k.shape[1]
    queries, keys, values = _grouped(q, groups), _grouped(k, groups), _grouped(v, groups)
    grads, out, lse = _grouped(dout, groups), _grouped(out, groups), lse.view(queries.shape[:3])
    dq, dk, dv = _empty(queries, mask), _empty(keys, mask), _empty(values, mask)
    for call in _plan(mask).calls():
        at = call.queries
        part_dq, part_dk, part_dv = _backward(
            call, _take(grads, at), _take(queries, at), _take(keys, call.keys),
            _take(values, call.keys), _take(out, at), _take(lse, at), mask, scale,
        )  # fmt: skip
        if call.kind is Kind.FULL:
            _take(dq, at).add_(part_dq)
            _add(dk, call.keys, part_dk)
            _add(dv, call.keys, part_dv)
        else:  # the first call of these tokens, as queries and as keys, where they come last
            _take(dq, at).copy_(part_dq)
            above = part_dk.shape[2] - part_dq.shape[2]
            for total, part in ((dk, part_dk), (dv, part_dv)):
                _take(total, at).copy_(part[:, :, above:])
                if above:
                    _add(total, _first(call.keys, above), part[:, :, :above])
    return dq.to(q.dtype).view(q.shape), dk.to(k.dtype).view(k.shape), dv.to(v.dtype).view(v.shape)


def _forward(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float
) -> tuple[Tensor, Tensor]:
    """Output ``(groups, G, Q, D)`` and natural log-sum-exp ``(groups, G, Q)`` of one call."""
    on_cpu = q.device.type == "cpu"
    if call.kind is Kind.MASKED and not on_cpu:
        scores = _scores(call, q, k, mask, scale)
        lse = scores.logsumexp(-1)
        weights = scores.sub_(lse.unsqueeze(-1)).exp_()
        return (weights @ v.to(weights.dtype)).view(q.shape), lse.view(q.shape[:3])
    k, v = k.expand(-1, q.shape[1], -1, -1), v.expand(-1, q.shape[1], -1, -1)
    causal = call.kind is Kind.CAUSAL
    if on_cpu:
        out, lse = _aten._scaled_dot_product_flash_attention_for_cpu.default(
            q, k, v, 0.0, causal, attn_mask=_additive(call, mask, q.dtype), scale=scale
        )
    else:
        out, lse, *_ = _aten._scaled_dot_product_flash_attention.default(
            q, k, v, 0.0, causal, scale=scale
        )
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
    on_cpu = q.device.type == "cpu"
    if call.kind is Kind.MASKED and not on_cpu:
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
    if on_cpu:
        dq, dk, dv = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
            dout, q, keys, values, out, lse, 0.0, causal,
            attn_mask=_additive(call, mask, q.dtype), scale=scale,
        )  # fmt: skip
    else:
        # Without dropout the generator's state is not read; the operator still asks for it.
        state = torch.empty(2, dtype=torch.uint64, device=q.device)
        dq, dk, dv = _aten._scaled_dot_product_flash_attention_backward.default(
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
    return scores.masked_fill_(_hidden(call, mask).repeat(q.shape[1], 1), -torch.inf)


def _additive(call: Call, mask: TreeMask, dtype: torch.dtype) -> Tensor | None:
    """``(Q, K)``, 0 where a query of a masked call sees a key and -inf elsewhere.

    Kept as long as the mask: each layer needs it forward and backward, and with thousands of tiny
    nodes making it would be a quarter of their time. At most some 400 entries a token.
    """
    if call.kind is not Kind.MASKED:
        return None
    kept = _additives.setdefault(mask, {})
    made = kept.get((call.queries.start, dtype))
    if made is None:
        hidden = _hidden(call, mask)
        made = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)
        kept[call.queries.start, dtype] = made
    return made


def _hidden(call: Call, mask: TreeMask) -> Tensor:
    """Bool ``(Q, K)``: the key is after the query or its subtree ends before it."""
    at = _on(mask.device, call.keys)
    ends = mask.subtree_end[at]
    keys = torch.arange(mask.n, device=mask.device)[at]
    queries = torch.arange(call.queries.start, call.queries.stop, device=mask.device)[:, None]
    return (keys > queries) | (ends <= queries)


def _rows(x: Tensor) -> Tensor:
    """``(groups, G, Q, …)`` as ``(groups, 1, G * Q, …)``: the heads of a group in a row."""
    return x.reshape(x.shape[0], 1, x.shape[1] * x.shape[2], x.shape[3])


def _grouped(x: Tensor, groups: int) -> Tensor:
    """``(B, H, N, D)`` as ``(B * Hkv, H / Hkv, N, D)``, the last axis dense."""
    heads = x.shape[0] * x.shape[1] // groups
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x.reshape(groups, heads, x.shape[2], x.shape[3])


def _empty(x: Tensor, mask: TreeMask) -> Tensor:
    """Like ``x`` in at least float32, 0 on padding; the tokens' values are yet to be written."""
    made = torch.empty(x.shape, dtype=_wide(x.dtype), device=x.device)
    made[:, :, mask.n_real :] = 0
    return made


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _first(index: Index, count: int) -> Index:
    if isinstance(index, slice):
        return slice(index.start, index.start + count)
    return index[:count]


def _on(device: torch.device, index: Index) -> slice | Tensor:
    return index if isinstance(index, slice) else torch.from_numpy(index).to(device)


def _take(x: Tensor, index: Index) -> Tensor:
    """Tokens of ``(groups, G, N, …)``: a view where they are contiguous, else a copy."""
    if isinstance(index, slice):
        return x.narrow(2, index.start, index.stop - index.start)  # cheaper than x[:, :, index]
    return x.index_select(2, torch.from_numpy(index).to(x.device))


def _add(total: Tensor, index: Index, part: Tensor) -> None:
    if isinstance(index, slice):
        _take(total, index).add_(part)
    else:
        total.index_add_(2, torch.from_numpy(index).to(total.device), part.to(total.dtype))


def _plan(mask: TreeMask) -> CascadePlan:
    if mask not in _plans:
        _plans[mask] = CascadePlan(mask)
    return _plans[mask]
