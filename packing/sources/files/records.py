"""Chunks of records out of Arrow batches.

Notable:
- a chunk is small (about a megabyte of text), so progress shows and cancel works within a second
- lists of integers stay numpy arrays: token ids never become Python objects
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from packing.sources.chunks import Chunk
from packing.sources.errors import Where

CHUNK_BYTES = 1 << 20
CHUNK_RECORDS = 512


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
