"""Columns of records and the fields inside them, as paths that a role can be given to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packing.sources import fields
from packing.sources.dialects import is_conversation
from packing.sources.errors import shown

DEPTH = 4


@dataclass(frozen=True)
class Column:
    """A column (or nested field) a role can be given to: its path, type and an example."""

    path: str
    kind: str
    example: str


def describe(records: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Columns and nested fields (DEPTH levels) of the first records, in file order."""
    out: dict[str, Column] = {}
    for record in records:
        for path, value in walk(record):
            if path not in out or out[path].kind in ("nothing", "empty list"):
                out[path] = Column(path, fields.type_name(value), shown(value, 80))
    return tuple(out.values())


def walk(
    record: Mapping[str, Any], depth: int = DEPTH, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """(path, value) of fields, those of objects in lists under ``*``; conversations are leaves."""
    for key, value in record.items():
        yield prefix + str(key), value
        if depth <= 1:
            continue
        if isinstance(value, Mapping):
            yield from walk(value, depth - 1, f"{prefix}{key}.")
        elif isinstance(value, list) and not is_conversation(value):
            for inner in value[:3]:
                if isinstance(inner, Mapping):
                    yield from walk(inner, depth - 1, f"{prefix}{key}.*.")


def names(records: Sequence[Mapping[str, Any]]) -> str:
    """Columns that a role can be given to; where there are few, those inside them as well."""
    names = list(dict.fromkeys(str(k) for record in records for k in record))
    inside = [c.path for c in describe(records)]
    names = inside if len(inside) <= 20 else names
    return ", ".join(names[:20]) + (" …" if len(names) > 20 else "") if names else "none"


def named(
    sample: Mapping[str, Any],
    choices: Sequence[str],
    fits: Callable[[Any], bool],
    text: bool = False,
) -> str | None:
    """The first of ``choices`` whose value fits; its JSON is read but where ``text`` is wanted."""
    return next(
        (
            n
            for n in choices
            if n in sample and fits(sample[n] if text else fields.unpacked(sample[n]))
        ),
        None,
    )
