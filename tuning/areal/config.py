"""A user's AReaL config: read with AReaL's defaults, turned into a plan, and written back.

Notable:
- values are what AReaL will see: interpolations resolved, types converted, defaults filled in
- environment and other resolvers (``${oc.env:…}``) are not run; such a value is UNKNOWN
- writing back touches only values that differ; comments, anchors and unknown keys stay
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tuning.areal.backend import Backend, BackendError
from tuning.areal.compose import ComposeError, compose, needs_hydra
from tuning.areal.names import TRAINER_NAMES, TREES_SERVE, UNKNOWN, Trainer
from tuning.areal.parser import Parsed, parse, raw_at
from tuning.areal.schema import Field, Version, field_at, table
from tuning.areal.yaml_nodes import REMOVED
from tuning.areal.yaml_text import MOST_BYTES, ConfigError, YamlText, too_large

__all__ = [
    "AGENT_KEYS",
    "REMOVED",
    "TRAINER_NAMES",
    "TREES_SERVE",
    "UNKNOWN",
    "ArealConfig",
    "ConfigError",
    "Trainer",
]

_CLASSES: dict[Trainer, str] = {
    "ppo": "PPOConfig",
    "rollout": "PPOConfig",
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "rw": "RWConfig",
    "engine": "PPOActorConfig",
    "other": "",
}
# A file with three of these is a config; with fewer, a part of one.
_FRAME = (
    "experiment_name",
    "trial_name",
    "tokenizer_path",
    "cluster",
    "train_dataset",
    "saver",
    "evaluator",
    "recover",
    "stats_logger",
    "rollout",
)
AGENT_KEYS = ("econfig", "agent_run_args", "max_turns", "export_style")
"""Of the scripts that train agents, beside AReaL's own classes."""
_NEWEST: Version = "main"
_MOST_HOPS = 50


