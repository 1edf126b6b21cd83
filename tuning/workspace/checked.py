"""Plain JSON values into frozen dataclasses, every field checked: files are not trusted.

A wrong type, an unknown field or a number that is none raises CheckError naming its place.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class CheckError(ValueError):
    """A value is not what it should be; the message names where it stands."""


def parse_json(text: str | bytes, where: str) -> Any:
    """A JSON document. Raises CheckError where it is none, or nests too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise CheckError(f"{where} is not readable as JSON ({reason})") from None


def read(kind: type[T], value: object, where: str) -> T:
    """``value`` as an instance of the dataclass ``kind``; raises CheckError."""
    made: T = _read(kind, value, where)
    return made


def _read(kind: Any, value: Any, where: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _optional(get_args(kind), value, where)
    if origin is Literal:
        if value not in get_args(kind):
            raise CheckError(f"{where} is {_short(value)}; known are {', '.join(get_args(kind))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise CheckError(f"{where} is {_short(value)}, not a list")
        of = get_args(kind)[0]
        return tuple(_read(of, one, f"{where}[{at}]") for at, one in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        _mapping(value, where)
        of = get_args(kind)[1]
        return {str(key): _read(of, one, f"{where}.{key}") for key, one in value.items()}
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    return _plain(kind, value, where)


def _optional(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    (kind,) = (one for one in kinds if one is not type(None))
    return _read(kind, value, where)


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    _mapping(value, where)
    hints = get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}
    unknown = [str(name) for name in value if name not in known]
    if unknown:
        raise CheckError(f"{where} has a field {_short(unknown[0])}, which this version lacks")
    missing = [
        name
        for name, one in known.items()
        if name not in value and one.default is MISSING and one.default_factory is MISSING
    ]
    if missing:
        raise CheckError(f"{where} lacks {missing[0]}")
    return kind(**{name: _read(hints[name], value[name], f"{where}.{name}") for name in value})


def _mapping(value: Any, where: str) -> None:
    if not isinstance(value, Mapping):
        raise CheckError(f"{where} is {_short(value)}, not an object with named fields")


def _plain(kind: Any, value: Any, where: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and number and math.isfinite(value):
        return float(value)
    if kind is int and number and isinstance(value, int) and abs(value) < 2**63:
        return value
    if kind in (str, bool) and isinstance(value, kind):
        return value
    name = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false"}
    raise CheckError(f"{where} is {_short(value)}, not {name[kind]}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
