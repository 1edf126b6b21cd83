"""TreeMask: the attention mask of a packed forest as one int32 a token, and its tiles.

Notable:
- tokens are in depth-first order: query q sees key k exactly when ``k <= q < subtree_end[k]``
- padding tokens (at the end) have ``subtree_end`` 0: they see nothing and nothing sees them
- the query tiles that see a key tile are one range, and so are those that see all of it: the tile
  lists need minima and maxima per tile, never an N x N tensor
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Int32s = npt.NDArray[np.int32]

MAX_TOKENS = 2**31 - 1
_KEPT = 4  # masks that ``of_tensor`` finds again
_COMPARISONS_AT_ONCE = 1 << 22  # tile pairs compared in one go: 4 MB of bools


class MaskError(ValueError):
    """``subtree_end`` is not that of a forest in depth-first order; the message says where."""


@dataclass(frozen=True, eq=False)
class TreeNodes:
    """Runs of tokens without a branch, in depth-first order. R nodes.

    start, stop: int64 ``(R,)``, the node's tokens are ``start … stop - 1``
    end:         int64 ``(R,)``, exclusive end of the node's subtree
    parent:      int64 ``(R,)``, node above, -1 at a root
    depth:       int64 ``(R,)``, tokens above the node's first token
    """

    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    parent: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class TileLists:
    """Which tiles of the mask hold anything, for one tile size. Int32 tensors on the mask's device.

    Compressed rows, key tiles ascending: query tile i sees parts of
    ``partial_k[partial_offsets[i] : partial_offsets[i + 1]]`` and all of
    ``full_k[full_offsets[i] : full_offsets[i + 1]]``; offsets are ``(Tq + 1,)``
    """

    tile_q: int
    tile_k: int
    partial_offsets: torch.Tensor
    partial_k: torch.Tensor
    full_offsets: torch.Tensor
    full_k: torch.Tensor

    @property
    def n_full(self) -> int:
        """Tiles in which every query sees every key."""
        return len(self.full_k)

    @property
    def n_partial(self) -> int:
        """Tiles in which some query sees some key, but not every one every key."""
        return len(self.partial_k)


@dataclass(frozen=True, eq=False)
class TreeMask:
    """Who sees whom in a packed forest of N tokens, the last ``n - n_real`` of them padding.

    subtree_end: int32 ``(N,)`` on ``device``: exclusive end of each token's subtree, 0 at padding
    on_host:     the same as numpy, for what is planned on the CPU
    """

    subtree_end: torch.Tensor
    on_host: Int32s
    n_real: int
    _tiles: dict[tuple[int, int], TileLists] = field(default_factory=dict, repr=False)

    @classmethod
    def from_subtree_end(
        cls, subtree_end: torch.Tensor | npt.ArrayLike, device: torch.device | str | None = None
    ) -> TreeMask:
        """The mask of ``subtree_end`` int ``(N,)``; on its own device unless ``device`` says else.

        Raises MaskError where the values are not those of a forest in depth-first order.
        """
        if isinstance(subtree_end, torch.Tensor):
            device = subtree_end.device if device is None else device
            subtree_end = subtree_end.detach().cpu().numpy()
        return cls._of(np.asarray(subtree_end), device)

    @classmethod
    def of_tensor(cls, subtree_end: torch.Tensor) -> TreeMask:
        """The mask that holds this very tensor, made anew only where it is not among the last few.

        For operators, which are handed tensors alone. Raises MaskError.
        """
        found = _recent.get(_key(subtree_end))
        return found or cls._of(subtree_end.detach().cpu().numpy(), None, subtree_end)

    @classmethod
    def _of(
        cls,
        host: npt.NDArray[Any],
        device: torch.device | str | None,
        on_device: torch.Tensor | None = None,
    ) -> TreeMask:
        if host.ndim != 1 or not np.issubdtype(host.dtype, np.integer):
            raise MaskError(
                "subtree_end must be one flat array of integers; "
                f"it has shape {host.shape} and type {host.dtype}"
            )
        if not 0 < len(host) <= MAX_TOKENS:
            raise MaskError(f"a mask needs 1 … {MAX_TOKENS} tokens; subtree_end has {len(host)}")
        n_real = _check_ends(host)
        if on_device is None:
            on_device = torch.tensor(host, dtype=torch.int32, device=device)
        on_host = on_device.numpy(force=True)  # on the CPU one array serves as both
        on_host.setflags(write=False)
        mask = cls(on_device, on_host, n_real)
        _check_nesting(mask.nodes)
        _recent[_key(on_device)] = mask
        while len(_recent) > _KEPT:
            _recent.popitem(last=False)
        return mask

    @property
    def n(self) -> int:
        """Tokens, padding included."""
        return self.subtree_end.shape[0]

    @property
    def device(self) -> torch.device:
        return self.subtree_end.device

    @cached_property
    def mask_area(self) -> int:
        """Pairs (query, key) that attend: the sum of ``depth + 1`` over real tokens."""
        real = self.on_host[: self.n_real].astype(np.int64)
        return int(real.sum()) - self.n_real * (self.n_real - 1) // 2

    @cached_property
    def nodes(self) -> TreeNodes:
        """Maximal runs in which each token is the only child of the one before it.

        A place where rows end but none parts is no boundary: attention does not see it.
        """
        end = self.on_host[: self.n_real].astype(np.int64)
        breaks = np.flatnonzero(end[1:] != end[:-1]) + 1
        start = np.concatenate([[0], breaks]).astype(np.int64)[: self.n_real]
        stop = np.concatenate([breaks, [self.n_real]]).astype(np.int64)[: len(start)]
        node_end = end[start]
        order = np.arange(len(start))
        # An interval has closed by position s if its end is <= s, and then it began before s.
        closed = np.searchsorted(np.sort(node_end), start, side="right")
        level = order - closed
        depth = start - np.searchsorted(np.sort(end), start, side="right")
        # The parent is the last earlier node one level up: search in (level, number) order.
        key = level * max(len(start), 1) + order
        by_level = np.argsort(key)
        above = np.searchsorted(key[by_level], key - max(len(start), 1)) - 1
        parent = np.where(level > 0, by_level[np.maximum(above, 0)] if len(start) else 0, -1)
        return TreeNodes(start, stop, node_end, parent.astype(np.int64), depth.astype(np.int64))

    @cached_property
    def depth(self) -> Int32s:
        """int32 ``(N,)``: tokens above each token = its position in its rows; 0 at padding."""
        out = np.zeros(self.n, dtype=np.int32)
        real = self.on_host[: self.n_real]
        closed = np.cumsum(np.bincount(real, minlength=self.n_real + 1)[: self.n_real])
        out[: self.n_real] = np.arange(self.n_real) - closed
        return out

    def visible(self, queries: slice, keys: slice) -> torch.Tensor:
        """bool ``(queries, keys)`` on the device: one tile of the mask, spelled out."""
        q = torch.arange(self.n, device=self.device, dtype=torch.int32)[queries, None]
        k = torch.arange(self.n, device=self.device, dtype=torch.int32)[None, keys]
        return (k <= q) & (q < self.subtree_end[None, keys])

    def tiles(self, tile_q: int, tile_k: int) -> TileLists:
        """Empty, partial and full tiles of ``tile_q`` queries by ``tile_k`` keys; kept once made.

        A tile is empty iff its keys' last subtree ends before its queries begin or its keys begin
        after its queries end; it is full iff every subtree of its keys outlasts its queries and its
        keys end before its queries begin. Tiles with padding keys or queries are never full.
        """
        if tile_q < 1 or tile_k < 1:
            raise ValueError(f"tiles need at least one token a side; got {tile_q} x {tile_k}")
        if (tile_q, tile_k) not in self._tiles:
            self._tiles[tile_q, tile_k] = _tile_lists(self, tile_q, tile_k)
        return self._tiles[tile_q, tile_k]

    def visited_area(self, tile_q: int, tile_k: int) -> int:
        """Pairs in the tiles that are not empty: what a kernel with such tiles computes."""
        first, stop, _, _ = _query_ranges(self, tile_q, tile_k)
        return int((stop - first).sum()) * tile_q * tile_k

    def block_efficiency(self, tile_q: int, tile_k: int) -> float:
        """``mask_area / visited_area``: the share of computed pairs that attend, 0 … 1."""
        visited = self.visited_area(tile_q, tile_k)
        return self.mask_area / visited if visited else 1.0


# A mask kept here keeps its tensor: no other one has the same address while it is.
_recent: OrderedDict[tuple[int, ...], TreeMask] = OrderedDict()


def _key(subtree_end: torch.Tensor) -> tuple[int, ...]:
    """A tensor's memory and how often that was written to."""
    written = 0 if subtree_end.is_inference() else subtree_end._version
    return subtree_end.data_ptr(), subtree_end.numel(), written


