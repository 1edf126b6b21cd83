"""A config merged into AReaL's classes by OmegaConf, as AReaL's parser does it, fault by fault.

Notable:
- AReaL stops at the first fault; here each is taken out and the rest is merged again
- interpolations are resolved; what only the run knows (``${oc.env:…}``) is UNKNOWN, never looked up
- the top level may hold keys of the user's own training script; they stay as they are
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Literal

from tuning.areal.names import UNKNOWN
from tuning.areal.schema import REQUIRED, Version, structured, table

Kind = Literal["unknown key", "wrong type", "missing value", "interpolation"]
_RUNTIME = re.compile(r"\$\{\s*(?:oc\.env|oc\.deprecated|now|python_version)\s*:")
_LATER = "__known_to_the_run__"
_MOST = 200


@dataclass(frozen=True)
class Refusal:
    """One place where AReaL's parser stops.

    section: the class that the key belongs to; empty where it is not known
    value:   what stands there
    says:    the parser's own words
    """

    kind: Kind
    path: str
    section: str
    value: Any
    says: str


@dataclass(frozen=True)
class Parsed:
    """What AReaL's parser sees.

    values:   everything with defaults filled in; UNKNOWN where a value is refused, or the run's
    refusals: in the order of the file
    unknown:  paths whose value only the run knows
    own:      top-level keys that the class does not have
    """

    values: Mapping[str, Any]
    refusals: tuple[Refusal, ...]
    unknown: tuple[str, ...]
    own: tuple[str, ...]


def parse(values: Mapping[str, Any], version: Version, name: str, *, extended: bool) -> Parsed:
    """``values`` as a config of class ``name``.

    extended: keys at the top level that the class does not have may be the user's own
    """
    from omegaconf import DictConfig, OmegaConf

    given: dict[str, Any] = _without_runtime(deepcopy(dict(values)))
    own = tuple(key for key in given if key not in table(version, name)) if extended else ()
    refusals: list[Refusal] = []
    while True:
        base = _base(version, name, (*own, _LATER))
        try:
            merged = OmegaConf.merge(base, OmegaConf.create(given))
            break
        except Exception as error:  # OmegaConf's own, and what a converter raises
            refusal = _refusal(error, values, version, name)
            if not refusal.path:  # OmegaConf names no key where a whole section is at fault
                known = table(version, name)
                whole = (k for k, v in given.items() if isinstance(v, str) and "${" in v)
                refers = (key for key in whole if key in known and known[key].section)
                blamed = next(chain(_misplaced(version, name, given, ""), refers), "")
                value = raw_at(values, blamed)
                points = isinstance(value, str) and "${" in value
                refusal = replace(
                    refusal,
                    kind="interpolation" if points else "wrong type",
                    path=blamed,
                    section=_owner(version, name, blamed),
                    value=value,
                )
            place = refusal.path
            if not place or len(refusals) >= _MOST or not _take_out(given, place):
                refusals.append(refusal)
                merged = base
                break
            refusals.append(refusal)
    assert isinstance(merged, DictConfig)
    reader = _Reader(version, values)
    found = reader.mapping(merged, "", name, set())
    found.pop(_LATER, None)
    for one in refusals:
        _put(found, one.path, UNKNOWN)
    return Parsed(found, (*refusals, *reader.refusals), tuple(dict.fromkeys(reader.unknown)), own)


@lru_cache(maxsize=32)
def _base(version: Version, name: str, own: tuple[str, ...]) -> Any:
    from omegaconf import OmegaConf, open_dict

    base = OmegaConf.structured(structured(version, name))
    with open_dict(base):
        for key in own:
            base[key] = REQUIRED if key == _LATER else None
    return base


def _without_runtime(node: Any) -> Any:
    """Resolvers of the run become references to a value that is missing."""
    if isinstance(node, dict):
        return {key: _without_runtime(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_runtime(value) for value in node]
    if not isinstance(node, str):
        return node
    while match := _RUNTIME.search(node):
        end = _closing(node, match.start() + 1)
        if end is None:
            return node
        node = f"{node[: match.start()]}${{{_LATER}}}{node[end + 1 :]}"
    return node


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return None


def _refusal(error: Exception, values: Any, version: Version, name: str) -> Refusal:
    path = str(getattr(error, "full_key", None) or "")
    says = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    kind: Kind = "unknown key" if type(error).__name__ == "ConfigKeyError" else "wrong type"
    section = _owner(version, name, path)
    return Refusal(kind, path, section, raw_at(values, path), says or type(error).__name__)


def _owner(version: Version, name: str, path: str) -> str:
    """The class that holds the last part of ``path``."""
    section = name
    for part in re.sub(r"\[[^\]]*\]", "[]", path).split(".")[:-1]:
        known = table(version, section).get(part.removesuffix("[]"))
        inner = None if known is None else (known.element if "[]" in part else known.section)
        if inner is None:
            return ""
        section = inner
    return section


def _parts(path: str) -> list[str | int]:
    parts: list[str | int] = []
    for key, index in re.findall(r"([^.\[\]]+)|\[([^\]]*)\]", path):
        parts.append(int(index) if index.isdecimal() else key or index)
    return parts


def raw_at(values: Any, path: str) -> Any:
    """What stands at ``path``, such as ``actor.scheduling_spec[0].gpu``; None where nothing."""
    return _node_at(values, _keys(values, path))


def _keys(values: Any, path: str) -> list[str | int]:
    """The parts of ``path``, those joined that are one key with dots in it."""
    parts, keys = _parts(path), []
    while parts:
        n = next((n for n in range(1, len(parts) + 1) if _joined(parts[:n]) in _own(values)), 1)
        keys.append(_joined(parts[:n]))
        values, parts = _node_at(values, keys[-1:]), parts[n:]
    return keys


def _joined(parts: list[str | int]) -> str | int:
    return parts[0] if len(parts) == 1 else ".".join(map(str, parts))


def _own(node: Any) -> Iterable[Any]:
    return node if isinstance(node, Mapping) else ()


def _node_at(node: Any, parts: Iterable[str | int]) -> Any:
    for part in parts:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return None
    return node


def _misplaced(version: Version, name: str, node: Mapping[str, Any], above: str) -> Iterator[str]:
    """Paths where a section, a list or a mapping is wanted and another of them stands."""
    for key, value in node.items():
        known, path = table(version, name).get(key), f"{above}{key}"
        inner = "" if known is None else known.section or ""
        if known is None or value is None or (isinstance(value, str) and "${" in value):
            continue
        if inner and isinstance(value, Mapping):
            yield from _misplaced(version, inner, value, f"{path}.")
        elif known.element and isinstance(value, list):
            elements = {f"{path}[{place}]": one for place, one in enumerate(value)}
            for place, one in elements.items():
                if isinstance(one, Mapping):
                    yield from _misplaced(version, known.element, one, f"{place}.")
                else:
                    yield place
        else:
            kind = known.type.partition("[")[0]
            apart = {"list": Mapping, "dict": list}.get(kind)
            if inner or (apart and isinstance(value, apart)):
                yield path


def _take_out(values: Any, path: str) -> bool:
    *above, last = _keys(values, path)
    node = _node_at(values, above)
    if isinstance(node, dict):
        return node.pop(last, REQUIRED) is not REQUIRED
    if isinstance(node, list) and isinstance(last, int) and last < len(node):
        del node[last]
        return True
    return False


def _put(values: Any, path: str, value: Any) -> None:
    *above, last = _parts(path) or [""]
    node = _node_at(values, above)
    if isinstance(node, dict) and not any(isinstance(part, int) for part in above):
        node[last] = value


class _Reader:
    """Walks a merged config: plain values, and a refusal for each that cannot be had."""

    def __init__(self, version: Version, written: Mapping[str, Any]) -> None:
        self.version: Version = version
        self.written = written
        self.refusals: list[Refusal] = []
        self.unknown: list[str] = []

    def mapping(self, config: Any, path: str, name: str, open_nodes: set[int]) -> dict[str, Any]:
        fields = table(self.version, name) if name else {}
        found = {}
        for key in config:
            known = fields.get(str(key))
            inner = "" if known is None else known.section or known.element or ""
            place = f"{path}.{key}" if path else str(key)
            found[str(key)] = self.value(config._get_node(key), place, inner, name, open_nodes)
        return found

    def value(self, node: Any, path: str, inner: str, name: str, open_nodes: set[int]) -> Any:
        from omegaconf import DictConfig, ListConfig
        from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

        if node._is_interpolation():
            try:
                node = node._maybe_dereference_node(throw_on_resolution_failure=True)
            except InterpolationToMissingValueError as error:
                if _LATER in str(error):
                    self.unknown.append(path)
                    return UNKNOWN
                return self.refused("interpolation", path, name, error)
            except (OmegaConfBaseException, ValueError, RecursionError) as error:
                return self.refused("interpolation", path, name, error)
        if node._is_missing():
            if path != _LATER:
                self.refused("missing value", path, name, None)
            return REQUIRED
        if node._is_none():
            return None
        if id(node) in open_nodes:
            return self.refused("interpolation", path, name, None)
        inside = open_nodes | {id(node)}
        if isinstance(node, DictConfig):
            return self.mapping(node, path, inner, inside)
        if isinstance(node, ListConfig):
            return [
                self.value(one, f"{path}[{place}]", inner, "", inside)
                if not isinstance(one, DictConfig)
                else self.mapping(one, f"{path}[{place}]", inner, inside)
                for place, one in enumerate(node._iter_ex(resolve=False))
                for one in [node._get_node(place)]
            ]
        return node._value()

    def refused(self, kind: Kind, path: str, name: str, error: Exception | None) -> Any:
        says = f"Missing mandatory value: {path}"
        if error is not None:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            says = lines[0] if lines else type(error).__name__
        elif kind == "interpolation":
            says = "RecursionError: a value refers to itself"
        self.refusals.append(Refusal(kind, path, name, raw_at(self.written, path), says))
        return UNKNOWN


def sections(
    values: Mapping[str, Any], version: Version, name: str, above: str = ""
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Path, class and values of each section of a parsed config, the root first."""
    yield above.removesuffix("."), name, values
    for key, known in table(version, name).items():
        inner = values.get(key)
        if known.section and isinstance(inner, Mapping):
            yield from sections(inner, version, known.section, f"{above}{key}.")
        elif known.element and isinstance(inner, list):
            for place, one in enumerate(inner):
                if isinstance(one, Mapping):
                    yield from sections(one, version, known.element, f"{above}{key}[{place}].")
