"""Workspace files: a zip of JSON and Parquet that opens anywhere, and that is not trusted.

``workspace.json`` (plan, provenance, versions), ``points.json``, ``sweep.json``, ``batch.json``,
and ``rows.parquet`` (input_ids, group, loss_mask) where the rows came along.

Notable:
- no pickle, nothing is unpacked to disk, only these five names are read
- sizes are checked before anything is read, values before anything is made of them
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

from pydantic import AfterValidator, PlainValidator

from packing.rows import RowsError
from packing.sources.errors import SourceError
from packing.sources.loaded import Provenance
from tuning.jobs import checked
from tuning.jobs.checked import CheckError
from tuning.jobs.points import Point
from tuning.plan.plan import PlanError, TuningPlan
from tuning.plan.summary import BatchSummary
from tuning.sweep.result import SweepResult
from tuning.workspace.rows import FILE, read_rows, write_rows
from tuning.workspace.workspace import SavedPoint, Workspace, WorkspaceError

T = TypeVar("T")

FORMAT, VERSION = "espalier-workspace", 2
_COUNTED_IN_FILE_ORDER = 1
"""The version whose batch.json had figures of another packing than the plan's: not read."""

MOST_JSON_BYTES = 64 << 20
MOST_ROWS_BYTES = 1 << 30

_HEAD, _POINTS, _SWEEP, _BATCH = "workspace.json", "points.json", "sweep.json", "batch.json"
_LIMITS = dict.fromkeys((_HEAD, _POINTS, _SWEEP, _BATCH), MOST_JSON_BYTES) | {FILE: MOST_ROWS_BYTES}
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    UnicodeDecodeError,
)


def _run_name(name: str) -> str:
    if not re.fullmatch(r"[\w-]{1,64}", name):
        raise ValueError("it is not the name of a run")
    return name


_Plan = Annotated[TuningPlan, PlainValidator(TuningPlan.from_json)]


@dataclass(frozen=True)
class _Saved:
    """An entry of ``points.json``: a SavedPoint."""

    run: Annotated[str, AfterValidator(_run_name)]
    plan: _Plan
    point: Point


