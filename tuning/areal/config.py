"""A user's AReaL config: read with AReaL's defaults, turned into a plan, and written back.

Notable:
- values are what AReaL will see: interpolations resolved, types converted, defaults filled in
- environment and other resolvers (``${oc.env:…}``) are not run; such a value is UNKNOWN
- writing back touches only values that differ; comments, anchors and unknown keys stay
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tuning.areal.backend import Backend, BackendError
from tuning.areal.names import TRAINER_NAMES, UNKNOWN, Trainer
from tuning.areal.schema import Field, Version, WrongType, convert, table
from tuning.areal.yaml_text import MOST_BYTES, ConfigError, YamlText, too_large

__all__ = ["TRAINER_NAMES", "UNKNOWN", "ArealConfig", "ConfigError", "Trainer"]

_CLASSES = {
    "ppo": "PPOConfig",
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "rw": "RWConfig",
    "engine": "PPOActorConfig",
}


@dataclass(frozen=True)
class ArealConfig:
    """One config file.

    yaml:   the file itself; ``above`` holds values of the files its ``defaults`` list names,
            ``over`` values that are assumed on top of it
    notes:  sentences about what was not read
    """

    yaml: YamlText
    above: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    folder: Path | None = None
    over: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, source: str | bytes | Path) -> ArealConfig:
        """From text or a file. Raises ConfigError with line and mend."""
        folder = None
        if isinstance(source, Path):
            folder = source.parent
            try:
                with source.open("rb") as file:
                    content = file.read(MOST_BYTES + 1)
                if len(content) > MOST_BYTES:
                    raise too_large(source.stat().st_size)
            except OSError as error:
                raise ConfigError(f"{source} cannot be read: {error.strerror}.") from None
            source = content
        yaml = YamlText.read(source)
        above, notes = _defaults(yaml.values, folder)
        return cls(yaml, above, tuple(notes), folder)

    @cached_property
    def values(self) -> dict[str, Any]:
        """All values of the file, its defaults and what is assumed, as written."""
        own = {k: v for k, v in self.yaml.values.items() if k != "defaults"}
        return _merged(_merged(self.above, own), self.over)

    @cached_property
    def trainer(self) -> Trainer:
        """Which of AReaL's trainers this config is for, as far as the file tells."""
        values = self.values
        if "actor" not in values and ("backend" in values or "mb_spec" in values):
            return "engine"
        if "rollout" in values or "gconfig" in values:
            return "ppo"
        kind = self._plain("train_dataset.type")
        actor = values.get("actor")
        actor = actor if isinstance(actor, Mapping) else {}
        if kind == "dpo" or "beta" in actor or "loss_type" in actor:
            return "dpo"
        if kind == "rw" or actor.get("is_critic") is True:
            return "rw"
        return "sft" if kind == "sft" else "ppo"

    @property
    def prefix(self) -> str:
        """``actor.``, or nothing where the file is the engine's config itself."""
        return "" if self.trainer == "engine" else "actor."

    @property
    def class_name(self) -> str:
        return _CLASSES[self.trainer]

    def has(self, path: str) -> bool:
        """Whether the file, or a file of its defaults, sets this key."""
        return self._raw(path) is not _MISSING

    def line(self, path: str) -> int | None:
        return self.yaml.line(path)

    def get(self, path: str, version: Version = "1.0.4") -> Any:
        """The value AReaL will see at ``path``; its default where the file has none; UNKNOWN."""
        known = self.field(path, version)
        raw = self.resolve(self._raw(path))
        if raw is _MISSING:
            return None if known is None else known.default
        if raw is UNKNOWN or known is None:
            return raw
        if raw is None:
            return None if known.optional or known.type == "any" else UNKNOWN
        try:
            return convert(known.type, raw)
        except WrongType:
            return UNKNOWN

    def actor(self, name: str, version: Version = "1.0.4") -> Any:
        """``get`` under ``actor:``."""
        return self.get(self.prefix + name, version)

    def field(self, path: str, version: Version) -> Field | None:
        """The schema's field at ``path``; None where it is unknown or not looked into."""
        section: str | None = self.class_name
        found = None
        for part in path.split("."):
            if section is None:
                return None
            found = table(version, section).get(part)
            if found is None:
                return None
            section = found.section
        return found

    def resolve(self, value: Any, depth: int = 0) -> Any:
        """``value`` with ``${…}`` replaced; UNKNOWN for resolvers, loops and missing keys."""
        if not isinstance(value, str) or "${" not in value:
            return value
        if depth > 20:
            return UNKNOWN
        whole = re.fullmatch(r"\$\{([\w.]+)\}", value)
        if whole:
            found = self.resolve(self._raw(whole.group(1)), depth + 1)
            return self._default_of(whole.group(1)) if found is _MISSING else found
        if re.search(r"\$\{[^}]*[^\w.}]", value):
            return UNKNOWN
        parts = [self.resolve(f"${{{name}}}", depth + 1) for name in _NAMES.findall(value)]
        if any(part is UNKNOWN for part in parts):
            return UNKNOWN
        texts = iter(parts)
        return _NAMES.sub(lambda _: str(next(texts)), value)

    def env(self) -> dict[str, str]:
        """Environment variables that the actor's workers are given."""
        specs = self.resolve(self._raw(f"{self.prefix}scheduling_spec"))
        found: dict[str, str] = {}
        for spec in specs if isinstance(specs, list) else []:
            variables = spec.get("env_vars") if isinstance(spec, Mapping) else None
            if isinstance(variables, Mapping):
                found |= {str(name): str(value) for name, value in variables.items()}
        return found

    @cached_property
    def backend(self) -> Backend | None:
        """The actor's engine and sizes; None where absent or not readable."""
        text = self.actor("backend")
        if not isinstance(text, str) or text in ("", "???"):
            return None
        try:
            return Backend.parse(text)
        except BackendError:
            return None

    def written(self, changes: Mapping[str, Any]) -> ArealConfig:
        """The config with ``changes`` (whole paths), written only where the value differs."""
        needed = {path: value for path, value in changes.items() if self._differs(path, value)}
        after = replace(self, yaml=self.yaml.with_values(needed))
        for path, value in needed.items():
            if after.resolve(after._raw(path)) != value:
                raise ConfigError(
                    f"`{path}` could not be set to {value} without rewriting the file. "
                    "Set it by hand.",
                    self.line(path),
                )
        return after

    def _differs(self, path: str, value: Any) -> bool:
        """Whether AReaL would see something else at ``path``, or this value in another type."""
        now = self.resolve(self._raw(path))
        if now is _MISSING:
            now = self.get(path)
        return now != value or isinstance(now, bool) != isinstance(value, bool)

    def diff(self, after: ArealConfig, name: str = "config.yaml") -> str:
        """A unified diff of the two texts; empty where nothing changes."""
        return "\n".join(
            difflib.unified_diff(
                self.yaml.text.splitlines(),
                after.yaml.text.splitlines(),
                name,
                f"{name} (tuned)",
                n=2,
                lineterm="",
            )
        )

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Every path of the file and its value as written; lists count as values."""
        yield from _leaves(self.values, "")

    def _raw(self, path: str) -> Any:
        node: Any = self.values
        for place, part in enumerate(path.split(".")):
            if place and isinstance(node, str) and "${" in node:
                node = self.resolve(node)
            if not isinstance(node, Mapping) or part not in node:
                return _MISSING
            node = node[part]
        return node

    def _plain(self, path: str) -> Any:
        found = self.resolve(self._raw(path))
        return None if found is _MISSING else found

    def _default_of(self, path: str) -> Any:
        known = self.field(path, "1.0.4")
        return UNKNOWN if known is None else known.default


_MISSING: Any = object()
_NAMES = re.compile(r"\$\{([\w.]+)\}")


def _leaves(node: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _merged(below: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(out.get(key), Mapping):
            out[key] = _merged(out[key], value)
        else:
            out[key] = value
    return out


def _defaults(values: Mapping[str, Any], folder: Path | None) -> tuple[dict[str, Any], list[str]]:
    """Values of the files that Hydra's ``defaults`` list names, and what could not be read."""
    listed = values.get("defaults")
    found: dict[str, Any] = {}
    notes: list[str] = []
    for entry in listed if isinstance(listed, list) else []:
        if entry == "_self_":
            continue
        if isinstance(entry, str):
            name = entry
        elif isinstance(entry, Mapping) and len(entry) == 1:
            (group, choice), *_ = entry.items()
            name = f"{group}/{choice}"
        else:
            notes.append(f"`defaults` entry {entry!r} was not read.")
            continue
        parts = Path(name.removesuffix(".yaml")).parts
        if folder is None or ".." in parts or Path(name).is_absolute():
            notes.append(f"`{name}.yaml` of `defaults` was not read; its keys are not checked.")
            continue
        file = folder.joinpath(*parts).with_suffix(".yaml")
        if not file.is_file():
            notes.append(f"`{name}.yaml` of `defaults` is not beside this file; not checked.")
            continue
        inner = ArealConfig.read(file)
        content = inner.values
        if isinstance(entry, Mapping):
            content = {str(next(iter(entry))): content}
        found = _merged(found, content)
        notes += inner.notes
    return found, notes
