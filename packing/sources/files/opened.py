"""A spec opened: where its records come from, before any of them is read.

Notable:
- whatever the kind, what follows sees chunks of records, files to hash, and fixed roles
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packing.rows import Rows
from packing.sources.chunks import Chunk
from packing.sources.errors import SourceError, Where, shown
from packing.sources.files import areal_dumps, hub
from packing.sources.files.columnar import arrow_file_chunks, csv_chunks, npz_rows, parquet_chunks
from packing.sources.files.eval_logs import eval_chunks
from packing.sources.files.json_records import json_chunks
from packing.sources.files.paths import SourceFile, check_allowed, find_files
from packing.sources.files.records import CHUNK_RECORDS
from packing.sources.files.strays import without_strays
from packing.sources.odd import OddRecords
from packing.sources.spec import SourceSpec

PEEKED = 8
NPZ_ROLES = (("input_ids", "input_ids"), ("group", "group"), ("loss_mask", "loss_mask"))


@dataclass(frozen=True)
class Opened:
    """Records to come.

    label:   what the source is called in messages
    format:  of its files, for people
    files:   whose bytes decide the content; empty where it is not in files
    fixed:   content that is not in files but known (a bundled sample), else None
    roles:   (role, path) pairs that the source itself decides, or None
    raw:     texts are what an engine generated (AReaL's dumps)
    chunks:  all records, only the named columns where the format can leave columns out; what is no
             record goes to the odd ones
    revision: resolved revision of a Hub dataset
    left_out: files of a folder that are not read: of another format, or without such rows
    """

    label: str
    format: str
    files: tuple[SourceFile, ...]
    fixed: str | None
    roles: tuple[tuple[str, str], ...] | None
    raw: bool
    chunks: Callable[[Sequence[str] | None, OddRecords], Iterator[Chunk]]
    revision: str | None = None
    left_out: tuple[str, ...] = ()

    def peek(self, records: int, odd: OddRecords) -> Chunk:
        """The first records (or those of the first PEEKED chunks that have any).

        Raises SourceError where there is none.
        """
        found: Chunk | None = None
        for n, chunk in enumerate(c for c in self.chunks(None, odd) if c.records):
            found = chunk if found is None else found.followed_by(chunk)
            if n + 1 >= PEEKED or len(found.records) >= records:
                break
        if found is None:
            raise Where(self.label).error("there are no rows", "give a source with rows")
        return found.sliced(0, records)


def open_source(
    spec: SourceSpec, allowed_roots: Sequence[Path] | None, upload: bytes | None
) -> Opened:
    """Raises SourceError for whatever cannot be found, may not be read, or is of no known kind."""
    if spec.kind == "sample":
        return _sample(spec)
    if spec.kind == "hub":
        dataset, commit = hub.open_hub(spec)
        return _dataset(dataset, spec, "Hub dataset", commit)
    if spec.kind == "upload":
        if upload is None:
            raise Where(spec.location).error(
                "an uploaded file is not kept", "upload it again, or give its path"
            )
        name = Path(spec.location.replace("\\", "/")).name
        return _files([SourceFile(name, None, upload)], spec)
    try:
        return _path(spec, allowed_roots)
    except OSError as error:  # a name too long, a folder that may not be looked into
        what = f"cannot be opened ({error.strerror})"
        raise Where(shown(spec.location)).error(what, "check the path") from None


def _path(spec: SourceSpec, allowed_roots: Sequence[Path] | None) -> Opened:
    folder = Path(spec.location).expanduser()
    if folder.is_dir():
        # The folder itself is checked before anything in it is looked at.
        check_allowed(folder, spec.location, allowed_roots)
        if hub.is_saved_dataset(folder):
            return _dataset(hub.open_saved(spec, folder, allowed_roots), spec, "saved dataset")
    others: list[str] = []
    files = find_files(spec.location, allowed_roots, others)
    return _files(files, spec, others)


def _sample(spec: SourceSpec) -> Opened:
    from packing.sources.samples import sample_records

    try:
        records = sample_records(spec.location)
    except KeyError as error:
        raise SourceError(str(error.args[0])) from None
    label = f"sample:{spec.location}"

    def chunks(columns: Sequence[str] | None, odd: OddRecords) -> Iterator[Chunk]:
        for start in range(0, len(records), CHUNK_RECORDS):
            piece = records[start : start + CHUNK_RECORDS]
            yield Chunk(label, start, piece, None, (start + len(piece)) / len(records))

    return Opened(label, "bundled sample", (), json.dumps(records), None, False, chunks)


def _dataset(dataset: Any, spec: SourceSpec, kind: str, commit: str | None = None) -> Opened:
    files = tuple(hub.dataset_files(dataset))
    fixed = None
    if spec.streaming and commit and re.fullmatch("[0-9a-f]{40}", commit):
        # A commit's content never changes: a stream of it need not be read to be known.
        fixed = json.dumps([spec.location, commit, spec.config, spec.split])
    return Opened(
        spec.location,
        kind + (" (streamed)" if spec.streaming else ""),
        files,
        fixed,
        None,
        False,
        lambda columns, odd: hub.dataset_chunks(dataset, spec, columns),
        commit,
    )


def _files(files: list[SourceFile], spec: SourceSpec, others: Sequence[str] = ()) -> Opened:
    kinds = {f.format for f in files}
    label = files[0].name if len(files) == 1 else spec.location
    if "npz" in kinds and len(files) > 1:
        raise Where(spec.location).error("holds several .npz files", "give one of them")
    if kinds == {"npz"}:
        rows = npz_rows(files[0])
        roles = NPZ_ROLES if rows.loss_mask is not None else NPZ_ROLES[:2]
        return Opened(
            label,
            "npz",
            tuple(files),
            None,
            roles,
            False,
            lambda columns, odd: _row_chunks(rows, files[0].name),
            left_out=tuple(others),
        )
    left = list(others)
    whole: Chunk | None = None
    files, strays = without_strays(files, spec.roles, lambda file: read_file(file, None))
    left += strays
    kinds = {f.format for f in files}
    dump = False
    if kinds == {"jsonl"}:
        unread = OddRecords(True)
        started = json_chunks(files[0], unread)
        first = next(started)
        dump = areal_dumps.is_dump(files, first)
        if len(first.records) == 1 and next(started, None) is None and not unread.count:
            whole = first  # one record may take long to read: once is enough
    if dump:
        chosen = areal_dumps.selected(files, spec.versions)
        left += [f.name for f in files if f not in chosen and not spec.versions]
        files = chosen
    elif spec.versions:
        raise Where(spec.location).error(
            "is not a folder of AReaL's rollout dumps", "leave the versions out"
        )
    total = max(1, sum(f.size for f in files))

    def read(file: SourceFile, columns: Sequence[str] | None, odd: OddRecords) -> Iterator[Chunk]:
        if dump:
            return areal_dumps.dump_chunks(file)
        if whole is not None and file is files[0]:
            return iter([whole])
        return read_file(file, columns, odd)

    def chunks(columns: Sequence[str] | None, odd: OddRecords) -> Iterator[Chunk]:
        before = 0
        for file in files:
            for chunk in read(file, columns, odd):
                yield replace(chunk, fraction=(before + chunk.fraction * file.size) / total)
            before += file.size

    return Opened(
        label,
        "AReaL rollout dump" if dump else " and ".join(sorted(kinds)),
        tuple(files),
        None,
        areal_dumps.ROLES if dump else None,
        dump,
        chunks,
        left_out=tuple(left),
    )


def read_file(
    file: SourceFile, columns: Sequence[str] | None, odd: OddRecords | None = None
) -> Iterator[Chunk]:
    """The records of one file, of whichever format."""
    if file.format == "parquet":
        return parquet_chunks(file, columns)
    if file.format == "arrow":
        return arrow_file_chunks(file, columns)
    if file.format == "csv":
        return csv_chunks(file, columns)
    if file.format == "eval":
        return eval_chunks(file)
    return json_chunks(file, odd or OddRecords())


def _row_chunks(rows: Rows, name: str) -> Iterator[Chunk]:
    for start in range(0, len(rows), CHUNK_RECORDS):
        stop = min(start + CHUNK_RECORDS, len(rows))
        records = []
        for i in range(start, stop):
            record = {"input_ids": rows[i], "group": int(rows.group[i])}
            if rows.loss_mask is not None:
                record["loss_mask"] = rows.loss_mask[rows.offsets[i] : rows.offsets[i + 1]]
            records.append(record)
        yield Chunk(name, start, records, None, stop / len(rows))
