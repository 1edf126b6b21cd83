"""Tree attention on a GPU: our Triton kernels behind one call with gradients.

Notable:
- a mask is one int32 a token: key ``k`` is seen by query ``q`` iff ``k <= q < subtree_end[k]``
- float16, bfloat16 and float32 inputs, float32 sums; float32 products are exact IEEE ones (no
  TF32), so float32 is for proofs, not for speed
- deterministic: the same inputs give the same bits, no atomics (but with ``fused_configs``)
- padding sees nothing: its output and its gradients are exactly zero
- on a CPU the kernels run in Triton's interpreter only (``TRITON_INTERPRET=1`` before Triton is
  imported): float32 and float16, right, and far too slow for anything but small proofs
"""

from __future__ import annotations

import importlib.util
import math
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernels.triton.configs import (
    HEAD_DIMS,
    PASSES,
    Config,
    Pass,
    bushy_config,
    default_config,
    first_release,
    heads_per_tile,
    triton_version,
)
from kernels.triton.descriptors import architecture, describable
from kernels.triton.launch import Configs, IntervalMask, backward, forward, is_bushy

MAX_TILE = 128  # rows or keys of the largest tile
MAX_HEADS = 16  # heads_per_tile of the largest tile
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def unavailable_reason(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """Why the kernels cannot run on such tensors, as a sentence; None where they can."""
    if dtype not in DTYPES:
        return f"the Triton kernels take float16, bfloat16 and float32, not {_name(dtype)}"
    if head_dim not in HEAD_DIMS:
        known = ", ".join(str(dim) for dim in HEAD_DIMS)
        return f"the Triton kernels take head dims {known}, not {head_dim}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton (Linux only)"
    if device.type == "cpu":
        if os.environ.get("TRITON_INTERPRET") == "1":
            if dtype == torch.bfloat16:
                return (
                    "Triton's interpreter multiplies bfloat16 by its bits, which is wrong; "
                    "use float32 or float16 on a CPU"
                )
            return _interpreter_reason()
        return (
            "the Triton kernels need an NVIDIA GPU; on a CPU they run only in Triton's "
            "interpreter, for proofs: set TRITON_INTERPRET=1 before starting Python"
        )
    if device.type != "cuda" or torch.version.hip is not None:
        return f"the Triton kernels need an NVIDIA GPU, not {device.type}"
    arch = architecture(device)
    if arch < 80:
        has = f"{arch // 10}.{arch % 10}"
        return f"the Triton kernels need compute capability 8.0 or newer; this GPU has {has}"
    release, needed = triton_version(), first_release(arch)
    if needed is not None and release < needed:
        installed, newer = (".".join(map(str, x)) for x in (release, needed))
        return f"on this GPU the Triton kernels need Triton {newer} or newer, not {installed}"
    return None


def _interpreter_reason() -> str | None:
    """Triton's interpreter before 3.9 turns arrays of one entry into loop bounds."""
    release, numpy_release = triton_version(), tuple(map(int, np.__version__.split(".")[:2]))
    if release >= (3, 9) or numpy_release < (2, 4):
        return None
    installed = ".".join(map(str, release))
    return (
        f"the interpreter of Triton {installed} does not run with numpy {np.__version__}: "
        "pip install 'numpy<2.4'"
    )


def triton_tree_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: IntervalMask,
    scale: float | None = None,
    configs: Configs | None = None,
) -> Tensor:
    """Attention of packed tokens to their ancestors and themselves; differentiable once.

    q ``(B, Hq, N, D)``, k and v ``(B, Hkv, N, D)`` with Hq a multiple of Hkv, of one dtype, on the
    device of ``mask.subtree_end`` ``(N,)``, any strides; D in 64, 96, 128, 256.
    scale: positive factor of the scores, ``1 / sqrt(D)`` by default.
    configs: tile sizes to use instead of the device's defaults.
    Returns ``(B, Hq, N, D)`` in the dtype of ``q``; rows of padding are 0.
    Raises ValueError for shapes that do not fit, RuntimeError where the kernels cannot run.
    """
    _check(q, k, v, mask)
    reason = unavailable_reason(q.device, q.dtype, q.shape[3])
    if reason is not None:
        raise RuntimeError(reason)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    if not scale > 0 or not math.isfinite(scale):
        raise ValueError(f"scale must be a positive number, it is {scale}")
    out: Tensor = _TreeAttention.apply(q, k, v, mask, scale, configs)  # type: ignore[no-untyped-call]
    return out


def device_configs(
    device: torch.device,
    dtype: torch.dtype,
    head_dim: int,
    group: int,
    mask: IntervalMask | None = None,
    described: bool = True,
) -> dict[Pass, Config]:
    """The default tile sizes of every pass on ``device``, for ``group`` query heads a key head.

    mask: with it, dK and dV's tiles are halved where the tree is bushy and tiles are described (by
        pointers some of the halved ones would spill).
    described: whether all tensors can be read by tensor descriptors (``descriptors.describable``).
    """
    arch, release = architecture(device), triton_version()
    chosen = {
        name: default_config(name, arch, head_dim, dtype.itemsize, group, release, described)
        for name in PASSES
    }
    wide = chosen["dkv"]
    if mask is not None and described and wide.keys > 64:
        narrow = bushy_config(wide)
        tokens = wide.rows // heads_per_tile(group, wide.rows)
        if is_bushy(mask, tokens, narrow.keys, wide.keys):
            chosen["dkv"] = narrow
    return chosen


