"""Tree attention through PyTorch's FlexAttention, its BlockMask built straight from intervals.

Notable:
- full and partial block lists come from the mask's tile lists: no N x N tensor, no ``vmap`` of a
  mask function (``create_block_mask`` needs N * N bytes and more)
- on a GPU flex_attention is compiled; on a CPU it has no backward and, not compiled, holds all
  scores, so there it serves only to compare small forwards
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from kernels.attention.mask import TreeMask

BLOCK_SIZE = 128
CPU_MAX_TOKENS = 4096

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def flex_unavailable(
    device: torch.device, dtype: torch.dtype, head_dim: int, n: int, needs_grad: bool
) -> str | None:
    """Why FlexAttention cannot run there and so, or None."""
    if device.type == "cpu":
        if needs_grad:
            return "FlexAttention has no backward on a CPU; use cascade to train on one"
        if n > CPU_MAX_TOKENS:
            return (
                "FlexAttention on a CPU holds every score at once; it is kept to "
                f"{CPU_MAX_TOKENS} tokens here, these are {n}; use cascade"
            )
        return None
    if device.type != "cuda":
        return f"FlexAttention runs on a CPU or an NVIDIA GPU here, not on {device.type}"
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        return f"FlexAttention on a GPU runs in float32, bfloat16 or float16, not {name}"
    if head_dim < 16:
        return f"FlexAttention on a GPU needs a head dim of at least 16, not {head_dim}"
    return None


def flex_attention_tree(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float) -> Tensor:
    """Attention of packed tokens to their ancestors and themselves.

    q ``(B, Hq, N, D)``, k and v ``(B, Hkv, N, D)`` with Hq a multiple of Hkv, N tokens of ``mask``.
    Returns ``(B, Hq, N, D)`` in the dtype of ``q``; rows of padding are 0.
    """
    if q.is_cuda:
        call = _compiled()
    else:
        call = _uncompiled
        q, k, v = q.detach(), k.detach(), v.detach()  # it looks at requires_grad even in no_grad
    out: Tensor = call(
        q, k, v, block_mask=tree_block_mask(mask), scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out


def tree_block_mask(mask: TreeMask, block_size: int = BLOCK_SIZE) -> BlockMask:
    """BlockMask (1, 1, N, N) of ``mask``, on its device: (N / block_size)**2 int32 a list."""
    tiles = mask.tiles(block_size, block_size)
    end = mask.subtree_end

    def is_visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (k <= q) & (q < end[k])

    partial = padded_rows(tiles.partial_offsets, tiles.partial_k)
    full = padded_rows(tiles.full_offsets, tiles.full_k)
    return block_mask_of(partial, full, block_size, is_visible, mask.n)


def block_mask_of(
    partial: tuple[Tensor, Tensor],
    full: tuple[Tensor, Tensor],
    block_size: int,
    is_visible: MaskMod,
    n: int,
) -> BlockMask:
    """BlockMask (1, 1, n, n) from (counts, key blocks) of the partial and the full blocks."""
    return BlockMask.from_kv_blocks(
        partial[0][None, None],
        partial[1][None, None],
        full[0][None, None],
        full[1][None, None],
        BLOCK_SIZE=block_size,
        mask_mod=is_visible,
        seq_lengths=(n, n),
    )


def padded_rows(offsets: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Counts int32 ``(T,)`` and columns int32 ``(T, T)``, zeros behind, of compressed rows."""
    counts = offsets.diff()
    rows = len(counts)
    out = torch.zeros((rows, rows), dtype=torch.int32, device=columns.device)
    row = torch.repeat_interleave(torch.arange(rows, device=columns.device), counts)
    place = torch.arange(len(columns), device=columns.device) - offsets[row]
    out[row, place] = columns
    return counts.int(), out


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention)


def _uncompiled(*args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        # That it holds all scores is known, and why CPU_MAX_TOKENS bounds it.
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(*args, **kwargs)
