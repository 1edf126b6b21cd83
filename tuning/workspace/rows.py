"""A workspace's rows: as Parquet in its file, and as a source of this machine once it is opened.

Notable:
- ``rows.parquet`` is itself a source that any tool reads
- rows that we made, or that were made up, go on saying so in the name of the file they are kept in
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from packing.rows import Rows
from packing.sources.load import load
from packing.sources.samples import SAMPLES
from packing.sources.spec import SourceSpec
from tuning.jobs.checked import CheckError
from tuning.jobs.folders import uploads_folder

FILE = "rows.parquet"
MOST_TOKENS = 250_000_000
_COLUMNS = ("input_ids", "group", "loss_mask")
_FINGERPRINT = re.compile(r"[0-9a-f]{8,64}")


def tags_of(source: SourceSpec) -> tuple[str, ...]:
    """What must be said beside every figure: ``synthetic``, made by us; ``simulated``, made up."""
    if source.kind == "file" and Path(source.location).is_relative_to(uploads_folder()):
        kept = Path(source.location).name.removesuffix(FILE).split("-")
    else:
        kept = []
    bundled = source.kind == "sample" and source.location in SAMPLES
    found = {
        "synthetic": (bundled and SAMPLES[source.location].synthetic) or "synthetic" in kept,
        "simulated": source.simulate is not None or "simulated" in kept,
    }
    return tuple(tag for tag, holds in found.items() if holds)


def write_rows(rows: Rows) -> bytes:
    """Rows as Parquet: ``input_ids``, ``group`` and, where there is one, ``loss_mask``.

    A mask comes with an ``attention_mask`` of ones: nothing here is padding, whatever repeats.
    """
    offsets = pa.array(rows.offsets, pa.int64())
    columns = {
        "input_ids": pa.LargeListArray.from_arrays(offsets, pa.array(rows.tokens)),
        "group": pa.array(rows.group),
    }
    if rows.loss_mask is not None:
        columns["loss_mask"] = pa.LargeListArray.from_arrays(offsets, pa.array(rows.loss_mask))
        ones = np.ones_like(rows.loss_mask)
        columns["attention_mask"] = pa.LargeListArray.from_arrays(offsets, pa.array(ones))
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression="zstd")
    return out.getvalue()


def read_rows(data: bytes) -> Rows:
    """What ``write_rows`` wrote. Raises CheckError or RowsError for anything else."""
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        names = set(file.schema_arrow.names)
        if not {"input_ids", "group"} <= names <= {*_COLUMNS, "attention_mask"}:
            raise CheckError(f"{FILE} must have the columns input_ids, group and loss_mask")
        meta = file.metadata
        values = sum(
            meta.row_group(g).column(c).num_values
            for g in range(meta.num_row_groups)
            for c in range(meta.num_columns)
        )
        if values > 4 * MOST_TOKENS:
            raise CheckError(f"{FILE} holds {values:,} values; the most is {4 * MOST_TOKENS:,}")
        table = file.read([name for name in _COLUMNS if name in names])
        table.validate(full=True)
        group = table["group"]
        if not pa.types.is_int32(group.type) or group.null_count:
            raise CheckError(f"{FILE}: group must be whole numbers")
        rows = Rows.from_arrow(table["input_ids"], group.to_numpy())
        if "loss_mask" not in names:
            return rows
        mask = Rows.from_arrow(table["loss_mask"])
        if not np.array_equal(mask.offsets, rows.offsets) or mask.tokens.max(initial=0) > 1:
            raise CheckError(f"{FILE}: loss_mask must have a 0 or 1 for every token")
        return Rows(rows.tokens, rows.offsets, rows.group, mask.tokens.astype(np.uint8))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckError(f"{FILE} is not readable as Parquet ({reason})") from None


def keep_rows(rows: Rows, tags: Sequence[str] = ()) -> Path:
    """Keep rows as a file of this machine, by what is in them; returns its path."""
    path = uploads_folder() / rows.fingerprint / "-".join([*tags, FILE])
    path.parent.mkdir(exist_ok=True)
    if not path.is_file():
        part = path.with_name(path.name + ".part")
        part.write_bytes(write_rows(rows))
        os.replace(part, path)
    return path


def kept_rows(fingerprint: str) -> Rows | None:
    """Rows that ``keep_rows`` has kept here."""
    if not _FINGERPRINT.fullmatch(fingerprint):
        return None
    paths = sorted((uploads_folder() / fingerprint).glob(f"*{FILE}"))
    return load(SourceSpec("file", str(paths[0]))).rows if paths else None
