"""build_tree_attn_kwargs: one tree's mask in the form that a training engine's forward takes.

Notable:
- make it just before the forward and drop it after: layouts are small, masks are not
- in AReaL's order a subtree is no slice; the parents give each token its depth-first number and
  the end of its subtree in those numbers, and the same comparison holds: query q sees key k exactly
  when ``number[k] <= number[q] < end[k]``
- blocks are classed exactly in both orders, without an N x N tensor; the dense mask, where an
  engine wants it, is written tile by tile into its own memory
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from kernels.attention.flex import BLOCK_SIZE, block_mask_of, padded_rows, tree_block_mask
from kernels.attention.mask import TreeMask
from packing.layout import TreeLayout

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
KwargsBackend = Literal["flex", "dense", "intervals"]

DENSE_TILE = 1024
_CELLS_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class Intervals:
    """Depth-first numbers of packed tokens, padding included. N tokens.

    number: int32 ``(N,)``, each token's place in depth-first order; padding keeps its own place
    end:    int32 ``(N,)``, exclusive end of its subtree in those numbers; 0 at padding
    """

    number: Int32s
    end: Int32s

    @classmethod
    def of(cls, layout: TreeLayout, padded_size: int) -> Intervals:
        """The intervals of a layout in either order, padded to ``padded_size`` tokens."""
        n = layout.n_tokens
        if padded_size < n:
            raise ValueError(
                f"the tree has {n} tokens and does not fit {padded_size}; "
                f"padded_size must be at least {n}"
            )
        number = np.arange(padded_size, dtype=np.int32)
        end = np.zeros(padded_size, dtype=np.int32)
        if layout.subtree_end is None:
            number[:n], end[:n] = _number_depth_first(layout.parent)
        else:
            end[:n] = layout.subtree_end
        return cls(number, end)


def build_tree_attn_kwargs(
    layout: TreeLayout, padded_size: int, device: torch.device | str, backend: KwargsBackend
) -> dict[str, Any]:
    """Keyword arguments for one forward over ``layout`` padded to ``padded_size`` tokens N.

    backend:
        "flex":      ``tree_block_mask``, a BlockMask (1, 1, N, N): FSDP takes it by that name,
                     Archon as the ``block_mask`` of its ``TreeAttentionMeta``
        "dense":     ``attention_mask``, bool (N, N), True where the query attends: Megatron
        "intervals": ``tree_mask``, a TreeMask, and ``tree_order``: None, or int64 (N,) where the
                     layout is in AReaL's order; then ``x[tree_order]`` is in the mask's order
    Raises ValueError where the tree does not fit or there is no such backend.
    """
    device = torch.device(device)
    intervals = Intervals.of(layout, padded_size)
    in_order = layout.subtree_end is not None
    if backend == "dense":
        return {"attention_mask": dense_mask(intervals, device)}
    if backend == "flex":
        if in_order:
            mask = TreeMask.from_subtree_end(intervals.end, device)
            return {"tree_block_mask": tree_block_mask(mask)}
        return {"tree_block_mask": _block_mask(intervals, layout.parent, device)}
    if backend == "intervals":
        order = np.argsort(intervals.number)
        return {
            "tree_mask": TreeMask.from_subtree_end(intervals.end[order], device),
            "tree_order": None if in_order else torch.from_numpy(order).to(device),
        }
    raise ValueError(f"there is no backend {backend!r}; there are flex, dense and intervals")


def dense_mask(intervals: Intervals, device: torch.device, tile: int = DENSE_TILE) -> Tensor:
    """bool ``(N, N)``, True where the query (row) sees the key: needs itself and a tile or two."""
    number = torch.from_numpy(intervals.number).to(device)
    end = torch.from_numpy(intervals.end).to(device)
    n = len(number)
    out = torch.zeros((n, n), dtype=torch.bool, device=device)
    starts = np.arange(0, n, tile)
    first_number = np.minimum.reduceat(intervals.number, starts).tolist()
    last_end = np.maximum.reduceat(intervals.end, starts).tolist()
    for i, row in enumerate(starts.tolist()):
        queries = number[row : row + tile, None]
        for j in range(i + 1):  # ancestors are packed before their descendants
            if last_end[j] <= first_number[i]:
                continue
            keys = slice(j * tile, j * tile + tile)
            seen = out[row : row + tile, keys]
            torch.le(number[None, keys], queries, out=seen)
            seen &= queries < end[None, keys]
    return out


def _number_depth_first(parent: Int32s) -> tuple[Int32s, Int32s]:
    """Depth-first number and subtree end of each token, children in packed order."""
    n = len(parent)
    start, up = _runs(parent)
    length = np.diff(np.append(start, n))
    above, size = up.tolist(), length.tolist()
    for run in range(len(start) - 1, -1, -1):
        if above[run] >= 0:
            size[above[run]] += size[run]
    first, used, roots = [0] * len(start), length.tolist(), 0
    for run, over in enumerate(above):
        if over < 0:
            first[run], roots = roots, roots + size[run]
        else:
            first[run], used[over] = first[over] + used[over], used[over] + size[run]
    shift = np.array(first, dtype=np.int64) - start
    number = np.arange(n) + np.repeat(shift, length)
    end = np.repeat(np.array(first, dtype=np.int64) + size, length)
    return number.astype(np.int32), end.astype(np.int32)


def _runs(parent: Int32s) -> tuple[Int64s, Int64s]:
    """First token of each run without a branch, and the run above it (-1 at a root)."""
    token = np.arange(len(parent))
    if (parent >= token).any():
        at = int(np.argmax(parent >= token))
        raise ValueError(f"token {at} is packed before its parent, token {int(parent[at])}")
    children = np.bincount(parent[parent >= 0], minlength=len(parent))
    goes_on = (parent == token - 1) & (parent >= 0) & (children[np.maximum(parent, 0)] == 1)
    start = np.flatnonzero(~goes_on)
    run = np.cumsum(~goes_on) - 1
    above = np.where(parent[start] >= 0, run[np.maximum(parent[start], 0)], -1)
    return start.astype(np.int64), above.astype(np.int64)


def _block_mask(intervals: Intervals, parent: Int32s, device: torch.device) -> BlockMask:
    """BlockMask of tokens in AReaL's order."""
    is_seen, is_full = _block_classes(intervals, parent, BLOCK_SIZE)
    number = torch.from_numpy(intervals.number).to(device)
    end = torch.from_numpy(intervals.end).to(device)

    def is_visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (number[k] <= number[q]) & (number[q] < end[k])

    return block_mask_of(
        _rows_of(is_seen & ~is_full, device),
        _rows_of(is_full, device),
        BLOCK_SIZE,
        is_visible,
        len(intervals.number),
    )