def _check_ends(end: npt.NDArray[np.integer]) -> int:
    """Real tokens; raises where a value cannot be the end of its token's subtree."""
    padding = end == 0
    n_real = len(end) - int(padding[::-1].argmin()) if not padding.all() else 0
    token = np.arange(n_real)
    wrong = np.flatnonzero((end[:n_real] <= token) | (end[:n_real] > n_real))
    if wrong.size:
        at = int(wrong[0])
        why = (
            "is padding before the last real token; padding belongs at the end"
            if end[at] == 0
            else f"does not lie in {at + 1} … {n_real}, after the token and within the forest"
        )
        raise MaskError(f"subtree_end[{at}] = {int(end[at])} {why}")
    return n_real


def _check_nesting(nodes: TreeNodes) -> None:
    """Subtrees must nest: no node may begin inside another's subtree and end after it.

    ``TreeNodes.parent`` is the parent if the ends nest; if they do not, some node outlasts the
    parent found for it, or its parent had already ended.
    """
    child = np.flatnonzero(nodes.parent >= 0)
    above = nodes.parent[child]
    wrong = np.flatnonzero(
        (nodes.end[child] > nodes.end[above]) | (nodes.start[child] >= nodes.end[above])
    )
    if wrong.size:
        at, outer = int(child[wrong[0]]), int(above[wrong[0]])
        raise MaskError(
            f"the subtree of token {nodes.start[at]} (up to {nodes.end[at]}) is not inside the one "
            f"it begins in (token {nodes.start[outer]}, up to {nodes.end[outer]}): tokens are not "
            "in depth-first order"
        )


