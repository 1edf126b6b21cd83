"""Tree attention over the explicit N x N mask: the slow, obvious specification of the others."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.attention.mask import TreeMask


def dense_attention(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float) -> Tensor:
    """Attention of packed tokens to their ancestors and themselves, by plain autograd.

    q ``(B, Hq, N, D)``, k and v ``(B, Hkv, N, D)`` with Hq a multiple of Hkv, N tokens of ``mask``.
    Computes in float64 for float64 inputs and in float32 for all others; B * Hq * N * N scores.
    Returns ``(B, Hq, N, D)`` in the dtype of ``q``; rows of padding are 0.
    """
    return dense_attention_with_lse(q, k, v, mask, scale)[0]


def dense_attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float
) -> tuple[Tensor, Tensor]:
    """``dense_attention`` and the natural log-sum-exp ``(B, Hq, N)`` of its scores.

    Padding sees nothing: its log-sum-exp is -inf.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    group = q.shape[1] // k.shape[1]
    keys = k.to(wide).repeat_interleave(group, dim=1)
    values = v.to(wide).repeat_interleave(group, dim=1)
    visible = mask.visible(slice(None), slice(None))
    scores = (q.to(wide) @ keys.mT * scale).masked_fill(~visible, -torch.inf)
    # Rows of padding hold nothing but -inf: any finite maximum gives weights of 0 instead of NaN.
    highest = scores.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(wide).min)
    weights = (scores - highest).exp()
    total = weights.sum(-1, keepdim=True)
    out = (weights / total.clamp_min(torch.finfo(wide).tiny)) @ values
    return out.to(q.dtype), (total.log() + highest)[..., 0]


def dense_backward(
    dout: Tensor,
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    mask: TreeMask,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv of ``dense_attention``; ``saved`` is q, k, v, the output and ``lse``.

    With P the weights: dV = Pᵀ dO, dS = P ∘ (dO Vᵀ − rowsum(dO ∘ O)), dQ = dS K, dK = dSᵀ Q.
    """
    q, k, v, out, lse = saved
    wide = lse.dtype
    group = q.shape[1] // k.shape[1]
    keys = k.to(wide).repeat_interleave(group, dim=1)
    values = v.to(wide).repeat_interleave(group, dim=1)
    hidden = ~mask.visible(slice(None), slice(None))
    scores = q.to(wide) @ keys.mT * scale
    weights = (scores - lse.view(q.shape[:3])[..., None]).exp_().masked_fill_(hidden, 0.0)
    grads = dout.to(wide)
    delta = (grads * out.to(wide)).sum(-1, keepdim=True)
    dscores = (grads @ values.mT).sub_(delta).mul_(weights).mul_(scale)
    dq, dk, dv = dscores @ keys, dscores.mT @ q.to(wide), weights.mT @ grads
    dk, dv = (x.view(x.shape[0], -1, group, *x.shape[2:]).sum(2) for x in (dk, dv))
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)