def fused_configs(
    device: torch.device, dtype: torch.dtype, head_dim: int, group: int
) -> dict[Pass, Config]:
    """Tile sizes with which dQ is made in the kernel of dK and dV: five products, not seven.

    An option: its sums of dQ come in any order, so that two runs differ in the last bits.
    """
    chosen = device_configs(device, dtype, head_dim, group)
    arch, release = architecture(device), triton_version()
    fused = default_config("dqkv", arch, head_dim, dtype.itemsize, group, release)
    return {"forward": chosen["forward"], "dqkv": fused}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_inputs(q: Tensor, k: Tensor, v: Tensor, subtree_end: Tensor) -> None:
    """Raise ValueError where q, k, v and a mask's tensor are not what every backend takes."""

    def shapes() -> str:
        return f"q is {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"

    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape:
        raise ValueError(f"q must be (B, Hq, N, D), k and v both (B, Hkv, N, D); {shapes()}")
    if (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]):
        raise ValueError(f"q, k and v must agree in batch, tokens and head dim; {shapes()}")
    if 0 in (*q.shape, *k.shape):
        raise ValueError(f"no axis may be empty; {shapes()}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"the {q.shape[1]} query heads must be a multiple of the {k.shape[1]} key heads"
        )
    if subtree_end.shape != q.shape[2:3] or subtree_end.dtype != torch.int32:
        raise ValueError(
            f"the mask's subtree_end must be int32 ({q.shape[2]},), made for the padded length; it "
            f"is {_name(subtree_end.dtype)} {tuple(subtree_end.shape)}"
        )
    if not (q.dtype == k.dtype == v.dtype and q.is_floating_point()):
        dtypes = {x.dtype for x in (q, k, v)}
        names = ", ".join(sorted(map(_name, dtypes)))
        raise ValueError(f"q, k and v must have one floating dtype; they have {names}")
    if not q.device == k.device == v.device == subtree_end.device:
        devices = sorted({str(x.device) for x in (q, k, v, subtree_end)})
        raise ValueError(
            f"q, k, v and the mask must be on one device; they are on {', '.join(devices)}"
        )


def _check(q: Tensor, k: Tensor, v: Tensor, mask: IntervalMask) -> None:
    check_inputs(q, k, v, mask.subtree_end)
    if MAX_HEADS * q.shape[2] * q.shape[3] >= 2**31:
        most = (2**31 - 1) // (MAX_HEADS * q.shape[3])
        raise ValueError(
            f"{q.shape[2]} tokens are too many: at head dim {q.shape[3]} the kernels' 32-bit "
            f"places within a tile reach {most} tokens"
        )


def _addressable(x: Tensor) -> Tensor:
    """``x``, copied where its last axis is not dense or places within a tile need 64 bits."""
    within_tile = MAX_TILE * x.stride(2) + MAX_HEADS * x.stride(1)
    return x if x.stride(3) == 1 and within_tile < 2**31 else x.contiguous()


def _chosen(q: Tensor, k: Tensor, v: Tensor, mask: IntervalMask, *more: Tensor) -> Configs:
    """The default tile sizes for these very tensors, those of a backward with its dout."""
    described = describable(q, k, v, *more)
    return device_configs(q.device, q.dtype, q.shape[3], q.shape[1] // k.shape[1], mask, described)


def forward_pass(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: IntervalMask,
    scale: float,
    configs: Configs | None = None,
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of tensors as in ``triton_tree_attention``, without a gradient."""
    _check(q, k, v, mask)
    q, k, v = _addressable(q), _addressable(k), _addressable(v)
    configs = configs or _chosen(q, k, v, mask)
    # Triton launches on the current device.
    with torch.cuda.device_of(q):  # type: ignore[no-untyped-call]
        return forward(q, k, v, mask, scale, configs["forward"])


def backward_pass(
    dout: Tensor,
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    mask: IntervalMask,
    scale: float,
    configs: Configs | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv; ``saved`` is q, k, v, out and lse, the last in its own order but any shape."""
    *inputs, out, lse = saved
    q, k, v, dout = (_addressable(x) for x in (*inputs, dout))
    configs = configs or _chosen(q, k, v, mask, dout)
    lse = lse.view(k.shape[0], k.shape[1], q.shape[2], q.shape[1] // k.shape[1])
    with torch.cuda.device_of(dout):  # type: ignore[no-untyped-call]
        return backward((q, k, v, out, lse), dout, mask, scale, configs)


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: IntervalMask,
        scale: float,
        configs: Configs | None,
    ) -> Tensor:
        out, lse = forward_pass(q, k, v, mask, scale, configs)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.mask, ctx.scale, ctx.configs = mask, scale, configs
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        grads = backward_pass(dout, ctx.saved_tensors, ctx.mask, ctx.scale, ctx.configs)
        return *grads, None, None, None
