"""One JSON record: text to object, with every fault as a sentence.

Notable:
- what JSON leaves open is decided: duplicate keys and lone surrogates are errors, NaN is a number
"""

from __future__ import annotations

import json
import re
from typing import Any

from packing.sources.chunks import Record
from packing.sources.errors import SourceError, Where, shown

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class DuplicateKeyError(ValueError):
    def __init__(self, key: str) -> None:
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(key)
            seen.add(key)
    return out


DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def decoded(raw: bytes, where: Where) -> str:
    """UTF-8 bytes of a record as text. Raises SourceError naming the byte that is not."""
    if b"\0" in raw:
        raise where.error(f"a NUL byte at byte {raw.index(0)} of the row", "write the file again")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise where.error(
            f"byte {error.start} of the row (0x{raw[error.start]:02x}) is not UTF-8",
            "save the file as UTF-8",
        ) from None


def parsed(text: str, where: Where, last: bool = False) -> Any:
    """The value of JSON text; ``last`` where the file may have been cut off in it."""
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        if last and cut_off(error):
            raise where.error(
                "the file ends inside this record", "write it again, or wait until it is written"
            ) from None
        line = None if where.line is None else where.line + text.count("\n", 0, error.pos)
        raise syntax_error(error, where, line) from None
    except (DuplicateKeyError, RecursionError, ValueError) as error:
        raise value_error(error, where) from None


def cut_off(error: json.JSONDecodeError) -> bool:
    """Whether the text is JSON as far as it goes."""
    return error.msg.startswith("Unterminated") or error.pos >= len(error.doc.rstrip())


def syntax_error(error: json.JSONDecodeError, where: Where, line: int | None) -> SourceError:
    """What is not JSON, and at which column."""
    found = error.doc[error.pos : error.pos + 12]
    there = f"found {shown(found)}" if found else "found the end"
    return Where(where.file, where.row, line).error(
        f"not JSON at column {error.colno} ({error.msg}, {there})",
        "repair the row or take it out",
    )


def value_error(error: Exception, where: Where) -> SourceError:
    """JSON that parses but is refused: duplicate keys, deep nesting, endless numbers."""
    if isinstance(error, DuplicateKeyError):
        return where.error("the key is there twice in one object", "keep one", error.key)
    if isinstance(error, RecursionError):
        return where.error("lists or objects are nested too deeply", "flatten the record")
    return where.error(f"a number cannot be read ({error})", "write a shorter number")


def as_record(value: Any, text: str, where: Where) -> Record:
    """A parsed value as a record. Raises SourceError if it is no object or has half characters."""
    if not isinstance(value, dict):
        raise where.error(
            f"is {shown(value, 30)}, not an object with named fields",
            'write each row as {"name": value, …}',
        )
    if _ESCAPED_SURROGATE.search(text):
        field = _surrogate(value, "")
        if field:
            raise where.error(
                "half a character (a lone surrogate) is in the text",
                "remove it, or write the file again with errors='replace'",
                field,
            )
    return value


def _surrogate(value: Any, path: str) -> str | None:
    """Path of the first string with half a character in it."""
    if isinstance(value, str):
        return (path or "value") if _SURROGATE.search(value) else None
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        if isinstance(key, str) and _SURROGATE.search(key):
            return (path + ".(a key)").lstrip(".")
        found = _surrogate(inner, f"{path}.{key}".lstrip("."))
        if found:
            return found
    return None
