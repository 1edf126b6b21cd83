"""Rows: ragged token rows and the prompt group each belongs to.

Notable:
- one flat ``tokens`` array and one ``offsets`` array, as Arrow and FlashAttention's varlen have it
- immutable: arrays are read-only, every operation returns new ``Rows``
- padded batches are read through their mask, so left padding and holes are removed, not packed
  (AReaL reads the first ``mask.sum()`` tokens of each row, whatever the mask says)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = npt.NDArray[np.integer]
Decoder = Callable[[Sequence[int]], str]

MAX_TOKEN_ID = 2**31 - 1


class RowsError(ValueError):
    """A row cannot be used as tokens; the message names the row and the mend."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Token rows with their groups.

    tokens:    int32 ``(total,)``, all rows one after the other
    offsets:   int64 ``(rows + 1,)``, row ``i`` is ``tokens[offsets[i]:offsets[i + 1]]``
    group:     int32 ``(rows,)``, rows sampled from one prompt share a number
    loss_mask: uint8 ``(total,)`` or None, 1 where a token is trained on
    decoder:   token ids to readable text, or None where no tokenizer is known
    """

    tokens: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    group: npt.NDArray[np.int32]
    loss_mask: npt.NDArray[np.uint8] | None = None
    decoder: Decoder | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        rows = len(self.offsets) - 1
        if rows < 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.tokens):
            raise RowsError(
                f"offsets must run from 0 to the number of tokens ({len(self.tokens)}); "
                f"they are {self.offsets[:1].tolist()} … {self.offsets[-1:].tolist()}"
            )
        if len(self.group) != rows:
            raise RowsError(f"{rows} rows but {len(self.group)} group numbers")
        if self.loss_mask is not None and len(self.loss_mask) != len(self.tokens):
            raise RowsError(f"{len(self.tokens)} tokens but {len(self.loss_mask)} loss mask values")
        lengths = np.diff(self.offsets)
        if len(lengths) and lengths.min() < 0:
            raise RowsError(f"offsets go back at row {int(np.argmin(lengths))}")
        for array in (self.tokens, self.offsets, self.group, self.loss_mask):
            if array is not None:
                array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> npt.NDArray[np.int32]:
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[npt.NDArray[np.int32]]:
        return (self[i] for i in range(len(self)))

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """int64 ``(rows,)``, tokens in each row."""
        return np.diff(self.offsets)

    @property
    def n_tokens(self) -> int:
        return len(self.tokens)

    @property
    def longest(self) -> int:
        """Tokens in the longest row; 0 where there are no rows."""
        return int(self.lengths.max(initial=0))

    @cached_property
    def n_groups(self) -> int:
        return len(np.unique(self.group))

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over tokens, offsets, groups and loss mask: the key of every cache."""
        digest = hashlib.blake2b(digest_size=8)
        for array in (self.tokens, self.offsets, self.group, self.loss_mask):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
            digest.update(b"|")
        return digest.hexdigest()

    def take(self, indices: npt.ArrayLike) -> Rows:
        """The rows at ``indices`` (int ``(n,)``), in that order; groups keep their numbers."""
        index = np.asarray(indices, dtype=np.int64)
        gather, offsets = ragged_ranges(self.offsets[index], self.lengths[index])
        return Rows(
            self.tokens[gather],
            offsets,
            self.group[index],
            None if self.loss_mask is None else self.loss_mask[gather],
            self.decoder,
        )

    def take_tokens(self, indices: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Where in ``tokens`` the rows at ``indices`` stand, row after row: int64 ``(L,)``."""
        index = np.asarray(indices, dtype=np.int64)
        return ragged_ranges(self.offsets[index], self.lengths[index])[0]

    def truncated(self, max_length: int) -> Rows:
        """Every row cut after ``max_length`` tokens."""
        lengths = np.minimum(self.lengths, max_length)
        gather, offsets = ragged_ranges(self.offsets[:-1], lengths)
        mask = None if self.loss_mask is None else self.loss_mask[gather]
        return Rows(self.tokens[gather], offsets, self.group.copy(), mask, self.decoder)

    def first_groups(self, n_groups: int) -> Rows:
        """The rows of the ``n_groups`` smallest group numbers, in file order."""
        kept = np.unique(self.group)[:n_groups]
        return self.take(np.flatnonzero(np.isin(self.group, kept)))

    def text(self, token_ids: Sequence[int] | IntArray) -> str:
        """Readable text of token ids; the ids themselves where no tokenizer is known."""
        ids = [int(t) for t in token_ids]
        return self.decoder(ids) if self.decoder else " ".join(map(str, ids))

    @classmethod
    def from_lists(
        cls,
        sequences: Sequence[npt.ArrayLike],
        group: npt.ArrayLike | None = None,
        loss_mask: Sequence[npt.ArrayLike] | None = None,
        decoder: Decoder | None = None,
    ) -> Rows:
        """Rows from one sequence of token ids per row; without ``group`` each is its own group.

        Raises RowsError naming the first row with an id that is not an integer in 0 … 2³¹−1.
        """
        parts = [_token_ids(sequence, row) for row, sequence in enumerate(sequences)]
        lengths = np.array([len(p) for p in parts], dtype=np.int64)
        mask: npt.NDArray[np.uint8] | None = None
        if loss_mask is not None:
            masks = [np.asarray(m, dtype=np.uint8) for m in loss_mask]
            wrong = [i for i, m in enumerate(masks) if len(m) != lengths[i]]
            if wrong or len(masks) != len(parts):
                at = wrong[0] if wrong else min(len(masks), len(parts))
                raise RowsError(f"row {at}: the loss mask does not have one value per token")
            mask = np.concatenate(masks) if masks else np.empty(0, dtype=np.uint8)
        return cls(
            np.concatenate(parts) if parts else np.empty(0, dtype=np.int32),
            offsets_of(lengths),
            _groups(group, len(parts)),
            mask,
            decoder,
        )

    @classmethod
    def from_padded(
        cls,
        input_ids: npt.ArrayLike,
        attention_mask: npt.ArrayLike,
        group: npt.ArrayLike | None = None,
        loss_mask: npt.ArrayLike | None = None,
    ) -> Rows:
        """Rows from a padded batch, ``input_ids`` and ``attention_mask`` of shape ``(B, S)``.

        The mask decides which tokens are real: right padding, left padding and holes give the
        same rows.
        """
        ids, keep = np.asarray(input_ids), np.asarray(attention_mask).astype(bool)
        if ids.ndim != 2 or ids.shape != keep.shape:
            raise RowsError(
                f"input_ids {ids.shape} and attention_mask {keep.shape} must be one (B, S) shape"
            )
        offsets = offsets_of(keep.sum(axis=1))
        flat = ids[keep]
        _check_ids(flat, offsets)
        mask = None if loss_mask is None else np.asarray(loss_mask)[keep].astype(np.uint8)
        return cls(flat.astype(np.int32), offsets, _groups(group, len(ids)), mask)

    @classmethod
    def from_arrow(
        cls, column: pa.Array | pa.ChunkedArray, group: npt.ArrayLike | None = None
    ) -> Rows:
        """Rows from an Arrow list column of integers; int32 values without nulls are not copied."""
        import pyarrow.types as types

        array = _one_chunk(column)
        if not (types.is_list(array.type) or types.is_large_list(array.type)):
            raise RowsError(f"token ids must be lists of integers; the column holds {array.type}")
        if not types.is_integer(array.type.value_type):
            raise RowsError(f"token ids must be integers; the lists hold {array.type.value_type}")
        if array.null_count:
            raise RowsError(f"row {_first_null(array)}: no token ids (null)")
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        offsets = offsets - offsets[0]
        if values.null_count:
            row = int(np.searchsorted(offsets, _first_null(values), side="right") - 1)
            raise RowsError(f"row {row}: a token id is null")
        flat = values.to_numpy(zero_copy_only=False)
        _check_ids(flat, offsets)
        return cls(flat.astype(np.int32, copy=False), offsets, _groups(group, len(array)))


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _first_null(array: pa.Array) -> int:
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])


def offsets_of(lengths: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """int64 ``(n + 1,)``: 0 and the running sum of ``lengths`` ``(n,)``."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _groups(group: npt.ArrayLike | None, rows: int) -> npt.NDArray[np.int32]:
    return np.arange(rows, dtype=np.int32) if group is None else np.array(group, dtype=np.int32)


def _token_ids(sequence: npt.ArrayLike, row: int) -> npt.NDArray[np.int32]:
    ids = np.asarray(sequence)
    if ids.size == 0:
        return np.empty(0, dtype=np.int32)
    if ids.ndim != 1:
        raise RowsError(f"row {row}: token ids must be one flat list, this has shape {ids.shape}")
    if not np.issubdtype(ids.dtype, np.integer):
        raise RowsError(f"row {row}: token ids must be integers, these are {ids.dtype}")
    _check_ids(ids, np.array([0, len(ids)]), first_row=row)
    return ids.astype(np.int32)


def _check_ids(ids: IntArray, offsets: IntArray, first_row: int = 0) -> None:
    if ids.size == 0:
        return
    if not np.issubdtype(ids.dtype, np.integer):
        raise RowsError(f"token ids must be integers, these are {ids.dtype}")
    bad = np.flatnonzero((ids < 0) | (ids > MAX_TOKEN_ID))
    if bad.size:
        row = first_row + int(np.searchsorted(offsets, bad[0], side="right") - 1)
        at = int(bad[0] - offsets[row - first_row])
        raise RowsError(
            f"row {row}: token id {int(ids[bad[0]])} at position {at} is not in 0 … {MAX_TOKEN_ID}"
        )


def ragged_ranges(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Concatenated ``arange(start, start + length)`` and the offsets of each range in it."""
    offsets = offsets_of(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1]), offsets
