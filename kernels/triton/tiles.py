"""What each Triton program visits: runs of key tiles, and chunks of query tiles.

Notable:
- the query tiles that see any key of a key tile are one range ``[first key, max subtree_end)``, and
  those that see all of it are one range inside it, ``[last key, min subtree_end)``: everything here
  follows from the two by vectorised operations on the mask's device, never an N x N tensor
- a list is kept as runs of neighbouring key tiles: a chain of a million tokens has one run a query
  tile where it has thousands of tiles; a run begins where a key tile's range has query tiles that
  the key tile before has not, and ends where the next has not, so runs are never spelled out
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

    query_tiles: int32 ``(tiles, 7)``: query tile; then first run and number of key tiles of those
                 seen whole, of those in part with every key before every query, of the diagonal
    runs:        int32 ``(runs + 1, 2)``: first key tile and key tiles of each run, one spare
    """

    query_tiles: Tensor
    runs: Tensor


@dataclass(frozen=True, eq=False)
class KeyChunks:
    """The query tiles each key tile is seen by, cut into chunks, for ``dkv_kernel``.

    chunks:      int32 ``(chunks, 6)``: key tile; slot of its sums, or -1 if the tile is one chunk;
                 first query tile of the diagonal, of those that see all, of those behind, and stop
    split_tiles: int32 ``(tiles of more than one chunk, 3)``: key tile, first slot, slots
    slots:       chunks that belong to split tiles
    """

    chunks: Tensor
    split_tiles: Tensor
    slots: int


@dataclass(frozen=True, eq=False)
class _Ranges:
    """Per key tile, int64: the query tiles that see it, ``begin <= whole <= partial <= end``.

    Some keys lie behind some queries in ``[begin, whole)``, all is seen in ``[whole, partial)``,
    and some subtrees end in ``[partial, end)``.
    """

    begin: Tensor
    whole: Tensor
    partial: Tensor
    end: Tensor


def _ranges(subtree_end: Tensor, tile_q: int, tile_k: int) -> _Ranges:
    n_tokens = subtree_end.numel()
    tiles = -(-n_tokens // tile_k)
    ends = pad(subtree_end.long(), (0, tiles * tile_k - n_tokens)).view(tiles, tile_k)
    lowest, highest = ends.amin(1), ends.amax(1)
    first_key = torch.arange(0, tiles * tile_k, tile_k, device=subtree_end.device)
    begin = first_key // tile_q
    end = torch.maximum(begin, (highest + tile_q - 1) // tile_q)
    whole = torch.minimum(end, (first_key + tile_k - 1 + tile_q - 1) // tile_q)
    partial = torch.minimum(end, torch.maximum(whole, lowest // tile_q))
    return _Ranges(begin, whole, partial, end)


def visited_area(subtree_end: Tensor, tile_q: int, tile_k: int) -> int:
    """Pairs in the tiles that are not empty: what a kernel with such tiles computes."""
    ranges = _ranges(subtree_end, tile_q, tile_k)
    return int((ranges.end - ranges.begin).sum()) * tile_q * tile_k


def _positions(counts: Tensor) -> tuple[Tensor, Tensor]:
    """For counts ``(2, 0, 1)``: owners ``(0, 0, 2)`` and places among the owner's ``(0, 1, 0)``."""
    owner = torch.repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    return owner, torch.arange(len(owner), device=counts.device) - starts[owner]


def _edges(low: Tensor, high: Tensor, other_low: Tensor, other_high: Tensor) -> Tensor:
    """Sorted ``query tile * key tiles + key tile`` where ``[low, high)`` holds the query tile and
    the other range of the same key tile does not."""
    first_stop = torch.minimum(high, torch.maximum(low, other_low))
    second = torch.minimum(high, torch.maximum(first_stop, other_high))
    before = first_stop - low
    tile, nth = _positions(before + high - second)
    query_tile = nth + torch.where(nth < before[tile], low[tile], (second - before)[tile])
    return torch.sort(query_tile * len(low) + tile).values


def _runs(low: Tensor, high: Tensor, query_tiles: int) -> tuple[Tensor, Tensor, Tensor]:
    """Runs of the key tiles whose ranges ``[low, high)`` hold each query tile.

    Returns the runs ``(runs, 2)`` of all query tiles in order, and per query tile its number of
    runs and of key tiles.
    """
    key_tiles = len(low)
    none = low.new_zeros(1)
    starts = _edges(low, high, torch.cat([none, low[:-1]]), torch.cat([none, high[:-1]]))
    stops = _edges(low, high, torch.cat([low[1:], none]), torch.cat([high[1:], none]))
    lengths = stops - starts + 1
    counts = torch.bincount(starts // key_tiles, minlength=query_tiles)
    entered = torch.bincount(low, minlength=query_tiles + 1)
    left = torch.bincount(high, minlength=query_tiles + 1)
    return (
        torch.stack([starts % key_tiles, lengths], 1),
        counts,
        (entered - left).cumsum(0)[:query_tiles],
    )


def query_lists(subtree_end: Tensor, tile_q: int, tile_k: int) -> QueryLists:
    """Lists of key tiles of ``tile_k`` keys for query tiles of ``tile_q`` tokens.

    subtree_end: int32 ``(N,)``; the lists lie on its device.
    """
    ranges = _ranges(subtree_end, tile_q, tile_k)
    tiles = -(-subtree_end.numel() // tile_q)
    columns = [torch.arange(tiles, device=subtree_end.device)]
    runs: list[Tensor] = []
    for low, high in (
        (ranges.whole, ranges.partial),
        (ranges.partial, ranges.end),
        (ranges.begin, ranges.whole),
    ):
        own, counts, visits = _runs(low, high, tiles)
        before = sum(len(x) for x in runs)
        columns += [before + counts.cumsum(0) - counts, visits]
        runs.append(own)
    table = torch.stack(columns)
    heavy_first = torch.sort(table[2::2].sum(0), descending=True, stable=True).indices
    return QueryLists(
        query_tiles=table.T[heavy_first].int().contiguous(),
        runs=pad(torch.cat(runs).int(), (0, 0, 0, 1)),
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
    low = ranges.begin[tile] + nth * length
    stop = torch.minimum(low + length, ranges.end[tile])
    split = per_tile[tile] > 1
    table = torch.stack([
        tile,
        torch.where(split, split.cumsum(0) - 1, -1),
        low,
        torch.minimum(stop, torch.maximum(low, ranges.whole[tile])),
        torch.minimum(stop, torch.maximum(low, ranges.partial[tile])),
        stop,
    ])  # fmt: skip
    heavy_first = torch.sort(stop - low, descending=True, stable=True).indices
    firsts = split & (nth == 0)
    return KeyChunks(
        chunks=table.T[heavy_first].int().contiguous(),
        split_tiles=torch.stack([tile, table[1], per_tile[tile]]).T[firsts].int().contiguous(),
        slots=int(split.sum()),
    )