@dataclass(frozen=True)
class ArealConfig:
    """One config file.

    yaml:     the file itself; ``composed`` is what Hydra makes of it with its ``defaults``
    notes:    sentences about what was not read
    refused:  Hydra's own words where it cannot compose the file
    """

    yaml: YamlText
    composed: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    refused: str = ""
    file: Path | None = None
    memo: dict[Version, Parsed] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def read(cls, source: str | bytes | Path) -> ArealConfig:
        """From text or a file. Raises ConfigError with line and mend."""
        if not isinstance(source, Path):
            return cls(YamlText.read(source))._with_hydra()
        try:
            with source.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise too_large(source.stat().st_size)
        except OSError as error:
            raise ConfigError(f"{source} cannot be read: {error.strerror}.") from None
        return cls(YamlText.read(content), file=source)._with_hydra()

    def _with_hydra(self) -> ArealConfig:
        if not needs_hydra(self.yaml.values, self.yaml.text):
            return self
        if self.file is None:
            note = "What Hydra composes (`defaults`, packages): only the file's folder tells."
            return replace(self, notes=(note,))
        try:
            return replace(self, composed=compose(self.file))
        except ComposeError as error:
            return replace(self, refused=str(error))
        except OSError as error:
            return replace(self, notes=(f"What Hydra composes of `defaults`: {error}.",))

    @property
    def folder(self) -> Path | None:
        return None if self.file is None else self.file.parent

    @cached_property
    def values(self) -> dict[str, Any]:
        """All values of the file and of what Hydra adds, as written."""
        if self.composed is not None:
            return dict(self.composed)
        return {k: v for k, v in self.yaml.values.items() if k not in ("defaults", "hydra")}

    @cached_property
    def trainer(self) -> Trainer:
        """Which of AReaL's trainers this config is for, as far as the file tells."""
        values = self.values
        top = set(values)
        if not top & {*table(_NEWEST, "PPOConfig"), "model"}:
            return "engine" if top & set(table(_NEWEST, "PPOActorConfig")) else "other"
        if "actor" not in values and ("backend" in values or "mb_spec" in values):
            return "engine"
        if "rollout" in top and not {"actor", "critic", "ref", "train_dataset"} & top:
            return "rollout"
        if {"rollout", "gconfig"} & top:
            return "ppo"
        actor = values.get("actor")
        actor = actor if isinstance(actor, Mapping) else {}
        kind = raw_at(values, "train_dataset.type")
        if kind == "dpo" or {"beta", "loss_type"} & set(actor):
            return "dpo"
        if kind == "rw" or actor.get("is_critic") is True:
            return "rw"
        # Without a rollout there is no PPO; a part of a config may have it elsewhere.
        of_ppo = set(table(_NEWEST, "PPOActorConfig")) - set(table(_NEWEST, "TrainEngineConfig"))
        reinforces = _is_part(top) or {"ref", "critic", "teacher"} & top
        return "ppo" if kind != "sft" and (reinforces or of_ppo & set(actor)) else "sft"

    @cached_property
    def fragment(self) -> bool:
        """Whether the file is a part of a config: what it lacks may stand elsewhere."""
        if self.trainer == "engine":
            return not {"experiment_name", "trial_name", "backend"} & set(self.values)
        return _is_part(set(self.values))

    @property
    def multi_turn(self) -> bool:
        """Whether a script's own keys say that a sample takes several turns."""
        return any(self.has(key) for key in AGENT_KEYS)

    @property
    def agent(self) -> bool:
        """Whether a sample may take several turns: it does, or an agent is configured."""
        return self.multi_turn or self.has("rollout.agent")

    @property
    def prefix(self) -> str:
        """``actor.``, or nothing where the file is the engine's config itself."""
        return "" if self.trainer == "engine" else "actor."

    @property
    def class_name(self) -> str:
        """AReaL's class for the whole file; empty where it has none."""
        return _CLASSES[self.trainer]

    def parsed(self, version: Version = "1.0.4") -> Parsed:
        """What AReaL's parser of this version sees."""
        if version not in self.memo:
            extended = self.trainer != "engine"
            self.memo[version] = parse(self.values, version, self.class_name, extended=extended)
        return self.memo[version]

    def has(self, path: str) -> bool:
        """Whether the file, or a file of its defaults, sets this key."""
        for _ in range(_MOST_HOPS):  # a section may refer to itself
            node: Any = self.values
            parts = path.split(".")
            for place, part in enumerate(parts):
                if isinstance(node, str) and node.startswith("${") and node.endswith("}"):
                    path = ".".join([node[2:-1], *parts[place:]])
                    break
                if not isinstance(node, Mapping) or part not in node:
                    return False
                node = node[part]
            else:
                return True
        return False

    def line(self, path: str) -> int | None:
        return self.yaml.line(path)

    def get(self, path: str, version: Version = "1.0.4") -> Any:
        """The value AReaL will see at ``path``; its default where the file has none; UNKNOWN."""
        node: Any = self.parsed(version).values
        for part in path.split("."):
            if node is UNKNOWN:
                return UNKNOWN
            if not isinstance(node, Mapping) or part not in node:
                known = self.field(path, version)
                return None if known is None else known.default
            node = node[part]
        return node

    def actor(self, name: str, version: Version = "1.0.4") -> Any:
        """``get`` under ``actor:``."""
        return self.get(self.prefix + name, version)

    def field(self, path: str, version: Version) -> Field | None:
        """The schema's field at ``path``; None where it is unknown or not looked into."""
        return field_at(version, self.class_name, path)

    def env(self, prefix: str | None = None) -> dict[str, str]:
        """Environment variables that an engine's workers are given, by default the actor's."""
        specs = self.get(f"{self.prefix if prefix is None else prefix}scheduling_spec")
        found: dict[str, str] = {}
        for spec in specs if isinstance(specs, list) else []:
            variables = spec.get("env_vars") if isinstance(spec, Mapping) else None
            if isinstance(variables, Mapping):
                found |= {str(name): str(value) for name, value in variables.items()}
        return found

    @cached_property
    def backend(self) -> Backend | None:
        """The actor's engine and sizes; None where absent or not readable."""
        return self.backend_of(self.prefix)

    def backend_of(self, prefix: str, version: Version = "1.0.4") -> Backend | None:
        """The same of any engine, such as ``ref.``."""
        text = self.get(f"{prefix}backend", version)
        if not isinstance(text, str) or text in ("", "???"):
            return None
        try:
            return Backend.parse(text, version)
        except BackendError:
            return None

    def assuming(self, path: str, value: Any, version: Version) -> ArealConfig:
        """The config as parsed, with one value assumed: the text and its lines stay the file's."""
        parsed = self.parsed(version)
        values = _set(parsed.values, path.split("."), value)
        return replace(self, memo={version: replace(parsed, values=values)})

    def written(self, changes: Mapping[str, Any]) -> ArealConfig:
        """The config with ``changes`` (whole paths), written only where the value differs.

        REMOVED in place of a value takes the key out.
        """
        needed = {path: value for path, value in changes.items() if self._differs(path, value)}
        yaml = self.yaml.with_values(needed)
        composed = self.composed
        for path, value in needed.items():
            if composed is not None:
                composed = _set(composed, path.split("."), value)
        after = replace(self, yaml=yaml, composed=composed, memo={})
        for path, value in needed.items():
            gone = value == REMOVED and not after.has(path)
            if not gone and raw_at(after.values, path) != value and after.get(path) != value:
                raise ConfigError(
                    f"`{path}` could not be set to {value} without rewriting the file. "
                    "Set it by hand.",
                    self.line(path),
                )
        return after

    def _differs(self, path: str, value: Any) -> bool:
        """Whether AReaL would see something else at ``path``, or this value in another type."""
        if value == REMOVED:
            return self.has(path)
        now = raw_at(self.values, path) if self.has(path) else None
        if now is None or (isinstance(now, str) and "${" in now):
            now = self.get(path)
        return now != value or type(now) is not type(value)

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


def _is_part(keys: set[str]) -> bool:
    """Whether a file with these keys is a part of a config."""
    return len(keys.intersection(_FRAME)) < 3


def _set(node: Mapping[str, Any], parts: list[str], value: Any) -> dict[str, Any]:
    """A copy of ``node`` with one value set."""
    first, *rest = parts
    if not rest and value == REMOVED:
        return {key: one for key, one in node.items() if key != first}
    inner = node.get(first)
    below = inner if isinstance(inner, Mapping) else {}
    return {**node, first: _set(below, rest, value) if rest else value}
