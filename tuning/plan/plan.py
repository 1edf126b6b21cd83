"""TuningPlan: every choice behind a figure, as one frozen value.

Pages, links, the run history, the command line and the report all carry this object and nothing
else; two equal plans over the same data mean the same question.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from packing.sources.errors import SourceError
from packing.sources.spec import SourceSpec
from packing.spec import BLOCK_SIZE
from tuning.areal.backend import Engine

Dispatch = Literal["controller", "spmd"]
Packer = Literal["areal", "prefix-aware"]
Dtype = Literal["float32", "bfloat16"]
Layout = Literal["tree", "flat", "padded"]
"""How rows become micro-batches; the history and JSON call it ``mode``."""


class PlanError(ValueError):
    """A plan cannot be read; the message names the field and the mend."""


@dataclass(frozen=True)
class TuningPlan:
    """What is packed, trained and timed.

    source:                 where rows come from
    prompts_per_step:       prompt groups of one global batch; 0 takes all
    samples_per_prompt:     rows kept of each group; 0 keeps all
    dp_size, tp_size:       data- and tensor-parallel ranks
    ppo_n_minibatches:      PPO minibatches of a rank's batch
    engine, dispatch:       AReaL's training engine, and how groups go to ranks
    max_tokens_per_mb:      the cap in question
    packer:                 AReaL's first fit, or ours
    model:                  preset, config.json, folder, or Hub id
    dtype:                  of parameters and activations
    gradient_checkpointing: recompute activations in the backward pass
    optimizer_dtype:        of AdamW's two moments and the master weights
    head_chunk:             parent tokens whose logits exist at once
    device:                 "cpu", or "cuda:0" …
    memory_budget_gib:      what one rank may use; 0: what the device has
    max_new_tokens:         rollouts end there at the latest; 0: the rows as they are
    caps:                   candidates of a sweep; empty: chosen from the rows
    """

    source: SourceSpec = field(default_factory=lambda: SourceSpec("sample", "math-grpo"))
    prompts_per_step: int = 0
    samples_per_prompt: int = 0
    dp_size: int = 1
    tp_size: int = 1
    ppo_n_minibatches: int = 1
    engine: Engine = "fsdp"
    dispatch: Dispatch = "controller"
    max_tokens_per_mb: int = 8192
    packer: Packer = "areal"
    model: str = "tiny"
    dtype: Dtype = "float32"
    gradient_checkpointing: bool = False
    optimizer_dtype: Dtype = "float32"
    head_chunk: int = 1024
    device: str = "cpu"
    memory_budget_gib: float = 0.0
    max_new_tokens: int = 0
    caps: tuple[int, ...] = ()

    @property
    def alignment(self) -> int:
        """A cap must be a multiple of ``lcm(BLOCK_SIZE, tp)``."""
        return math.lcm(BLOCK_SIZE, self.tp_size)

    @property
    def backend(self) -> str:
        """AReaL's backend string: ``fsdp:d4t2``."""
        tensor = f"t{self.tp_size}" if self.tp_size > 1 else ""
        return f"{self.engine}:d{self.dp_size}{tensor}"

    def problems(self) -> list[str]:
        """What keeps this plan from being run, one sentence each; empty where nothing does."""
        found = [
            f"{name} is {getattr(self, name)}; choose at least {least}."
            for name, least in _LEAST.items()
            if getattr(self, name) < least
        ]
        if self.tp_size > 0:
            found += [
                f"max_tokens_per_mb is {cap}; choose a multiple of {self.alignment}, "
                f"such as {max(-(-cap // self.alignment), 1) * self.alignment}."
                for cap in (self.max_tokens_per_mb, *self.caps)
                if cap % self.alignment
            ]
        if self.prompts_per_step % max(self.dp_size, 1):
            found.append(
                f"{self.prompts_per_step} prompts per step do not divide over {self.dp_size} "
                "data-parallel ranks; AReaL stops at the first step."
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain values without the defaults; ``from_json`` reads them back to an equal plan."""
        default = TuningPlan()
        out: dict[str, Any] = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != getattr(default, f.name)
        }
        if "source" in out:
            out["source"] = self.source.to_json()
        if "caps" in out:
            out["caps"] = list(self.caps)
        return out

    @classmethod
    def from_json(cls, value: object) -> TuningPlan:
        """Raises PlanError naming a field that is unknown or of a wrong type."""
        if not isinstance(value, Mapping):
            raise PlanError("a plan is an object with named fields, as `plan.to_json()` writes it.")
        known: dict[str, Any] = {}
        for name, content in value.items():
            known[str(name)] = _read_field(str(name), content)
        return cls(**known)

    def to_query(self) -> dict[str, str]:
        """Short URL parameters of what differs from the defaults."""
        plain = self.to_json()
        if "source" in plain:
            plain["source"] = _short_source(self.source)
        if "caps" in plain:
            plain["caps"] = ",".join(map(str, self.caps))
        if "gradient_checkpointing" in plain:
            plain["gradient_checkpointing"] = int(self.gradient_checkpointing)
        return {_QUERY[name]: str(content) for name, content in plain.items()}

    @staticmethod
    def query_names() -> frozenset[str]:
        """The URL parameters that a plan may set."""
        return frozenset(_QUERY.values())

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> tuple[TuningPlan, list[str]]:
        """The plan of a link, and a sentence for each parameter that could not be used."""
        plan, refused = cls(), []
        for name, short in _QUERY.items():
            if short not in query:
                continue
            try:
                plan = replace(plan, **{name: _from_text(name, query[short])})
            except (PlanError, SourceError) as error:
                refused.append(f"The link's {short}={query[short]!r} was not used. {error}")
        return plan, refused

    @property
    def key(self) -> str:
        """16 hex digits over every field: the plan's name in caches and in the history."""
        plain = asdict(self) | {"source": self.source.to_json()}
        text = json.dumps(plain, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


_LEAST = {
    "prompts_per_step": 0,
    "samples_per_prompt": 0,
    "dp_size": 1,
    "tp_size": 1,
    "ppo_n_minibatches": 1,
    "max_tokens_per_mb": 1,
    "head_chunk": 1,
    "memory_budget_gib": 0,
    "max_new_tokens": 0,
}

_QUERY = {
    "source": "data",
    "prompts_per_step": "prompts",
    "samples_per_prompt": "samples",
    "dp_size": "dp",
    "tp_size": "tp",
    "ppo_n_minibatches": "mb",
    "engine": "engine",
    "dispatch": "dispatch",
    "max_tokens_per_mb": "cap",
    "packer": "packer",
    "model": "model",
    "dtype": "dtype",
    "gradient_checkpointing": "ckpt",
    "optimizer_dtype": "optim",
    "head_chunk": "head",
    "device": "device",
    "memory_budget_gib": "mem",
    "max_new_tokens": "new",
    "caps": "caps",
}

_CHOICES: dict[str, tuple[str, ...]] = {
    "engine": get_args(Engine),
    "dispatch": get_args(Dispatch),
    "packer": get_args(Packer),
    "dtype": get_args(Dtype),
    "optimizer_dtype": get_args(Dtype),
}


def _short_source(source: SourceSpec) -> str:
    """``sample:NAME`` where that says it all, JSON otherwise."""
    if source == SourceSpec("sample", source.location):
        return f"sample:{source.location}"
    return source.to_query()


def _from_text(name: str, text: str) -> Any:
    if name == "source":
        if text.startswith("sample:"):
            return SourceSpec("sample", text.removeprefix("sample:"))
        return SourceSpec.from_query(text)
    if name in _CHOICES or name in ("model", "device"):
        return _read_field(name, text)
    try:
        if name == "caps":
            return _read_field(name, [int(part) for part in text.split(",")])
        if name == "memory_budget_gib":
            return _read_field(name, float(text))
        number = int(text)
    except ValueError:
        raise PlanError(f"{name} must be a number.") from None
    return _read_field(name, bool(number) if name == "gradient_checkpointing" else number)


def _read_field(name: str, content: object) -> Any:
    if name not in _QUERY:
        raise PlanError(f"{name} is no field of a plan; fields are {', '.join(_QUERY)}.")
    if name == "source":
        return SourceSpec.from_json(content)
    if name in _CHOICES:
        if content not in _CHOICES[name]:
            raise PlanError(f"{name} is {content!r}; choose one of {', '.join(_CHOICES[name])}.")
        return content
    if name in ("model", "device"):
        if not isinstance(content, str) or not content:
            raise PlanError(f"{name} must be a name.")
        return content
    if name == "gradient_checkpointing":
        if not isinstance(content, bool):
            raise PlanError(f"{name} must be true or false.")
        return content
    if name == "caps":
        if not isinstance(content, list | tuple) or not all(map(_whole, content)):
            raise PlanError("caps must be a list of whole numbers.")
        return tuple(content)
    if name == "memory_budget_gib":
        if (
            isinstance(content, bool)
            or not isinstance(content, int | float)
            or not 0 <= content < 1e6
        ):
            raise PlanError(f"{name} must be a number of GiB, 0 or more.")
        return float(content)
    if not _whole(content) or content < _LEAST[name]:  # type: ignore[operator]
        raise PlanError(f"{name} must be a whole number, at least {_LEAST[name]}.")
    return content


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
