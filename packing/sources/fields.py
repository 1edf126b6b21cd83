"""Dotted paths into records: ``info.traj``, ``outputs.*.text``.

Notable:
- a key may itself hold dots (``gpt-4.1``): the longest key that exists is taken
- ``*`` stands for every key of an object or every element of a list
- JSON kept as text (in CSV cells and many Parquet columns) is read where a list is wanted
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

MISSING: Any = type(
    "Missing", (), {"__repr__": lambda self: "missing", "__bool__": lambda self: False}
)()


def find(record: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(concrete path, value) of every place that ``path`` names; nothing where it is not there."""
    if type(record) is dict and path in record and path != "*":
        yield path, record[path]  # as most are
        return
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        key, rest = ".".join(parts[:n]), ".".join(parts[n:])
        found = _step(record, key)
        if found:
            for name, value in found:
                if rest:
                    yield from ((f"{name}.{p}", v) for p, v in find(value, rest))
                else:
                    yield name, value
            return


def first(record: Any, path: str) -> Any:
    """The value at ``path``, or MISSING."""
    return next((value for _, value in find(record, path)), MISSING)


def changed(record: Any, path: str, change: Callable[[Any], Any]) -> Any:
    """``record`` with ``change`` made at every place of ``path``; what stays equal is shared."""
    if type(record) is dict and path in record and path != "*":
        new = change(record[path])
        return record if new is record[path] else {**record, path: new}
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        key, rest = ".".join(parts[:n]), ".".join(parts[n:])
        found = _step(record, key)
        if found:
            made = {}
            for name, value in found:
                new = changed(value, rest, change) if rest else change(value)
                if new is not value:
                    made[name] = new
            if not made:
                return record
            if isinstance(record, Mapping):
                return {**record, **made}
            return [made.get(str(i), v) for i, v in enumerate(record)]
    return record


def _step(record: Any, key: str) -> list[tuple[str, Any]]:
    if isinstance(record, Mapping):
        if key == "*":
            return [(str(k), v) for k, v in record.items() if v is not None]
        return [(key, record[key])] if key in record else []
    if isinstance(record, list):
        if key == "*":
            return [(str(i), v) for i, v in enumerate(record)]
        if key.isdecimal() and int(key) < len(record):
            return [(key, record[int(key)])]
    return []


def unpacked(value: Any) -> Any:
    """JSON text of a list or object as that list or object; anything else as it is."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def is_ids(value: Any) -> bool:
    """A list (or array) of integers; an empty list counts as none."""
    if isinstance(value, np.ndarray):
        return bool(np.issubdtype(value.dtype, np.integer))
    return isinstance(value, list) and set(map(type, value[:64])) == {int}


def is_lists_of_ids(value: Any) -> bool:
    """A list of lists (or arrays) of integers."""
    return isinstance(value, list) and bool(value) and all(is_ids(v) for v in value[:8])


def is_messages(value: Any) -> bool:
    """A list of chat messages: ``role`` or ``from`` with ``content``, ``value`` or tool calls."""
    if not isinstance(value, list) or not value or not isinstance(value[0], Mapping):
        return False
    return all(
        isinstance(m, Mapping)
        and (
            ("role" in m and m.keys() & {"content", "tool_calls"}) or {"from", "value"} <= m.keys()
        )
        for m in value[:4]
    )


def type_name(value: Any) -> str:
    """A value's type in the words of messages: text, number, list of integers …"""
    if value is MISSING or value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true/false"
    if isinstance(value, int):
        return "whole number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Mapping):
        return "object"
    if is_ids(value):
        return "list of integers"
    if is_messages(value):
        return "list of messages"
    if isinstance(value, list | np.ndarray):
        return f"list of {type_name(value[0])}s" if len(value) else "empty list"
    return type(value).__name__