def _query_ranges(
    mask: TreeMask, tile_q: int, tile_k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """First and stop of the query tiles that see each key tile, and of those that see all of it."""
    n_q, n_k = -(-mask.n // tile_q), -(-mask.n // tile_k)
    end = mask.subtree_end
    short = n_k * tile_k - mask.n
    tiled = torch.nn.functional.pad(end, (0, short)).view(n_k, tile_k).long()
    last_end = tiled.amax(1)
    if short:  # the tile's own last keys are no padding of the mask
        tiled[-1, tile_k - short :] = MAX_TOKENS
    first_end = tiled.amin(1)
    first_k = torch.arange(n_k, device=end.device) * tile_k
    last_k = (first_k + tile_k).clamp(max=mask.n) - 1
    # Last query of tile i is min((i + 1) * tile_q, n) - 1; only the last tile can be short, and
    # ends never exceed n, so it is full exactly when first_end is n.
    first = first_k // tile_q
    stop = torch.maximum((last_end + tile_q - 1) // tile_q, first)
    stop = torch.where(last_end > 0, stop, first)
    full_first = (last_k + tile_q - 1) // tile_q
    full_stop = torch.where(first_end >= mask.n, n_q, first_end // tile_q)
    full_first = torch.minimum(full_first, stop)
    full_stop = torch.minimum(torch.maximum(full_stop, full_first), stop)
    return first, stop, full_first, full_stop


def _tile_lists(mask: TreeMask, tile_q: int, tile_k: int) -> TileLists:
    first, stop, full_first, full_stop = _query_ranges(mask, tile_q, tile_k)
    n_q, device = -(-mask.n // tile_q), mask.device
    partial, full = [], []
    rows = max(_COMPARISONS_AT_ONCE // len(first), 1)
    for low in range(0, n_q, rows):
        i = torch.arange(low, min(low + rows, n_q), device=device)[:, None]
        is_full = (full_first <= i) & (i < full_stop)
        is_partial = (first <= i) & (i < stop) & ~is_full
        full.append((is_full.sum(1), is_full.nonzero()[:, 1].int()))
        partial.append((is_partial.sum(1), is_partial.nonzero()[:, 1].int()))
    partial_offsets, partial_k = _compressed(partial)
    full_offsets, full_k = _compressed(full)
    return TileLists(tile_q, tile_k, partial_offsets, partial_k, full_offsets, full_k)


def _compressed(
    chunks: list[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor]:
    counts = torch.cat([count for count, _ in chunks])
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    return offsets, torch.cat([column for _, column in chunks])
