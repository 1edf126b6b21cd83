"""AReaL's rollout dumps: ``<version>/<task_id>.jsonl``, one record a row, text only.

Notable:
- written with ``rollout.dump_to_file: true``; a task is a group, its rows are sorted by sample,
  which is the order AReaL packs them in (they are written in the order they finish)
- a row of several generations has ``segments``; one of a single generation is a prompt and what
  was generated
- ``rollout`` is what was trained, ``eval-rollout`` beside it was not: it is read where it is asked
  for
- a version (of the weights) is a folder; one task may come back in another version, as another
  group
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packing.sources.chunks import Chunk, Record
from packing.sources.errors import SourceError, Where, shown
from packing.sources.files.json_records import json_chunks
from packing.sources.files.paths import SourceFile

EVALUATION = "eval-rollout"
FIELDS = frozenset({"task_id", "seqlen", "prompt", "completion"})
ROLES = (
    ("segments", "segments"),
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
    """The version folder a dump's file is in: ``12`` of ``…/rollout/12/task.jsonl``.

    That of an evaluation is ``eval-rollout/12``.
    """
    parts = (file.path.parts if file.path else ())[-3:-1]
    if parts[:1] == (EVALUATION,):
        return "/".join(parts)
    return parts[-1] if parts else ""


def versions(files: Sequence[SourceFile]) -> tuple[str, ...]:
    """Version folders in numeric order."""

    def place(version: str) -> tuple[bool, bool, int, str]:
        number = version.rpartition("/")[2]
        known = number.isdecimal()
        return "/" in version, not known, int(number) if known else 0, version

    return tuple(sorted({version_of(f) for f in files}, key=place))


def selected(files: Sequence[SourceFile], wanted: Sequence[str]) -> list[SourceFile]:
    """Files of the wanted versions, oldest version first; where none is named all of training.

    Where there is nothing but an evaluation, that is read.

    Raises SourceError where a version is not there.
    """
    there = versions(files)
    for version in wanted:
        if version not in there:
            raise SourceError(
                f"rollout dump: there is no version {shown(version)}; "
                f"the folders are {', '.join(there[:20])}."
            )
    training = [v for v in there if "/" not in v]
    chosen = wanted or training or there
    return [f for v in there if v in chosen for f in files if version_of(f) == v]


def _segments(record: Record, where: Where) -> list[Record]:
    """A prompt and its one generation as segments; their tokens are counted by ``seqlen``."""
    for name in ("prompt", "completion"):
        if not isinstance(record[name], str):
            raise where.unlike(record[name], "text", "dump the rollouts again", name)
    return [
        {"role": "prompt", "text": record["prompt"]},
        {"role": "gen", "text": record["completion"]},
    ]


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
        if not record.get("segments"):
            record["segments"] = _segments(record, Where(file.name, row, lines[row]))
        record["task_id"] = f"{version_of(file)}/{record['task_id']}"
    sample = [r.get("sample_idx") for r in records]
    order = sorted(
        range(len(records)), key=lambda i: (s if isinstance(s := sample[i], int) else 0, i)
    )
    if records:
        moved, places = [records[i] for i in order], [lines[i] for i in order]
        yield Chunk(file.name, 0, moved, places, 1.0, numbers=order)
