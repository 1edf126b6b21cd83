"""tree_attention: one call for every way to attend over a packed forest, and the registry of ways.

Notable:
- a backend says itself whether it can run on given inputs, and if not, why
- ``auto`` takes the first of ``AUTO_ORDER`` that can: Triton on a GPU, cascade on a CPU
- the call is a ``torch.library`` operator, ``espalier::tree_attention``, with fake tensors and
  autograd: it reads the mask's tensor alone, so a compiled model holds it whole, for any N
- the Triton kernels are imported when first asked for, so a CPU needs no Triton
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.attention.cascade import cascade_backward, cascade_forward, cascade_unavailable
from kernels.attention.flex import flex_attention_tree, flex_unavailable
from kernels.attention.mask import TreeMask
from kernels.attention.reference import dense_attention_with_lse, dense_backward
from kernels.triton.tree import check_inputs

# (q, k, v, mask, scale) -> output, and a log-sum-exp a query and head in the backend's own order
Forward = Callable[[Tensor, Tensor, Tensor, TreeMask, float], tuple[Tensor, Tensor]]
# The same to the output alone, of operations that PyTorch differentiates.
Composed = Callable[[Tensor, Tensor, Tensor, TreeMask, float], Tensor]
# (dout, (q, k, v, output, log-sum-exp), mask, scale) -> dq, dk, dv
Saved = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Backward = Callable[[Tensor, Saved, TreeMask, float], tuple[Tensor, Tensor, Tensor]]
# (device, dtype, head_dim, n, needs_grad) -> why not, or None
Unavailable = Callable[[torch.device, torch.dtype, int, int, bool], str | None]

AUTO_ORDER = ("triton", "cascade", "dense")

# The work follows the mask's values, which a recorded CUDA graph would freeze.
_TAGS = tuple(tag for name in ("cudagraph_unsafe",) if (tag := getattr(torch.Tag, name, None)))


@dataclass(frozen=True)
class AttentionBackend:
    """One way to compute tree attention.

    unavailable: ``(device, dtype, head_dim, n, needs_grad)`` to the reason it cannot run, or None
    forward, backward: the operator's two halves, or else
    composed: the whole call, which PyTorch differentiates itself
    """

    name: str
    summary: str
    unavailable: Unavailable
    forward: Forward | None = None
    backward: Backward | None = None
    composed: Composed | None = None


def _triton_unavailable(
    device: torch.device, dtype: torch.dtype, head_dim: int, *_: int
) -> str | None:
    try:
        from kernels.triton.tree import unavailable_reason
    except ImportError as error:
        return f"Triton cannot be imported ({error}); install triton"
    return unavailable_reason(device, dtype, head_dim)


def _triton_forward(
    q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float
) -> tuple[Tensor, Tensor]:
    from kernels.triton.tree import forward_pass

    return forward_pass(q, k, v, mask, scale)


def _triton_backward(
    dout: Tensor, saved: Saved, mask: TreeMask, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    from kernels.triton.tree import backward_pass

    return backward_pass(dout, saved, mask, scale)


BACKENDS: dict[str, AttentionBackend] = {
    backend.name: backend
    for backend in (
        AttentionBackend(
            "triton",
            "our Triton kernels on subtree intervals; skips empty tiles, no mask in full ones",
            _triton_unavailable,
            _triton_forward,
            _triton_backward,
        ),
        AttentionBackend(
            "cascade",
            "flash attention per segment of the tree, merged by log-sum-exp",
            lambda device, dtype, head_dim, *_: cascade_unavailable(device, dtype, head_dim),
            cascade_forward,
            cascade_backward,
        ),
        AttentionBackend(
            "flex",
            "PyTorch's FlexAttention, its BlockMask built from subtree intervals",
            flex_unavailable,
            composed=flex_attention_tree,
        ),
        AttentionBackend(
            "dense",
            "the explicit N x N mask: slow, obvious, the reference",
            lambda *_: None,
            dense_attention_with_lse,
            dense_backward,
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
    check_inputs(q, k, v, mask.subtree_end)
    if scale is None:
        scale = q.shape[3] ** -0.5
    elif not 0 < scale < math.inf:
        raise ValueError(f"scale must be a positive number; it is {scale}")
    composed = None if backend == "auto" else _backend(backend).composed
    if composed is not None:
        if torch.compiler.is_compiling():
            raise RuntimeError(
                f"the {backend} backend is no operator: leave it out of a compiled model"
            )
        needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        _runnable(backend, q, needs_grad)
        return composed(q, k, v, mask, scale)
    out: Tensor = _operator(q, k, v, mask.subtree_end, scale, backend)[0]
    return out


@torch.library.custom_op("espalier::tree_attention", mutates_args=(), tags=_TAGS)
def _operator(
    q: Tensor, k: Tensor, v: Tensor, subtree_end: Tensor, scale: float, backend: str
) -> tuple[Tensor, Tensor]:
    """Output ``(B, Hq, N, D)`` and a flat log-sum-exp; the mask is found by its tensor."""
    forward = _runnable(backend, q).forward
    assert forward is not None  # composed ones never come here
    out, lse = forward(q, k, v, TreeMask.of_tensor(subtree_end), scale)
    return out, lse.flatten()


@_operator.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    n_queries = q.shape[0] * q.shape[1] * q.shape[2]
    wide = torch.promote_types(q.dtype, torch.float32)
    return q.new_empty(q.shape), q.new_empty(n_queries, dtype=wide)


@torch.library.custom_op("espalier::tree_attention_backward", mutates_args=(), tags=_TAGS)
def _operator_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    subtree_end: Tensor,
    scale: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    backward = _runnable(backend, q).backward
    assert backward is not None
    return backward(dout, (q, k, v, out, lse), TreeMask.of_tensor(subtree_end), scale)


@_operator_backward.register_fake
def _(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, subtree_end, ctx.scale, ctx.backend = inputs
    ctx.save_for_backward(q, k, v, *output, subtree_end)


def _differentiate(ctx: Any, dout: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _operator_backward(dout, *ctx.saved_tensors, ctx.scale, ctx.backend)
    return *gradients, None, None, None


_operator.register_autograd(_differentiate, setup_context=_save)


def _no_vmap(*_: Any) -> Any:
    raise RuntimeError(
        "tree_attention is not to be vmapped: its own batch axis B is there for that, as one mask "
        "serves a whole batch; call it once with q, k and v as (B, H, N, D)"
    )


for _each in (_operator, _operator_backward):
    _each.register_vmap(_no_vmap)


def _runnable(name: str, q: Tensor, needs_grad: bool = True) -> AttentionBackend:
    """The backend that runs such queries; raises RuntimeError where a named one cannot."""
    needs = (q.device, q.dtype, q.shape[3], q.shape[2], needs_grad)
    if name == "auto":
        return next(b for n in AUTO_ORDER if not (b := BACKENDS[n]).unavailable(*needs))
    chosen = _backend(name)
    reason = chosen.unavailable(*needs)
    if reason is not None:
        raise RuntimeError(f"the {name} backend cannot run here: {reason}")
    return chosen


def _backend(name: str) -> AttentionBackend:
    if name not in BACKENDS:
        raise ValueError(f"there is no backend {name!r}; there are auto, {', '.join(BACKENDS)}")
    return BACKENDS[name]
