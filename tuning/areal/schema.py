"""AReaL's config classes as tables: fields, types, defaults, per version.

Notable:
- written down from AReaL 1.0.4's ``api/cli_args.py``; a test compares every field with the wheel
- values convert as OmegaConf does: ``"8192"`` is a number, ``8192.0`` and ``8k`` are not
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from tuning.areal.tables import ADDED, DEFAULTS, ENGINES, OPEN, REMOVED, TABLES

Version = Literal["1.0.3", "1.0.4", "main", "tree_training_mode"]
VERSIONS: tuple[Version, ...] = get_args(Version)
EXPORT_VERSIONS: tuple[Version, ...] = ("1.0.4", "main", "tree_training_mode")
VERSION_NAMES = {
    "1.0.3": "AReaL 1.0.3",
    "1.0.4": "AReaL 1.0.4",
    "main": "AReaL main (2.x)",
    "tree_training_mode": "AReaL with tree_training_mode (branch feat/dta)",
}
REQUIRED = "???"


@dataclass(frozen=True)
class Field:
    """One field of a config class."""

    name: str
    type: str
    default: Any
    optional: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(self.type.split("|")) if "|" in self.type else ()

    @property
    def section(self) -> str | None:
        """The table of a nested class."""
        return self.type if self.type[0].isupper() else None


@lru_cache(maxsize=256)
def table(version: Version, name: str) -> Mapping[str, Field]:
    """The fields of a config class in a version."""
    layers = [TABLES[name]]
    steps: list[Version] = [version]
    if version == "tree_training_mode":
        steps = ["main", version]
    for step in steps:
        added = ADDED[step]
        if name in ENGINES:
            layers.append(added.get("TrainEngineConfig", ""))
        if name != "TrainEngineConfig":
            layers.append(added.get(name, ""))
    fields = {f.name: f for text in layers for f in map(_field, text.split("\n")) if f}
    for gone in REMOVED[version].get(name, ()):
        del fields[gone]
    for (owner, key), default in DEFAULTS[version].items():
        if owner == name:
            fields[key] = Field(key, fields[key].type, default, fields[key].optional)
    return fields


def is_open(version: Version, name: str) -> bool:
    """Whether fields of this class may exist that the table does not list."""
    return name in OPEN[version]


def _field(line: str) -> Field | None:
    if not line.strip():
        return None
    head, _, default = line.partition(" =")
    name, kind = head.split()
    optional = kind.endswith("?")
    kind = kind.removesuffix("?")
    text = default.strip()
    if kind in ("any",) or kind[0].isupper():
        return Field(name, kind, None, optional)
    if text == "null":
        return Field(name, kind, None, True)
    return Field(name, kind, text if text == REQUIRED else convert(kind, text), optional)


class WrongType(ValueError):
    """A value that OmegaConf would refuse; the message is its own."""


def convert(kind: str, value: Any) -> Any:
    """``value`` as OmegaConf stores it in a field of this type. Raises WrongType in its words."""
    if kind == "any" or kind[0].isupper():
        return value
    if isinstance(value, dict | list):
        raise WrongType(f"Value '{value}' of type '{type(value).__name__}' could not be converted")
    if kind == "int":
        if type(value) in (int, str):
            try:
                return int(value)
            except ValueError:
                pass
        raise WrongType(
            f"Value '{value}' of type '{type(value).__name__}' could not be converted to Integer"
        )
    if kind == "float":
        if type(value) in (int, float, str):
            try:
                return float(value)
            except ValueError:
                pass
        raise WrongType(
            f"Value '{value}' of type '{type(value).__name__}' could not be converted to Float"
        )
    if kind == "bool":
        return _boolean(value)
    text = str(value)
    if "|" in kind and text not in kind.split("|"):
        raise WrongType(f"must be one of {', '.join(kind.split('|'))}, got '{text}'")
    return text


def _boolean(value: Any) -> bool:
    if isinstance(value, bool | int):
        return bool(value)
    if isinstance(value, str):
        if value.lower() in ("yes", "y", "on", "true"):
            return True
        if value.lower() in ("no", "n", "off", "false"):
            return False
        if value.strip().lstrip("+-").isdecimal():
            return bool(int(value))
    raise WrongType(f"Value '{value}' is not a valid bool (type {type(value).__name__})")
