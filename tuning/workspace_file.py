"""Workspace files: a zip of JSON and Parquet that opens anywhere, and that is not trusted.

``workspace.json`` (plan, provenance, versions), ``points.json``, ``sweep.json``, ``batch.json``,
and ``rows.parquet`` (input_ids, group, loss_mask) where the rows came along.

Notable:
- no pickle, nothing is unpacked to disk, only these five names are read
- sizes are checked before anything is read, values before anything is made of them
- ``rows.parquet`` is itself a source that any tool reads
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
import zlib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from packing.rows import Rows, RowsError
from packing.sources.errors import SourceError
from packing.sources.loaded import Provenance
from tuning import checked
from tuning.batch_summary import BatchSummary
from tuning.checked import CheckError
from tuning.plan import PlanError, TuningPlan
from tuning.points import Point
from tuning.sweep_result import SweepResult
from tuning.workspace import SavedPoint, Workspace, WorkspaceError

T = TypeVar("T")

_RUN = re.compile(r"[\w-]{1,64}")

FORMAT, VERSION = "espalier-workspace", 1
MOST_JSON_BYTES = 64 << 20
MOST_ROWS_BYTES = 1 << 30
MOST_TOKENS = 250_000_000

_HEAD, _POINTS, _SWEEP, _BATCH = "workspace.json", "points.json", "sweep.json", "batch.json"
_ROWS = "rows.parquet"
_LIMITS = dict.fromkeys((_HEAD, _POINTS, _SWEEP, _BATCH), MOST_JSON_BYTES) | {
    _ROWS: MOST_ROWS_BYTES
}
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    UnicodeDecodeError,
)


def save_workspace(path: Path, workspace: Workspace, with_rows: bool = False) -> None:
    """Write a workspace file; an older one is replaced only once the new one is whole.

    with_rows: also the rows as token ids, so that it opens where their source is not at hand
    Raises WorkspaceError where the rows are wanted but not there, or the disk refuses.
    """
    if with_rows and workspace.rows is None:
        raise WorkspaceError("the rows are not at hand; save without them.")
    head = {
        "format": FORMAT,
        "version": VERSION,
        "made_at": workspace.made_at,
        "fingerprint": workspace.fingerprint,
        "plan": workspace.plan.to_json(),
        "provenance": asdict(workspace.provenance) if workspace.provenance else None,
        "versions": workspace.versions,
        "notes": list(workspace.notes),
    }
    points = [
        {"run": p.run, "plan": p.plan.to_json(), "point": p.point.to_json()}
        for p in workspace.points
    ]
    part = path.with_name(path.name + ".part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(_HEAD, json.dumps(head, indent=1))
            file.writestr(_POINTS, json.dumps(points))
            if workspace.sweep is not None:
                file.writestr(_SWEEP, json.dumps(workspace.sweep.to_json()))
            if workspace.batch is not None:
                file.writestr(_BATCH, json.dumps(asdict(workspace.batch)))
            if with_rows and workspace.rows is not None:
                file.writestr(_ROWS, write_rows(workspace.rows), zipfile.ZIP_STORED)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise WorkspaceError(f"{path} cannot be written: {error.strerror}.") from None


def open_workspace(path: Path) -> Workspace:
    """Read a workspace file. Raises WorkspaceError, one sentence, for whatever is wrong with it."""
    try:
        with zipfile.ZipFile(path) as file:
            _check_members(file, path.name)
            members = {info.filename: file.read(info) for info in file.infolist()}
    except WorkspaceError:
        raise
    except FileNotFoundError:
        raise WorkspaceError(f"there is no file {path}.") from None
    except _UNREADABLE as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise WorkspaceError(
            f"{path.name} is not a readable workspace file ({reason}); copy or save it again."
        ) from None
    try:
        return _workspace(members)
    except (CheckError, PlanError, SourceError, RowsError) as error:
        sentence = str(error).rstrip(".")
        raise WorkspaceError(
            f"{path.name} is not a workspace file that opens: {sentence}."
        ) from None


def write_rows(rows: Rows) -> bytes:
    """Rows as Parquet: ``input_ids``, ``group`` and, where there is one, ``loss_mask``."""
    offsets = pa.array(rows.offsets, pa.int64())
    columns = {
        "input_ids": pa.LargeListArray.from_arrays(offsets, pa.array(rows.tokens)),
        "group": pa.array(rows.group),
    }
    if rows.loss_mask is not None:
        columns["loss_mask"] = pa.LargeListArray.from_arrays(offsets, pa.array(rows.loss_mask))
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression="zstd")
    return out.getvalue()


def _check_members(file: zipfile.ZipFile, name: str) -> None:
    infos = file.infolist()
    names = [info.filename for info in infos]
    unknown = [one for one in names if one not in _LIMITS]
    if unknown:
        raise WorkspaceError(
            f"{name} is not a workspace file: it holds {unknown[0][:80]!r}, which none has."
        )
    if len(set(names)) < len(names) or _HEAD not in names:
        raise WorkspaceError(f"{name} is not a workspace file: it needs one {_HEAD}.")
    for info in infos:
        limit = _LIMITS[info.filename]
        if info.file_size > limit:
            raise WorkspaceError(
                f"{name} is refused: {info.filename} unpacks to {info.file_size / 2**20:,.0f} MiB, "
                f"the most is {limit / 2**20:,.0f} MiB."
            )


def _workspace(members: dict[str, bytes]) -> Workspace:
    head = checked.parse_json(members[_HEAD], _HEAD)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise CheckError(f"{_HEAD} does not say that it is one")
    version = head.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise CheckError(
            f"a newer Espalier wrote it (version {version}, this one reads {VERSION}); "
            "update Espalier"
        )
    provenance = head.get("provenance")
    rows = _read_rows(members[_ROWS]) if _ROWS in members else None
    made = Workspace(
        plan=TuningPlan.from_json(head.get("plan")),
        batch=_optional(members, _BATCH, BatchSummary),
        points=_read_points(members.get(_POINTS, b"[]")),
        sweep=_optional(members, _SWEEP, SweepResult),
        provenance=checked.read(Provenance, provenance, "provenance") if provenance else None,
        rows=rows,
        made_at=_text(head.get("made_at", ""), "made_at"),
        versions={
            _text(k, "versions"): _text(v, "versions")
            for k, v in _object(head.get("versions", {}), "versions").items()
        },
        notes=tuple(_text(one, "notes") for one in _list(head.get("notes", []), "notes")),
    )
    stated = _text(head.get("fingerprint", ""), "fingerprint")
    found = rows.fingerprint if rows is not None else made.fingerprint
    if stated != found or made.fingerprint != found:
        raise CheckError(f"its rows are not those it was made of ({found} instead of {stated})")
    return made


def _optional(members: dict[str, bytes], name: str, kind: type[T]) -> T | None:
    if name not in members:
        return None
    return checked.read(kind, checked.parse_json(members[name], name), name)


def read_sweep_file(path: Path) -> tuple[TuningPlan, SweepResult]:
    """What ``sweep --json`` printed: the result's fields with the plan beside them.

    Raises WorkspaceError where the file is something else.
    """
    try:
        if path.stat().st_size > MOST_JSON_BYTES:
            raise CheckError(f"it is larger than {MOST_JSON_BYTES >> 20} MiB")
        value = _object(checked.parse_json(path.read_bytes(), "it"), "it")
        if "plan" not in value:
            raise CheckError("it has no plan; give the run instead")
        known = {one.name for one in fields(SweepResult)}
        sweep = {name: content for name, content in value.items() if name in known}
        return TuningPlan.from_json(value["plan"]), checked.read(SweepResult, sweep, "it")
    except (CheckError, PlanError, SourceError) as error:
        reason = str(error).rstrip(".")
        raise WorkspaceError(f"{path.name} is not the JSON of a sweep: {reason}.") from None


def _read_points(text: bytes) -> tuple[SavedPoint, ...]:
    found = []
    for at, value in enumerate(_list(checked.parse_json(text, _POINTS), _POINTS)):
        where = f"{_POINTS}[{at}]"
        one = _object(value, where)
        point = checked.read(Point, one.get("point"), f"{where}.point")
        run = _text(one.get("run"), f"{where}.run")
        if not _RUN.fullmatch(run):
            raise CheckError(f"{where}.run is not the name of a run")
        found.append(SavedPoint(run, TuningPlan.from_json(one.get("plan")), point))
    return tuple(found)


def _read_rows(data: bytes) -> Rows:
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        names = set(file.schema_arrow.names)
        if not {"input_ids", "group"} <= names <= {"input_ids", "group", "loss_mask"}:
            raise CheckError(f"{_ROWS} must have the columns input_ids, group and loss_mask")
        meta = file.metadata
        values = sum(
            meta.row_group(g).column(c).num_values
            for g in range(meta.num_row_groups)
            for c in range(meta.num_columns)
        )
        if values > 3 * MOST_TOKENS:
            raise CheckError(f"{_ROWS} holds {values:,} values; the most is {3 * MOST_TOKENS:,}")
        table = file.read()
        table.validate(full=True)
        group = table["group"]
        if not pa.types.is_int32(group.type) or group.null_count:
            raise CheckError(f"{_ROWS}: group must be whole numbers")
        rows = Rows.from_arrow(table["input_ids"], group.to_numpy())
        if "loss_mask" not in names:
            return rows
        mask = Rows.from_arrow(table["loss_mask"])
        if not np.array_equal(mask.offsets, rows.offsets) or mask.tokens.max(initial=0) > 1:
            raise CheckError(f"{_ROWS}: loss_mask must have a 0 or 1 for every token")
        return Rows(rows.tokens, rows.offsets, rows.group, mask.tokens.astype(np.uint8))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckError(f"{_ROWS} is not readable as Parquet ({reason})") from None


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise CheckError(f"{where} is not text")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise CheckError(f"{where} is not a list")
    return value


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CheckError(f"{where} is not an object")
    return value
