"""Micro-batches: what one forward and backward reads, as trees, as flat rows, or padded.

Notable:
- every mode attends over real tokens only: a flat row is a tree of one branch, and a padded batch
  costs batch x longest row outside attention, as with FlashAttention's unpadding; where padding
  lies changes no cost, so it all lies at the end
- an empty tree is a dummy: a whole forward and backward over padding, and no loss
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kernels.attention import TreeMask
from kernels.model.logprobs import CHUNK_SIZE, Transitions
from packing.layout import TreeLayout
from packing.rows import Rows, ragged_ranges


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """One forward and backward: a layout, and the length that it is padded to at its end."""

    layout: TreeLayout
    padded_tokens: int

    def __post_init__(self) -> None:
        if self.padded_tokens < max(self.layout.n_tokens, 1):
            raise ValueError(
                f"{self.layout.n_tokens} tokens cannot be padded to {self.padded_tokens}; "
                "max_tokens_per_mb must hold the largest tree"
            )
        if self.layout.subtree_end is None:
            raise ValueError("a step needs the depth-first layout: AReaL's order has no slices")


def tree_batches(layouts: Sequence[TreeLayout], max_tokens_per_mb: int) -> list[MicroBatch]:
    """Trees, each padded to ``max_tokens_per_mb``."""
    return [MicroBatch(layout, max_tokens_per_mb) for layout in layouts]


def flat_batches(
    rows: Rows, micro_batches: Sequence[npt.ArrayLike], multiple: int = 1
) -> list[MicroBatch]:
    """Rows one after the other, padded up to a multiple (AReaL: 256)."""
    layouts = [row_layout(rows, members) for members in micro_batches]
    return [MicroBatch(x, max(-(-x.n_tokens // multiple), 1) * multiple) for x in layouts]


def padded_batches(
    rows: Rows, micro_batches: Sequence[npt.ArrayLike], width: int
) -> list[MicroBatch]:
    """Rows at the cost of ``(B, width)`` batches; ``width`` is the longest row of them all."""
    layouts = [row_layout(rows, members) for members in micro_batches]
    return [MicroBatch(x, max(len(x.rows) * width, 1)) for x in layouts]


def row_layout(rows: Rows, members: npt.ArrayLike) -> TreeLayout:
    """A forest in which every row is a tree of its own: nothing is shared."""
    index = np.asarray(members, dtype=np.int64)
    taken = rows.take(index)
    starts = np.repeat(taken.offsets[:-1], taken.lengths)
    positions = np.arange(taken.n_tokens, dtype=np.int32)
    return TreeLayout(
        input_ids=taken.tokens,
        position_ids=(positions - starts).astype(np.int32),
        parent=np.where(positions == starts, -1, positions - 1).astype(np.int32),
        subtree_end=np.repeat(taken.offsets[1:], taken.lengths).astype(np.int32),
        rows=index,
        row_positions=positions,
        row_offsets=taken.offsets,
    )


@dataclass(frozen=True, eq=False)
class Inputs:
    """A micro-batch on a device: what ``TreeLM.forward`` takes."""

    input_ids: Tensor
    position_ids: Tensor
    transitions: Transitions

    @classmethod
    def of(cls, batch: MicroBatch, device: torch.device, chunk_size: int = CHUNK_SIZE) -> Inputs:
        layout, size = batch.layout, batch.padded_tokens
        return cls(
            _padded(layout.input_ids, size, device).long(),
            _padded(layout.position_ids, size, device).long(),
            Transitions.of(layout, size, device, chunk_size),
        )


def batch_mask(batch: MicroBatch, device: torch.device) -> TreeMask:
    """The mask of a micro-batch; padding sees nothing."""
    assert batch.layout.subtree_end is not None  # MicroBatch takes no other layout
    ends = np.zeros(batch.padded_tokens, dtype=np.int32)
    ends[: batch.layout.n_tokens] = batch.layout.subtree_end
    return TreeMask.from_subtree_end(ends, device)


def token_index(rows: Rows, layout: TreeLayout) -> npt.NDArray[np.int64]:
    """Index into ``rows.tokens`` of what ``layout`` predicts, in the order of its rows.

    That is every token but the first of each of its rows. Raises ValueError where the layout was
    made from other rows.
    """
    lengths = rows.lengths[layout.rows]
    wrong = np.flatnonzero(lengths != np.diff(layout.row_offsets))
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(
            f"row {int(layout.rows[at])} has {int(lengths[at])} tokens, but the layout holds "
            f"{int(np.diff(layout.row_offsets)[at])}: it was made from other rows"
        )
    return ragged_ranges(rows.offsets[layout.rows] + 1, np.maximum(lengths - 1, 0))[0]


def _padded(array: npt.NDArray[np.int32], size: int, device: torch.device) -> Tensor:
    out = np.zeros(size, dtype=np.int32)
    out[: len(array)] = array
    return torch.as_tensor(out, device=device)
