"""The flat baseline: AReaL's micro-batches without a tree, and the plain padded batch.

Notable:
- rows are laid one after the other (varlen attention), so nothing is shared
- the micro-batches of ``split_padded_tensor_dict_into_mb_list``, padded as ``pad_mb_list`` pads
- ``granularity`` adjacent rows stay together; ``n_mbs`` is the least number of micro-batches
- all positions are places in the sequence of lengths given, not row numbers of a dataset
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.packers.allocate import NO_CAPACITY, allocator
from packing.spec import MicroBatchSpec

Int64s = npt.NDArray[np.int64]

TOKENS_PER_PAGE = 256
"""AReaL pads to whole 2 MiB pages of a hidden size of 4096 in bf16."""


@dataclass(frozen=True)
class PaddingRule:
    """How an engine pads a flat micro-batch; FSDP: the defaults.

    pad_to_maximum: to exactly ``max_tokens_per_mb`` (ignored where that is not set)
    batch_align_to: the micro-batch to a multiple of this as well as of 256 (Archon)
    seq_align_to:   each row to a multiple of this first (Megatron)
    """

    pad_to_maximum: bool = False
    batch_align_to: int | None = None
    seq_align_to: int | None = None

    @classmethod
    def megatron(
        cls, tp: int = 1, cp: int = 1, fp8: bool = False, pad_to_maximum: bool = False
    ) -> PaddingRule:
        """Rows are sliced over tensor and context parallel ranks, in 16s for fp8."""
        align = 2 * tp * cp if cp > 1 else tp
        return cls(pad_to_maximum, seq_align_to=math.lcm(align, 16) if fp8 else align)

    @classmethod
    def archon(
        cls,
        hidden_size: int,
        bytes_per_value: int = 2,
        tp: int = 1,
        cp: int = 1,
        pad_to_maximum: bool = False,
    ) -> PaddingRule:
        """Whole 2 MiB pages of the model's own hidden size."""
        page = max(2**21 // hidden_size // bytes_per_value, 1)
        return cls(pad_to_maximum, batch_align_to=math.lcm(page, 2 * tp * cp))

    def padded_length(self, lengths: Int64s, max_tokens_per_mb: int | None) -> int:
        """Tokens that one micro-batch of rows of ``lengths`` ``(n,)`` becomes.

        With ``seq_align_to`` this is the length fed to the model; AReaL's log and
        ``padded_to_lengths`` keep the target before that adjustment.
        """
        total = int(lengths.sum())
        if self.pad_to_maximum and max_tokens_per_mb is not None:
            target = max_tokens_per_mb
        else:
            target = _align(_align(total, TOKENS_PER_PAGE), self.batch_align_to or 1)
        if self.seq_align_to is not None:
            unit = math.lcm(self.seq_align_to, TOKENS_PER_PAGE)
            aligned = int((-(-lengths // self.seq_align_to) * self.seq_align_to).sum())
            target = max(_align(target, unit), _align(aligned, unit))
        if target < total:
            raise ValueError(f"pad_to_length {target} is smaller than total length {total}.")
        return target


@dataclass(frozen=True)
class MicroBatches:
    """Flat micro-batches of one rank.

    groups:     positions in each micro-batch, ascending; micro-batches in ascending order
    group_lens: tokens of each
    padded_to:  tokens of each after padding
    """

    groups: tuple[tuple[int, ...], ...]
    group_lens: tuple[int, ...]
    padded_to: tuple[int, ...]

    @property
    def n_mbs(self) -> int:
        return len(self.groups)

    @property
    def padded_tokens(self) -> int:
        """Tokens that run through the model, padding counted."""
        return sum(self.padded_to)

    def to_json(self) -> dict[str, Any]:
        return {
            "n_mbs": self.n_mbs,
            "group_lens": list(self.group_lens),
            "padded_to": list(self.padded_to),
        }


def split_micro_batches(
    lengths: npt.ArrayLike, spec: MicroBatchSpec, padding: PaddingRule | None = None
) -> MicroBatches:
    """Micro-batches of rows of ``lengths`` ``(n,)`` on one rank.

    Raises RuntimeError, in AReaL's words, where the rows do not divide by the granularity, a row
    (or ``granularity`` rows) exceeds ``max_tokens_per_mb``, or there are fewer rows than
    micro-batches; ValueError for an unknown packing algorithm.
    """
    rows = np.asarray(lengths, dtype=np.int64)
    return _padded(rows, _allocated(rows, spec), spec, padding or PaddingRule())


def split_synchronised(
    lengths_per_rank: Sequence[npt.ArrayLike],
    spec: MicroBatchSpec,
    padding: PaddingRule | None = None,
) -> tuple[MicroBatches, ...]:
    """Micro-batches of every rank, all ranks with the same count.

    As AReaL does it: the largest count becomes every rank's ``n_mbs``, until all agree.
    """
    ranks = [np.asarray(lengths, dtype=np.int64) for lengths in lengths_per_rank]
    allocated = [_allocated(rows, spec) for rows in ranks]
    while len(counts := {len(groups) for groups in allocated}) > 1:
        spec = replace(spec, n_mbs=max(counts))
        allocated = [_allocated(rows, spec) for rows in ranks]
    padding = padding or PaddingRule()
    return tuple(
        _padded(rows, groups, spec, padding) for rows, groups in zip(ranks, allocated, strict=True)
    )


def _allocated(rows: Int64s, spec: MicroBatchSpec) -> list[list[int]]:
    """Groups of units; a unit is ``granularity`` adjacent rows."""
    if len(rows) % spec.granularity:
        raise RuntimeError(f"Batch size {len(rows)} cannot divide granularity {spec.granularity}.")
    units = rows.reshape(-1, spec.granularity).sum(axis=1)
    cap = NO_CAPACITY if spec.max_tokens_per_mb is None else spec.max_tokens_per_mb
    return allocator(spec.packing_algorithm)(units, cap, spec.n_mbs, spec.n_mbs_divisor)


def _padded(
    rows: Int64s, allocated: list[list[int]], spec: MicroBatchSpec, padding: PaddingRule
) -> MicroBatches:
    within = np.arange(spec.granularity)
    groups = [
        (np.array(units)[:, None] * spec.granularity + within).ravel()
        for units in sorted(sorted(group) for group in allocated)
    ]
    return MicroBatches(
        tuple(tuple(group.tolist()) for group in groups),
        tuple(int(rows[group].sum()) for group in groups),
        tuple(padding.padded_length(rows[group], spec.max_tokens_per_mb) for group in groups),
    )


@dataclass(frozen=True)
class PaddedBatch:
    """Rows in a rectangle, every row as wide as the longest one."""

    rows: int
    width: int

    @classmethod
    def of(cls, lengths: npt.ArrayLike) -> PaddedBatch:
        """The rectangle that holds rows of ``lengths`` ``(n,)``."""
        array = np.asarray(lengths, dtype=np.int64)
        return cls(len(array), int(array.max(initial=0)))

    @property
    def tokens(self) -> int:
        """Tokens that run through the model, padding counted."""
        return self.rows * self.width

    def micro_batches(self, max_tokens_per_mb: int) -> tuple[tuple[int, ...], ...]:
        """Positions of as many adjacent rows at a time as fit ``max_tokens_per_mb`` padded tokens.

        Raises RuntimeError where one row does not fit.
        """
        if self.width > max_tokens_per_mb:
            raise RuntimeError(f"Values {[self.width]} is larger than capacity {max_tokens_per_mb}")
        step = max_tokens_per_mb // max(self.width, 1)
        starts = range(0, self.rows, step)
        return tuple(tuple(range(at, min(at + step, self.rows))) for at in starts)


def _align(length: int, unit: int) -> int:
    return -(-length // unit) * unit
