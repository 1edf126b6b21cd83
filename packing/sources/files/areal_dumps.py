"""AReaL's rollout dumps: ``<version>/<task_id>.jsonl``, one record a row, text only.

Notable:
- written with ``rollout.dump_to_file: true``; a task is a group, its rows are sorted by sample,
  which is the order AReaL packs them in (they are written in the order they finish)
- a version (of the weights) is a folder; one task may come back in another version, as another
  group
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packing.sources.errors import SourceError, Where, shown
from packing.sources.files.json_records import json_chunks
from packing.sources.files.paths import SourceFile
from packing.sources.files.records import Chunk

FIELDS = frozenset({"task_id", "seqlen", "prompt", "completion"})
ROLES = (
    ("prompt", "prompt"),
    ("completion", "completion"),
    ("group", "task_id"),
    ("reward", "reward"),
    ("seqlen", "seqlen"),
)


def is_dump(files: Sequence[SourceFile], first: Chunk) -> bool:
    """Whether the first records of a set of files are those of a dump."""
    return (
        bool(first.records)
        and all(f.format == "jsonl" for f in files)
        and all(r.keys() >= FIELDS for r in first.records)
    )


def version_of(file: SourceFile) -> str:
    """The version folder a dump's file is in: ``12`` of ``…/rollout/12/task.jsonl``."""
    parts = (file.path.parts if file.path else ())[-2:-1]
    return parts[0] if parts else ""


def versions(files: Sequence[SourceFile]) -> tuple[str, ...]:
    """Version folders in numeric order."""
    found = {version_of(f) for f in files}
    return tuple(
        sorted(found, key=lambda v: (not v.isdecimal(), int(v) if v.isdecimal() else 0, v))
    )


def selected(files: Sequence[SourceFile], wanted: Sequence[str]) -> list[SourceFile]:
    """Files of the wanted versions, oldest version first; all where none is named.

    Raises SourceError where a version is not there.
    """
    there = versions(files)
    for version in wanted:
        if version not in there:
            raise SourceError(
                f"rollout dump: there is no version {shown(version)}; "
                f"the folders are {', '.join(there[:20])}."
            )
    chosen = wanted or there
    return [f for v in there if v in chosen for f in files if version_of(f) == v]


def dump_chunks(file: SourceFile) -> Iterator[Chunk]:
    """One task's records, sample by sample, grouped by version and task."""
    chunks = list(json_chunks(file))
    records = [r for c in chunks for r in c.records]
    lines = [n for c in chunks for n in c.lines or []]
    for row, record in enumerate(records):
        missing = next((name for name in sorted(FIELDS) if name not in record), None)
        if missing:
            raise Where(file.name, row, lines[row]).error(
                "is missing", "take the row out, or dump the rollouts again", missing
            )
        record["task_id"] = f"{version_of(file)}/{record['task_id']}"
    sample = [r.get("sample_idx") for r in records]
    order = sorted(
        range(len(records)), key=lambda i: (s if isinstance(s := sample[i], int) else 0, i)
    )
    if records:
        moved, places = [records[i] for i in order], [lines[i] for i in order]
        yield Chunk(file.name, 0, moved, places, 1.0, numbers=order)