@dataclass(frozen=True)
class _Head:
    """What ``workspace.json`` says of the workspace."""

    plan: _Plan
    provenance: Provenance | None = None
    fingerprint: str = ""
    made_at: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def save_workspace(path: Path, workspace: Workspace, with_rows: bool = False) -> None:
    """Write a workspace file; an older one is replaced only once the new one is whole.

    with_rows: also the rows as token ids, so that it opens where their source is not at hand
    Raises WorkspaceError where the rows are wanted but not there, or the disk refuses.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            _write(file, workspace, with_rows)
        os.replace(part, path)
    except WorkspaceError:
        part.unlink(missing_ok=True)
        raise
    except OSError as error:
        part.unlink(missing_ok=True)
        raise WorkspaceError(f"{path} cannot be written: {error.strerror}.") from None


def workspace_bytes(workspace: Workspace, with_rows: bool = False) -> bytes:
    """The same as bytes. Raises WorkspaceError where the rows are wanted but not there."""
    out = io.BytesIO()
    _write(out, workspace, with_rows)
    return out.getvalue()


def open_workspace(path: Path) -> Workspace:
    """Read a workspace file. Raises WorkspaceError, one sentence, for whatever is wrong with it."""
    try:
        with path.open("rb") as file:
            return read_workspace(file, path.name)
    except FileNotFoundError:
        raise WorkspaceError(f"there is no file {path}.") from None
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be read: {error.strerror}.") from None


def read_workspace(source: BinaryIO, name: str) -> Workspace:
    """The same from an open file; ``name`` is what messages call it."""
    try:
        with zipfile.ZipFile(source) as file:
            _check_members(file, name)
            members = {info.filename: file.read(info) for info in file.infolist()}
    except WorkspaceError:
        raise
    except _UNREADABLE as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise WorkspaceError(
            f"{name} is not a readable workspace file ({reason}); copy or save it again."
        ) from None
    try:
        return _workspace(members)
    except (CheckError, RowsError) as error:
        sentence = str(error).rstrip(".")
        raise WorkspaceError(f"{name} is not a workspace file that opens: {sentence}.") from None


def _write(target: BinaryIO, workspace: Workspace, with_rows: bool) -> None:
    if with_rows and workspace.rows is None:
        raise WorkspaceError("the rows are not at hand; save without them.")
    head = {
        "format": FORMAT,
        "version": VERSION,
        "made_at": workspace.made_at,
        "fingerprint": workspace.fingerprint,
        "tags": list(workspace.tags),
        "plan": workspace.plan.to_json(),
        "provenance": asdict(workspace.provenance) if workspace.provenance else None,
        "versions": workspace.versions,
        "notes": list(workspace.notes),
    }
    points = [
        {"run": p.run, "plan": p.plan.to_json(), "point": p.point.to_json()}
        for p in workspace.points
    ]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(_HEAD, json.dumps(head, indent=1))
        file.writestr(_POINTS, json.dumps(points))
        if workspace.sweep is not None:
            file.writestr(_SWEEP, json.dumps(workspace.sweep.to_json()))
        if workspace.batch is not None:
            file.writestr(_BATCH, json.dumps(asdict(workspace.batch)))
        if with_rows and workspace.rows is not None:
            file.writestr(FILE, write_rows(workspace.rows), zipfile.ZIP_STORED)


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
    told = _fields_of(_Head, head, _HEAD)
    rows = read_rows(members[FILE]) if FILE in members else None
    old = version <= _COUNTED_IN_FILE_ORDER
    notes = ["An older Espalier wrote the file: its counted figures were not taken."] * old
    saved = _optional(members, _POINTS, tuple[_Saved, ...])
    made = Workspace(
        plan=told.plan,
        batch=None if old else _optional(members, _BATCH, BatchSummary),
        points=tuple(SavedPoint(**vars(one)) for one in saved or ()),
        sweep=_optional(members, _SWEEP, SweepResult),
        provenance=told.provenance,
        rows=rows,
        made_at=told.made_at,
        versions=told.versions,
        notes=(*told.notes, *notes),
        tags=tuple(one[:40] for one in told.tags[:4]),
    )
    stated = told.fingerprint
    found = rows.fingerprint if rows is not None else made.fingerprint or stated
    if stated != found or made.fingerprint not in ("", found):
        raise CheckError(f"its rows are not those it was made of ({found} instead of {stated})")
    return made.counted() if old else made


def _optional(members: dict[str, bytes], name: str, kind: type[T]) -> T | None:
    if name not in members:
        return None
    return checked.read(kind, checked.parse_json(members[name], name), name)


def _fields_of(kind: type[T], value: Mapping[str, object], where: str) -> T:
    """What ``value`` says of the fields of a dataclass; what stands beside them is passed over."""
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    return checked.read(kind, {name: value[name] for name in known if name in value}, where)


def read_sweep_file(path: Path) -> tuple[TuningPlan, SweepResult]:
    """What ``sweep --json`` printed: the result's fields with the plan beside them.

    Raises WorkspaceError where the file is something else.
    """
    try:
        if path.stat().st_size > MOST_JSON_BYTES:
            raise CheckError(f"it is larger than {MOST_JSON_BYTES >> 20} MiB")
        value = checked.parse_json(path.read_bytes(), "it")
        if not isinstance(value, dict):
            raise CheckError("it is not an object")
        if "plan" not in value:
            raise CheckError("it has no plan; give the run instead")
        return TuningPlan.from_json(value["plan"]), _fields_of(SweepResult, value, "it")
    except (CheckError, PlanError, SourceError) as error:
        reason = str(error).rstrip(".")
        raise WorkspaceError(f"{path.name} is not the JSON of a sweep: {reason}.") from None
