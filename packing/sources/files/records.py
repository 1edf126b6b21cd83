"""Records in chunks: what every file format is read as, before roles and rows.

Notable:
- a chunk is small (about a megabyte of text), so progress shows and cancel works within a second
- lists of integers stay numpy arrays: token ids never become Python objects
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from packing.sources.errors import Where

CHUNK_BYTES = 1 << 20
CHUNK_RECORDS = 512

Record = dict[str, Any]


@dataclass(frozen=True)
class Chunk:
    """Consecutive records of one file.

    file:      its name in messages
    first_row: number of ``records[0]`` in that file, from 0
    lines:     line of each record, from 1, or None where the format has no lines
    fraction:  how much of the file is read after this chunk, 0 … 1
    numbers:   of each record in the file, where they are not ``first_row, first_row + 1, …``
    """

    file: str
    first_row: int
    records: list[Record]
    lines: list[int] | None
    fraction: float
    numbers: list[int] | None = None

    def where(self, i: int) -> Where:
        """The place of ``records[i]``."""
        number = self.numbers[i] if self.numbers else self.first_row + i
        return Where(self.file, number, self.lines[i] if self.lines else None)

    def followed_by(self, other: Chunk) -> Chunk:
        """The records of both, each at its own number, under the name of the first file."""
        records = [*self.records, *other.records]
        numbers = [c.where(i).row or 0 for c in (self, other) for i in range(len(c.records))]
        lines = [*self.lines, *other.lines] if self.lines and other.lines else None
        return Chunk(self.file, self.first_row, records, lines, other.fraction, numbers)

    def only(self, kept: Sequence[int], records: list[Record]) -> Chunk:
        """``records`` at the places of the ``kept`` ones of this chunk."""
        rows = [self.numbers[i] if self.numbers else self.first_row + i for i in kept]
        lines = [self.lines[i] for i in kept] if self.lines else None
        return Chunk(self.file, self.first_row, records, lines, self.fraction, rows)

    def sliced(self, start: int, stop: int) -> Chunk:
        """Records ``start`` to ``stop`` of this chunk, at their own places."""
        lines = self.lines[start:stop] if self.lines else None
        numbers = self.numbers[start:stop] if self.numbers else None
        records = self.records[start:stop]
        return Chunk(self.file, self.first_row + start, records, lines, self.fraction, numbers)


def arrow_chunks(
    batch: pa.RecordBatch | pa.Table, file: str, first_row: int, rows_total: int
) -> Iterator[Chunk]:
    """A record batch as chunks; its columns have different names."""
    names = batch.schema.names
    rows_per_chunk = max(1, min(CHUNK_RECORDS, CHUNK_RECORDS * CHUNK_BYTES // (batch.nbytes + 1)))
    for start in range(0, batch.num_rows, rows_per_chunk):
        piece = batch.slice(start, rows_per_chunk)
        columns = []
        for i, name in enumerate(names):
            try:
                columns.append(arrow_values(piece.column(i)))
            except UnicodeDecodeError as error:
                raise Where(file, first_row + start).error(
                    f"text in this or one of the next {piece.num_rows} rows is not UTF-8 "
                    f"({error.reason})",
                    "save the text as UTF-8",
                    name,
                ) from None
        records = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        done = first_row + start + len(records)
        yield Chunk(file, first_row + start, records, None, done / max(rows_total, done))


def picked_columns(names: Sequence[str], columns: Sequence[str] | None, file: str) -> list[str]:
    """``names`` that are among ``columns`` (None: all). Raises SourceError for a name twice."""
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise Where(file).error(
            f"the column '{twice[0]}' is there {names.count(twice[0])} times", "rename one"
        )
    return [n for n in names if columns is None or n in columns]


def arrow_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python values of a column; lists of integers without nulls as numpy arrays, not copied."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in arrow_values(chunk)]
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return list(column.to_pylist())
    if not pa.types.is_integer(kind.value_type) or column.null_count:
        return list(column.to_pylist())
    offsets = column.offsets.to_numpy()
    values = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    if values.null_count:
        return list(column.to_pylist())
    flat = values.to_numpy(zero_copy_only=False)
    bounds = (offsets - offsets[0]).tolist()
    return [np.asarray(flat[a:b]) for a, b in pairwise(bounds)]
