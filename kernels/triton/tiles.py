"""What each Triton program visits: lists of key tiles, and chunks of query tiles.

Notable:
- the query tiles that see any key of a key tile are one range ``[first key, max subtree_end)``, and
  those that see all of it are one range inside it, ``[last key, min subtree_end)``: everything here
  follows from the two by vectorised operations on the mask's device, never an N x N tensor
- a tile seen whole lies inside the mask's tokens, so the kernels load it without bounds
- heaviest first, so that the last programs to start are the short ones
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

# Fewest query tiles worth a chunk of their own: its sums cost a write and a read of memory.
MIN_CHUNK = 16


@dataclass(frozen=True, eq=False)
class QueryLists:
    """The key tiles each query tile visits, for ``forward_kernel`` and ``dq_kernel``.

    query_tiles: int32 ``(tiles, 4)``: query tile, start of its list, masked tiles, whole tiles
    key_tiles:   int32 ``(visits + 1,)``, masked before whole, one spare entry at the end
    """

    query_tiles: Tensor
    key_tiles: Tensor


@dataclass(frozen=True, eq=False)
class KeyChunks:
    """The query tiles each key tile is seen by, cut into chunks, for ``dkv_kernel``.

    chunks:      int32 ``(chunks, 8)``, see ``dkv_kernel``
    split_tiles: int32 ``(tiles of more than one chunk, 3)``: key tile, first slot, slots
    slots:       chunks that belong to split tiles
    """

    chunks: Tensor
    split_tiles: Tensor
    slots: int


@dataclass(frozen=True, eq=False)
class _Ranges:
    """Per key tile, int64: query tiles ``[begin, end)`` see some of it, ``[whole, whole + n)`` all.

    Where no query tile sees all of it ``whole`` is ``end``.
    """

    begin: Tensor
    end: Tensor
    whole: Tensor
    n_whole: Tensor


def _ranges(subtree_end: Tensor, tile_q: int, tile_k: int) -> _Ranges:
    n_tokens = subtree_end.numel()
    tiles = -(-n_tokens // tile_k)
    ends = pad(subtree_end.long(), (0, tiles * tile_k - n_tokens)).view(tiles, tile_k)
    lowest, highest = ends.amin(1), ends.amax(1)
    first_key = torch.arange(0, tiles * tile_k, tile_k, device=subtree_end.device)
    begin = first_key // tile_q
    end = torch.maximum(begin, (highest + tile_q - 1) // tile_q)
    whole = (first_key + tile_k - 1 + tile_q - 1) // tile_q
    n_whole = (lowest // tile_q - whole).clamp(min=0)
    return _Ranges(begin, end, torch.where(n_whole > 0, whole, end), n_whole)


def _positions(counts: Tensor) -> tuple[Tensor, Tensor]:
    """For counts ``(2, 0, 1)``: owners ``(0, 0, 2)`` and places among the owner's ``(0, 1, 0)``."""
    owner = torch.repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    return owner, torch.arange(len(owner), device=counts.device) - starts[owner]


def query_lists(subtree_end: Tensor, tile_q: int, tile_k: int) -> QueryLists:
    """Lists of key tiles of ``tile_k`` keys for query tiles of ``tile_q`` tokens.

    subtree_end: int32 ``(N,)``; the lists lie on its device.
    """
    ranges = _ranges(subtree_end, tile_q, tile_k)
    tiles = -(-subtree_end.numel() // tile_q)
    key_tile, nth = _positions(ranges.end - ranges.begin)
    query_tile = ranges.begin[key_tile] + nth
    from_whole = query_tile - ranges.whole[key_tile]
    whole = (from_whole >= 0) & (from_whole < ranges.n_whole[key_tile])
    order = torch.sort(query_tile * 2 + whole, stable=True).indices
    visits = torch.bincount(query_tile, minlength=tiles)
    n_whole = torch.bincount(query_tile[whole], minlength=tiles)
    heavy_first = torch.sort(visits, descending=True, stable=True).indices
    start = visits.cumsum(0) - visits
    tile = torch.arange(tiles, device=visits.device)
    table = torch.stack([tile, start, visits - n_whole, n_whole])
    return QueryLists(
        query_tiles=table.T[heavy_first].int().contiguous(),
        key_tiles=pad(key_tile[order].int(), (0, 1)),
    )


def key_chunks(subtree_end: Tensor, tile_q: int, tile_k: int, programs: int) -> KeyChunks:
    """Chunks of query tiles of ``tile_q`` tokens for key tiles of ``tile_k`` keys.

    A chunk is as long as makes about ``programs`` of them, but at least ``MIN_CHUNK`` query tiles;
    every key tile has one chunk at least, so that its gradient is written.
    """
    ranges = _ranges(subtree_end, tile_q, tile_k)
    visits = ranges.end - ranges.begin
    length = max(MIN_CHUNK, -(-int(visits.sum()) // max(1, programs)))
    per_tile = ((visits + length - 1) // length).clamp(min=1)
    tile, nth = _positions(per_tile)
    begin, visits, n_whole = ranges.begin[tile], visits[tile], ranges.n_whole[tile]
    n_masked, before = visits - n_whole, ranges.whole[tile] - begin
    # Places of a tile's visits: masked ones before the whole ones, masked ones after, whole ones.
    low, high = nth * length, torch.minimum((nth + 1) * length, visits)
    masked = (torch.minimum(high, n_masked) - low).clamp(min=0)
    whole_low = (low - n_masked).clamp(min=0)
    whole = (high - n_masked).clamp(min=0) - whole_low
    starts_before = low < before
    split = per_tile[tile] > 1
    table = torch.stack([
        tile,
        torch.where(split, split.cumsum(0) - 1, -1),
        begin + low + torch.where(starts_before, 0, n_whole),
        torch.where(starts_before, before - low, 0),
        torch.where(starts_before, n_whole, 0),
        masked,
        ranges.whole[tile] + whole_low,
        whole,
    ])  # fmt: skip
    heavy_first = torch.sort(high - low, descending=True, stable=True).indices
    firsts = split & (nth == 0)
    return KeyChunks(
        chunks=table.T[heavy_first].int().contiguous(),
        split_tiles=torch.stack([tile, table[1], per_tile[tile]]).T[firsts].int().contiguous(),
        slots=int(split.sum()),
    )
