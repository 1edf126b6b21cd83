"""Plain JSON values into frozen dataclasses, every field checked: files are not trusted.

A wrong type, an unknown field or a number that is none raises CheckError naming its place. What
this program wrote itself (``read_own``) may have fields of a newer version, which are passed over,
and numbers that came out as none.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_OWN = ConfigDict(strict=True, extra="ignore")


class CheckError(ValueError):
    """A value is not what it should be; the message names where it stands."""


def parse_json(text: str | bytes, where: str) -> Any:
    """A JSON document. Raises CheckError where it is none, nests too deep, or has a huge number."""
    try:
        return json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise CheckError(f"{where} is not readable as JSON ({reason})") from None


def read(kind: type[T], value: object, where: str) -> T:
    """``value`` as an instance of ``kind``, a dataclass or a tuple of them; raises CheckError."""
    return _read(kind, False, value, where)


def read_own(kind: type[T], value: object, where: str) -> T:
    """The same of what an Espalier kept, perhaps a newer one."""
    return _read(kind, True, value, where)


@cache
def _adapter(kind: Any, own: bool) -> TypeAdapter[Any]:
    # In a list, whose settings dataclasses take.
    return TypeAdapter(list[kind], config=_OWN if own else _STRICT)


def _read(kind: type[T], own: bool, value: object, where: str) -> T:
    try:
        # As JSON once more, where a list may be a tuple and a whole number a float.
        made: list[T] = _adapter(kind, own).validate_json(  # type: ignore[arg-type]
            json.dumps([value])
        )
    except RecursionError:
        raise CheckError(f"{where} is nested too deep") from None
    except ValidationError as errors:
        first = errors.errors(include_url=False)[0]
        steps = (f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"][1:])
        said = str(first.get("ctx", {}).get("error", first["msg"]))
        place = where + "".join(steps)
        raise CheckError(f"{place} is {_short(first['input'])}: {said}") from None
    return made[0]


def _whole(digits: str) -> int:
    if abs(number := int(digits)) >= 2**63:
        raise ValueError(f"{_short(digits)} is too large a number")
    return number


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
