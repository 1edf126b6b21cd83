"""tree_attention: one call for every way to attend over a packed forest, and the registry of ways.

Notable:
- a backend says itself whether it can run on given inputs, and if not, why
- ``auto`` takes the first of ``AUTO_ORDER`` that can: Triton on a GPU, cascade on a CPU
- the Triton kernels are imported when first asked for, so a CPU needs no Triton
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.attention.cascade import cascade_attention, cascade_unavailable
from kernels.attention.flex import flex_attention_tree, flex_unavailable
from kernels.attention.mask import TreeMask
from kernels.attention.reference import dense_attention

AttentionFunction = Callable[[Tensor, Tensor, Tensor, TreeMask, float], Tensor]
# (device, dtype, head_dim, n, needs_grad) -> why not, or None
Unavailable = Callable[[torch.device, torch.dtype, int, int, bool], str | None]

AUTO_ORDER = ("triton", "cascade", "dense")


@dataclass(frozen=True)
class AttentionBackend:
    """One way to compute tree attention.

    unavailable: ``(device, dtype, head_dim, n, needs_grad)`` to the reason it cannot run, or None
    function:    ``(q, k, v, mask, scale)`` to the output, shapes as in ``tree_attention``
    """

    name: str
    summary: str
    unavailable: Unavailable
    function: AttentionFunction


def _dense_unavailable(
    device: torch.device, dtype: torch.dtype, head_dim: int, n: int, needs_grad: bool
) -> str | None:
    return None


def _cascade_unavailable(
    device: torch.device, dtype: torch.dtype, head_dim: int, n: int, needs_grad: bool
) -> str | None:
    return cascade_unavailable(device, dtype, head_dim)


def _triton_unavailable(
    device: torch.device, dtype: torch.dtype, head_dim: int, n: int, needs_grad: bool
) -> str | None:
    try:
        from kernels.triton.tree import unavailable_reason
    except ImportError as error:
        return f"Triton cannot be imported ({error}); install triton"
    return unavailable_reason(device, dtype, head_dim)


def _triton_attention(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float) -> Tensor:
    from kernels.triton.tree import triton_tree_attention

    return triton_tree_attention(q, k, v, mask, scale)


BACKENDS: dict[str, AttentionBackend] = {
    backend.name: backend
    for backend in (
        AttentionBackend(
            "triton",
            "our Triton kernels on subtree intervals; skips empty tiles, no mask in full ones",
            _triton_unavailable,
            _triton_attention,
        ),
        AttentionBackend(
            "cascade",
            "flash attention per segment of the tree, merged by log-sum-exp",
            _cascade_unavailable,
            cascade_attention,
        ),
        AttentionBackend(
            "flex",
            "PyTorch's FlexAttention, its BlockMask built from subtree intervals",
            flex_unavailable,
            flex_attention_tree,
        ),
        AttentionBackend(
            "dense",
            "the explicit N x N mask: slow, obvious, the reference",
            _dense_unavailable,
            dense_attention,
        ),
    )
}


def unavailable(
    backend: str,
    device: torch.device | str,
    dtype: torch.dtype,
    head_dim: int,
    n: int,
    needs_grad: bool = True,
) -> str | None:
    """Why ``backend`` cannot attend over ``n`` tokens there and so, or None if it can."""
    return _backend(backend).unavailable(torch.device(device), dtype, head_dim, n, needs_grad)


def tree_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: TreeMask,
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """Attention of packed tokens to their ancestors and themselves; differentiable once.

    q ``(B, Hq, N, D)``, k and v ``(B, Hkv, N, D)``, Hq a multiple of Hkv, all of one floating dtype
    and on the device of ``mask``, which is of N tokens and the same for the whole batch.
    scale:   factor of the scores, ``1 / sqrt(D)`` by default.
    backend: a name in ``BACKENDS`` or "auto".
    Returns ``(B, Hq, N, D)`` in the dtype of ``q``; rows of padding are 0, as are their gradients.
    Raises ValueError for inputs that do not fit, RuntimeError where the backend cannot run.
    """
    _check(q, k, v, mask)
    if scale is None:
        scale = q.shape[3] ** -0.5
    elif not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be a positive number; it is {scale}")
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    needs = (q.device, q.dtype, q.shape[3], q.shape[2], needs_grad)
    if backend == "auto":
        chosen = next(b for n in AUTO_ORDER if not (b := BACKENDS[n]).unavailable(*needs))
    else:
        chosen = _backend(backend)
        reason = chosen.unavailable(*needs)
        if reason is not None:
            raise RuntimeError(f"the {backend} backend cannot run here: {reason}")
    return chosen.function(q, k, v, mask, scale)


def _backend(name: str) -> AttentionBackend:
    if name not in BACKENDS:
        raise ValueError(f"there is no backend {name!r}; there are auto, {', '.join(BACKENDS)}")
    return BACKENDS[name]


def _check(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask) -> None:
    shapes = f"q is {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape:
        raise ValueError(f"q must be (B, Hq, N, D), k and v both (B, Hkv, N, D); {shapes}")
    if (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]):
        raise ValueError(f"q, k and v must agree in batch, tokens and head dim; {shapes}")
    if 0 in (*q.shape, *k.shape):
        raise ValueError(f"no axis may be empty; {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"the {q.shape[1]} query heads must be a multiple of the {k.shape[1]} key heads"
        )
    if q.shape[2] != mask.n:
        raise ValueError(
            f"q has {q.shape[2]} tokens, the mask {mask.n}; make the mask for the padded length"
        )
    dtypes = {x.dtype for x in (q, k, v)}
    if len(dtypes) > 1 or not q.is_floating_point():
        names = ", ".join(sorted(str(d).removeprefix("torch.") for d in dtypes))
        raise ValueError(f"q, k and v must have one floating dtype; they have {names}")
    devices = {str(x.device) for x in (q, k, v, mask.subtree_end)}
    if len(devices) > 1:
        raise ValueError(
            f"q, k, v and the mask must be on one device; they are on {', '.join(sorted(devices))}"
        )
