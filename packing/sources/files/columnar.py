"""Parquet, Arrow and CSV files as records, and ``.npz`` files of tokens as rows.

Notable:
- Arrow files are checked in full before use: offsets in a file are untrusted
- CSV cells stay text; whoever needs a list or a number reads it from the text
- ``.npz`` members are read without pickle, and their stated sizes are checked first
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from packing.rows import Rows, RowsError
from packing.sources.chunks import Chunk
from packing.sources.errors import SourceError, Where
from packing.sources.files.decompress import ByteCounter, decompressed
from packing.sources.files.paths import SourceFile
from packing.sources.files.records import CHUNK_RECORDS, arrow_chunks, picked_columns

# The longest CSV row: one block must hold it.
CSV_BLOCK_BYTES = 16 << 20
MAX_TOKENS = 1_000_000_000


def parquet_chunks(file: SourceFile, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
    """Records of a Parquet file, only ``columns`` where given. Raises SourceError if unreadable."""
    where = Where(file.name)
    try:
        with pq.ParquetFile(_arrow_input(file)) as parquet:
            wanted = picked_columns(parquet.schema_arrow.names, columns, file.name)
            rows, done = parquet.metadata.num_rows, 0
            if not rows:
                yield Chunk(file.name, 0, [], None, 1.0)
            for batch in parquet.iter_batches(batch_size=CHUNK_RECORDS, columns=wanted):
                yield from arrow_chunks(batch, file.name, done, rows)
                done += batch.num_rows
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise where.error(
            f"not readable as Parquet ({_first_line(error)})",
            "copy it again, or rename it to what it is",
        ) from None


def arrow_file_chunks(file: SourceFile, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
    """Records of an Arrow file or stream (Feather 2, ``datasets``' own files)."""
    where = Where(file.name)
    try:
        source = _arrow_input(file)
        try:
            reader: Any = pa.ipc.open_file(source)
            batches: Iterator[Any] = (reader.get_batch(i) for i in range(reader.num_record_batches))
        except pa.ArrowInvalid:
            source = _arrow_input(file)
            reader = pa.ipc.open_stream(source)
            batches = iter(reader)
        done = 0
        for batch in batches:
            batch.validate(full=True)
            wanted = picked_columns(batch.schema.names, columns, file.name)
            for chunk in arrow_chunks(batch.select(wanted), file.name, done, 0):
                yield replace(chunk, fraction=_told(source, file))
            done += batch.num_rows
        if not done:
            yield Chunk(file.name, 0, [], None, 1.0)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise where.error(
            f"not readable as Arrow ({_first_line(error)})",
            "copy it again, or rename it to what it is",
        ) from None


def csv_chunks(file: SourceFile, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
    """Records of a CSV or TSV file with a header line; every cell is text."""
    where = Where(file.name)
    delimiter = "\t" if file.suffixes[0] == ".tsv" else ","
    with file.open() as raw:
        head = decompressed(ByteCounter(raw), file).peek(1 << 16)
    if not head.strip():
        raise where.error("the file is empty", "give a file with a header and rows")
    if b"\0" in head:
        raise where.error("a NUL byte is in the text", "save it as UTF-8 CSV")

    def reader(raw: Any, names: Sequence[str]) -> pa_csv.CSVStreamingReader:
        return pa_csv.open_csv(
            raw,
            pa_csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK_BYTES),
            pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pa_csv.ConvertOptions(
                column_types={name: pa.large_string() for name in names},
                null_values=[],
                strings_can_be_null=False,
            ),
        )

    with file.open() as first, file.open() as raw:
        counter = ByteCounter(raw)
        try:
            # Types are given by name, so the header is read first.
            names = reader(decompressed(ByteCounter(first), file), ()).schema.names
            wanted = picked_columns(names, columns, file.name)
            done = 0
            for batch in reader(decompressed(counter, file), names):
                for chunk in arrow_chunks(batch.select(wanted), file.name, done, 0):
                    yield replace(chunk, fraction=min(1.0, counter.read_bytes / file.size))
                done += batch.num_rows
            if not done:
                yield Chunk(file.name, 0, [], None, 1.0)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise where.error(
                f"not readable as CSV ({_first_line(error)})",
                "repair that row: as many cells as columns, quotes closed, UTF-8",
            ) from None


def npz_rows(file: SourceFile) -> Rows:
    """Rows of an ``.npz`` with ``tokens, offsets`` and, if there, ``groups`` and ``loss_mask``."""
    where = Where(file.name)
    try:
        with file.open() as raw:
            content = _npz_members(raw, where)
    except SourceError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
        raise where.error(
            f"not readable as .npz ({_first_line(error)})", "save it again with numpy.savez"
        ) from None
    for name, kinds in (("tokens", "iu"), ("offsets", "iu")):
        if name not in content:
            raise where.error(
                f"the array is missing (it has {', '.join(content) or 'none'})",
                "save tokens, offsets and groups",
                name,
            )
        if content[name].dtype.kind not in kinds or content[name].ndim != 1:
            raise where.error(
                f"is {content[name].dtype} of shape {content[name].shape}",
                "save one flat array of integers",
                name,
            )
    tokens, offsets = content["tokens"], content["offsets"].astype(np.int64)
    if len(offsets) < 2:
        raise where.error("there are no rows", "give a file with rows", "offsets")
    groups = content.get("groups", content.get("group"))
    mask = content.get("loss_mask")
    for name, array in (("groups", groups), ("loss_mask", mask)):
        if array is not None and (array.dtype.kind not in "iub" or array.ndim != 1):
            raise where.error(f"is {array.dtype} of shape {array.shape}", "save integers", name)
    bad = np.flatnonzero((tokens < 0) | (tokens > 2**31 - 1)) if len(tokens) else np.empty(0)
    if bad.size:
        row = int(np.searchsorted(offsets, bad[0], side="right") - 1)
        raise Where(file.name, row).error(
            f"token id {int(tokens[bad[0]])} is not in 0 … 2147483647", "repair the row", "tokens"
        )
    number = np.arange(len(offsets) - 1) if groups is None else groups
    try:
        return Rows(
            np.ascontiguousarray(tokens, dtype=np.int32),
            offsets,
            np.unique(number, return_inverse=True)[1].astype(np.int32),
            None if mask is None else (mask != 0).astype(np.uint8),
        )
    except RowsError as error:
        raise where.error(str(error), "save the arrays together again", "offsets") from None


def write_npz(rows: Rows, out: str | Path | BinaryIO) -> None:
    """Write what ``npz_rows`` reads: tokens, offsets, groups, and a loss mask if there is one."""
    arrays: dict[str, Any] = {
        "tokens": rows.tokens,
        "offsets": rows.offsets,
        "groups": rows.group,
    }
    if rows.loss_mask is not None:
        arrays["loss_mask"] = rows.loss_mask
    np.savez(out, **arrays)


def _npz_members(raw: BinaryIO, where: Where) -> dict[str, npt.NDArray[Any]]:
    wanted = ("tokens", "offsets", "groups", "group", "loss_mask")
    out = {}
    with zipfile.ZipFile(raw) as archive:
        there = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
        for name in (n for n in wanted if n in there):
            if there[name].file_size > 8 * MAX_TOKENS:
                raise where.error(
                    f"is {there[name].file_size >> 20:,} MiB when unpacked",
                    "split the rows over files",
                    name,
                )
            with archive.open(there[name]) as member:
                out[name] = _array(member, there[name].file_size, where, name)
    if not out:
        raise where.error(
            f"the arrays are missing (it has {', '.join(list(there)[:5]) or 'none'})",
            "save tokens, offsets and groups",
            "tokens",
        )
    return out


def _array(member: IO[bytes], size: int, where: Where, name: str) -> npt.NDArray[Any]:
    """One ``.npy`` member: its header is held against its size before memory is taken for it."""
    try:
        version = np.lib.format.read_magic(member)
        read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
        shape, _, dtype = read[version[0]](member)
        whole = member.tell() + math.prod(shape) * dtype.itemsize
    except (ValueError, KeyError) as error:
        raise where.error(
            f"is not a plain array ({_first_line(error)})", "save it with numpy.savez", name
        ) from None
    if dtype.hasobject or whole != size:
        what = "holds Python objects" if dtype.hasobject else f"says {whole} bytes and has {size}"
        raise where.error(
            f"is not a plain array (it {what})", "save integers with numpy.savez", name
        )
    member.seek(0)
    array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
    return array


def _arrow_input(file: SourceFile) -> Any:
    if file.path is None:
        return pa.BufferReader(file.data or b"")
    if not file.size:
        raise Where(file.name).error("the file is empty", "give a file with rows")
    return pa.OSFile(str(file.path))


def _told(source: Any, file: SourceFile) -> float:
    return min(1.0, int(source.tell()) / max(file.size, 1))


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:160] if text else type(error).__name__
