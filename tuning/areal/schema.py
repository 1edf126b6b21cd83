"""AReaL's config classes: fields, types, defaults and what each field refuses, per version.

Notable:
- ``schemas/VERSION.json`` is written by ``python -m scripts.areal_schema`` from AReaL's own classes
- ``structured`` builds those classes again, without their code, so that OmegaConf itself can
  merge a file into them as AReaL does
- the wheel 1.0.4 and the tag v1.0.4 differ, as do the tag v2.0.0 and main: each has its own file
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Optional, Union, get_args

Version = Literal["1.0.3", "1.0.4", "v1.0.4", "2.0.0", "main", "tree_training_mode"]
VERSIONS: tuple[Version, ...] = get_args(Version)
"""From the oldest to the newest; ``tree_training_mode`` is a branch that was never merged."""
EXPORT_VERSIONS: tuple[Version, ...] = ("1.0.4", "2.0.0", "main", "tree_training_mode")
VERSION_NAMES: dict[Version, str] = {
    "1.0.3": "AReaL 1.0.3",
    "1.0.4": "AReaL 1.0.4",
    "v1.0.4": "AReaL at the tag v1.0.4 (older than the wheel 1.0.4)",
    "2.0.0": "AReaL 2.0.0",
    "main": "AReaL main (after 2.0.0)",
    "tree_training_mode": "AReaL with tree_training_mode (branch feat/dta)",
}
REQUIRED = "???"
_SCHEMAS = Path(__file__).with_name("schemas")


_PLAIN: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool, "any": Any}


def _is_class(text: str) -> bool:
    return text.isidentifier() and text not in _PLAIN and text != "dict"


@dataclass(frozen=True)
class Field:
    """One field of a config class.

    type:       ``int``, ``float|str``, ``list[str]``, ``dict[str,str]``, or another class
    default:    ``???`` where a value must be given; of a class, what differs from its defaults
    choices:    the only values it takes; ``documented`` are named by its help and not enforced
    slash:      it also takes what has the form ``org/repo``
    least, above: a number's bound
    lengths:    of a list
    nonempty:   text must not be empty, nor white space unless ``blank``
    says:       AReaL's words where it refuses, ``{}`` for the value
    """

    name: str
    type: str
    default: Any = None
    optional: bool = False
    choices: tuple[str | None, ...] = ()
    documented: tuple[str | None, ...] = ()
    slash: bool = False
    least: float | None = None
    above: float | None = None
    lengths: tuple[int, ...] = ()
    nonempty: bool = False
    blank: bool = False
    says: str = ""

    @property
    def section(self) -> str | None:
        """The class of a nested section."""
        return self.type if _is_class(self.type) else None

    @property
    def element(self) -> str | None:
        """The class of a list's elements."""
        inner = self.type.removeprefix("list[").removesuffix("]")
        return inner if inner != self.type and _is_class(inner) else None

    def refuses(self, value: Any) -> bool:
        """Whether AReaL's class refuses this value of the right type, for itself alone."""
        if self.lengths:
            # a reference may bring anything here: AReaL asks for its length all the same
            return not hasattr(value, "__len__") or len(value) not in self.lengths
        if isinstance(value, str) and self.nonempty:
            return not (value if self.blank else value.strip())
        if self.choices and value not in self.choices:
            return not (self.slash and isinstance(value, str) and "/" in value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            below = self.least is not None and not value >= self.least
            return below or (self.above is not None and not value > self.above)
        return False


@cache
def _classes(version: Version) -> dict[str, dict[str, Field]]:
    raw = json.loads((_SCHEMAS / f"{version}.json").read_text())
    return {
        name: {key: Field(key, **_tuples(known)) for key, known in fields.items()}
        for name, fields in raw.items()
    }


def _tuples(known: Mapping[str, Any]) -> dict[str, Any]:
    names = ("choices", "documented", "lengths")
    return {k: tuple(v) if k in names else v for k, v in known.items()}


def table(version: Version, name: str) -> Mapping[str, Field]:
    """The fields of a config class in a version; empty where the version has no such class."""
    return _classes(version).get(name, {})


def field_at(version: Version, name: str, path: str) -> Field | None:
    """The field at a dotted path below a class; None where it is unknown or not looked into."""
    section: str | None = name
    found = None
    for part in path.split("."):
        found = None if section is None else table(version, section).get(part)
        if found is None:
            return None
        section = found.section
    return found


def versions_with(name: str, path: str) -> tuple[Version, ...]:
    """The versions whose class ``name`` has a field at ``path``."""
    return tuple(v for v in VERSIONS if field_at(v, name, path) is not None)


def least_version(name: str, paths: Iterable[str]) -> Version | None:
    """The oldest version whose class ``name`` has all ``paths``; None where none has."""
    wanted = list(paths)
    return next(
        (v for v in VERSIONS if all(field_at(v, name, path) is not None for path in wanted)), None
    )


@cache
def structured(version: Version, name: str) -> type:
    """The class as a dataclass for OmegaConf: fields, types and defaults, no code."""
    fields = [
        (key, _hint(version, known), _default(version, known))
        for key, known in table(version, name).items()
    ]
    return make_dataclass(name, fields)


def _hint(version: Version, known: Field) -> Any:
    hint = _type(version, known.type)
    return Optional[hint] if known.optional else hint  # noqa: UP045  # for a hint made at run time


def _type(version: Version, text: str) -> Any:
    if text in _PLAIN:
        return _PLAIN[text]
    if "|" in text:
        return Union[tuple(_PLAIN[part] for part in text.split("|"))]  # noqa: UP007
    if text.startswith("list["):
        return list[_type(version, text[5:-1])]  # type: ignore[misc]
    if text == "dict":
        return dict
    if text.startswith("dict["):
        key, value = text[5:-1].split(",")
        return dict[_type(version, key), _type(version, value)]  # type: ignore[misc]
    return structured(version, text)


def _default(version: Version, known: Field) -> Any:
    value = known.default
    if isinstance(value, dict | list):
        return field(default_factory=lambda: _made(version, known, value))
    return field(default=value)


def _made(version: Version, known: Field, value: Any) -> Any:
    """A default with its classes: ``value`` holds what differs from theirs."""
    if known.section and isinstance(value, dict):
        inner = table(version, known.section)
        given = {
            key: _made(version, inner[key], one) if isinstance(one, dict | list) else one
            for key, one in value.items()
        }
        return structured(version, known.section)(**given)
    if known.element and isinstance(value, list):
        return [_made(version, Field("", known.element), one) for one in value]
    return value.copy()