def _rows_of(blocks: npt.NDArray[np.bool_], device: torch.device) -> tuple[Tensor, Tensor]:
    chosen = torch.from_numpy(blocks)
    offsets = torch.nn.functional.pad(chosen.sum(1).cumsum(0), (1, 0))
    return padded_rows(offsets.to(device), chosen.nonzero()[:, 1].int().to(device))


def _block_classes(
    intervals: Intervals, parent: Int32s, block: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Blocks in which something is visible, and those in which all is: bool ``(T, T)`` each.

    Both exact, but that a last block of a single token is not called full. Runs cut at block
    borders are pieces. Queries in pieces below a piece see all of it, queries of the piece itself
    see some: counting each query block's tokens below each piece decides.
    """
    n_real, n = len(parent), len(intervals.number)
    tiles = -(-n // block)
    seen, full = np.zeros((2, tiles, tiles), dtype=np.bool_)
    if not n_real:
        return seen, full
    start = np.union1d(_runs(parent)[0], np.arange(0, n_real, block))
    stop = np.append(start[1:], n_real)
    home = start // block
    number, end = intervals.number[start], intervals.end[start]
    by_number = np.argsort(number)
    place = np.empty_like(by_number)
    place[by_number] = np.arange(len(start))
    below_stop = np.searchsorted(number[by_number], end)
    lengths, homes = (stop - start)[by_number], home[by_number]
    borders = np.flatnonzero(np.diff(home, prepend=-1))
    whole = (np.arange(home[-1] + 1) + 1) * block <= n_real
    rows = max(_CELLS_AT_ONCE // len(start), 1)
    for low in range(0, home[-1] + 1, rows):
        tile = np.arange(low, min(low + rows, home[-1] + 1))[:, None]
        tokens = np.where(homes == tile, lengths, 0)
        before = np.concatenate([np.zeros_like(tile), tokens.cumsum(1)], axis=1)
        below = before[:, below_stop] - before[:, place + 1]
        some = (below > 0) | (home == tile)
        queries = np.minimum(block, n - tile * block)
        seen[tile[:, 0], : len(borders)] = np.maximum.reduceat(some, borders, axis=1)
        full[tile[:, 0], : len(borders)] = (
            np.minimum.reduceat(below, borders, axis=1) == queries
        ) & whole
    return seen, full
