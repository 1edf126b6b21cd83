"""TuningPlan: every choice behind a figure, as one frozen value.

Pages, links, the run history, the command line and the report all carry this object and nothing
else; two equal plans over the same data mean the same question.

Notable:
- a field is written once, below: its type and limits, its default, an Option with its names (URL,
  command line, AReaL's key), and its words in the docstring; options, links, widgets and printed
  commands are made from that
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from packing.batch.dispatch import Dispatch
from packing.batch.spec import Packer
from packing.sources.errors import SourceError
from packing.sources.spec import SourceSpec
from packing.spec import BLOCK_SIZE, aligned
from tuning.areal.backend import Engine
from tuning.plan.gpus import Network

__all__ = [
    "DTYPES", "NETWORKS", "PACKERS", "STEPS", "STEP_NAMES", "Dispatch", "Dtype", "Engine", "Layout",
    "Option", "Packer", "PlanError", "Scope", "Step", "StepOf", "TuningPlan", "options",
]  # fmt: skip

Dtype = Literal["float32", "bfloat16"]
Layout = Literal["tree", "flat", "padded"]
"""How rows become micro-batches; the history and JSON call it ``mode``."""

StepOf = Literal["areal", "areal-espalier", "espalier"]
Step = Literal["auto", StepOf]
STEP_NAMES: Mapping[StepOf, str] = {
    "areal": "AReaL as it is",
    "areal-espalier": "AReaL with Espalier",
    "espalier": "Espalier alone",
}
"""Whose training step a figure is of; "with" is AReaL's engine under our plugin."""

STEPS: tuple[Step, ...] = get_args(Step)
NETWORKS: tuple[Network, ...] = get_args(Network)
PACKERS: tuple[Packer, ...] = get_args(Packer)
DTYPES: tuple[Dtype, ...] = get_args(Dtype)

Scope = Literal["batch", "packing", "step", "sweep"]
"""What a field is about: which rows, how they are packed, what a step runs, what a sweep tries."""


class PlanError(ValueError):
    """A plan cannot be read; the message names the field and the mend."""


@dataclass(frozen=True)
class Option:
    """The names and words of a plan's field.

    query: in a link; flags: on the command line, the first is printed, the others are older names
    label: of its widget; areal: its key in AReaL's config, where it has one
    help:  of widget and option: what the plan's docstring says of the field
    """

    query: str
    scope: Scope
    flags: tuple[str, ...]
    label: str
    areal: str = ""
    help: str = ""


def _option(query: str, scope: Scope, flags: str, label: str, areal: str = "") -> Option:
    return Option(query, scope, tuple(flags.split()), label, areal)


_Count = Annotated[int, Field(ge=1, lt=2**53)]
_CountOrAll = Annotated[int, Field(ge=0, lt=2**53)]
_Name = Annotated[str, Field(min_length=1)]
_Gib = Annotated[float, Field(ge=0, lt=1e6)]
_CAP, _BATCH_SIZE = "mb_spec.max_tokens_per_mb", "train_dataset.batch_size"
_NEW = "gconfig.max_new_tokens"
_CHECKPOINT = "gradient_checkpointing"


@dataclass(frozen=True)
class TuningPlan:
    """What is packed, trained and timed.

    source: Where rows come from.
    prompts_per_step: Prompt groups of one global batch; 0: all.
    samples_per_prompt: Rows kept of each prompt; 0: all.
    dp_size: Ranks that share a batch by whole prompts; measured together where there are so many
        GPUs from the device on.
    tp_size: A cap is a multiple of lcm(128, this).
    ppo_n_minibatches: Minibatches of an update. AReaL deals single rows to them, so samples of one
        prompt part.
    engine: fsdp, megatron or archon: it decides how micro-batches without trees are padded.
    dispatch: How AReaL shares prompts over ranks: by padded size (controller), or by true tokens
        (spmd).
    max_tokens_per_mb: Tokens of a tree at most; every tree is padded to it.
    packer: areal: AReaL's own first fit; prefix-aware: AReaL with our packer inside.
    model: A preset, a config.json, a folder that holds one, or a Hub id.
    dtype: float32 or bfloat16, of parameters and activations.
    gradient_checkpointing: Compute activations again in the backward pass.
    optimizer_dtype: float32 or bfloat16, of AdamW's two moments and the master weights.
    head_chunk: Parent tokens whose logits exist at once.
    step: Whose step is timed and must fit. areal: AReaL as it is; areal-espalier: AReaL with
        Espalier's plugin; espalier: ours alone, which no export can run. auto: areal, or
        areal-espalier where the packer is ours; on a CPU or GPU of this machine espalier, for
        AReaL's trees have no backward pass on a CPU, and need an environment with AReaL.
    network: What joins the ranks of an estimate: nvlink, pcie, ib or ethernet; auto: what the GPU
        is sold with.
    device: cpu, cuda:0 …; or a GPU to estimate for, such as h100-80, or gpu:TFLOPS:GB_PER_S:GIB.
    memory_budget_gib: What one rank may use; 0: what the device has.
    max_new_tokens: Rollouts end there at the latest; 0: the rows as they are.
    caps: Caps to try, separated by commas; none: chosen from the rows.
    """

    source: SourceSpec = field(default_factory=lambda: SourceSpec("sample", "math-grpo"))
    prompts_per_step: Annotated[
        _CountOrAll, _option("prompts", "batch", "--prompts", "prompts a step", _BATCH_SIZE)
    ] = 0
    samples_per_prompt: Annotated[
        _CountOrAll,
        _option("samples", "batch", "--samples", "samples a prompt", "gconfig.n_samples"),
    ] = 0
    dp_size: Annotated[_Count, _option("dp", "packing", "--dp", "data-parallel ranks")] = 1
    tp_size: Annotated[_Count, _option("tp", "packing", "--tp", "tensor-parallel ranks")] = 1
    ppo_n_minibatches: Annotated[
        _Count,
        _option("mb", "packing", "--ppo-n-minibatches", "ppo_n_minibatches", "ppo_n_minibatches"),
    ] = 1
    engine: Annotated[Engine, _option("engine", "packing", "--engine", "training engine")] = "fsdp"
    dispatch: Annotated[
        Dispatch, _option("dispatch", "packing", "--dispatch --mode", "dispatch")
    ] = "controller"
    max_tokens_per_mb: Annotated[
        _Count, _option("cap", "packing", "--cap", "max_tokens_per_mb", _CAP)
    ] = 8192
    packer: Annotated[Packer, _option("packer", "packing", "--packer", "packer")] = "areal"
    model: Annotated[_Name, _option("model", "packing", "--model", "model", "path")] = "tiny"
    dtype: Annotated[Dtype, _option("dtype", "packing", "--dtype", "dtype", "dtype")] = "float32"
    gradient_checkpointing: Annotated[
        bool,
        _option("ckpt", "step", "--gradient-checkpointing", "gradient checkpointing", _CHECKPOINT),
    ] = False
    optimizer_dtype: Annotated[
        Dtype,
        _option("optim", "step", "--optimizer-dtype", "optimizer dtype", "optimizer_dtype"),
    ] = "float32"
    head_chunk: Annotated[
        _Count, _option("head", "step", "--head-chunk", "tokens of the head at once")
    ] = 1024
    step: Annotated[Step, _option("step", "step", "--step", "whose step")] = "auto"
    network: Annotated[Network, _option("net", "step", "--network", "network")] = "auto"
    device: Annotated[_Name, _option("device", "step", "--device", "device")] = "cpu"
    memory_budget_gib: Annotated[_Gib, _option("mem", "step", "--memory", "memory budget, GiB")] = (
        0.0
    )
    max_new_tokens: Annotated[
        _CountOrAll, _option("new", "batch", "--max-new-tokens", "max_new_tokens", _NEW)
    ] = 0
    caps: Annotated[tuple[_Count, ...], _option("caps", "sweep", "--caps", "candidates")] = ()

    @property
    def alignment(self) -> int:
        """A cap must be a multiple of ``lcm(BLOCK_SIZE, tp)``."""
        return math.lcm(BLOCK_SIZE, self.tp_size)

    @property
    def backend(self) -> str:
        """AReaL's backend string: ``fsdp:d4t2``."""
        tensor = f"t{self.tp_size}" if self.tp_size > 1 else ""
        return f"{self.engine}:d{self.dp_size}{tensor}"

    @property
    def is_here(self) -> bool:
        """Whether the device is one of this machine; else steps on it are estimated."""
        return self.device.partition(":")[0] in ("cpu", "cuda")

    @property
    def step_of(self) -> StepOf:
        """Whose step is timed, and whose memory must fit."""
        if self.step != "auto":
            return self.step
        return "espalier" if self.is_here else self.exported_step

    @property
    def exported_step(self) -> StepOf:
        """Whose step an exported config runs: AReaL's, with Espalier inside where that is asked."""
        ours = self.step == "areal-espalier" or self.packer == "prefix-aware"
        return "areal-espalier" if ours else "areal"

    def unmeasurable(self, areal_python: str = "") -> list[str]:
        """What keeps the step from being timed on a device of this machine, one sentence each.

        areal_python: an interpreter that has AReaL, where one was named
        """
        if not self.is_here or self.step_of == "espalier":
            return []
        elsewhere = "step espalier, or a GPU to estimate for, such as device h100-80"
        if self.step_of == "areal" and self.device == "cpu":
            return [
                "AReaL as it is cannot train trees on a CPU: FlexAttention has no backward pass "
                f"there; choose step areal-espalier with --areal-python, {elsewhere}."
            ]
        if not areal_python:
            return [
                f"{STEP_NAMES[self.step_of]} is measured where AReaL is installed: name that "
                "Python by --areal-python (scripts/areal_env makes one), or choose "
                f"{elsewhere}."
            ]
        if self.engine != "fsdp":
            return [f"AReaL's FSDP engine is what can be measured; engine is {self.engine}."]
        return []

    def problems(self) -> list[str]:
        """What keeps this plan from being run, one sentence each; empty where nothing does."""
        found = []
        for name in options():
            try:
                _checked(name, getattr(self, name))
            except PlanError as error:
                found.append(str(error))
        if self.tp_size > 0:
            found += [
                f"max_tokens_per_mb is {cap}; choose a multiple of {self.alignment}, "
                f"such as {aligned(max(cap, 1), self.alignment)}."
                for cap in (self.max_tokens_per_mb, *self.caps)
                if cap % self.alignment
            ]
        if self.step == "areal" and self.packer == "prefix-aware":
            found.append(
                "AReaL as it is packs by its own first fit and cannot run packer prefix-aware: "
                "choose step areal-espalier, or packer areal."
            )
        if self.step == "areal-espalier" and self.engine != "fsdp":
            found.append(
                f"Espalier's plugin serves AReaL's FSDP engine, and engine is {self.engine}: "
                "choose engine fsdp, or step areal."
            )
        if self.prompts_per_step % max(self.dp_size, 1):
            found.append(
                f"{self.prompts_per_step} prompts a step do not divide over {self.dp_size} "
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
            if name == "source":
                known[name] = SourceSpec.from_json(content)
            elif name in options():
                known[name] = _checked(name, content)
            else:
                names = ", ".join(["source", *options()])
                raise PlanError(f"{name} is no field of a plan; fields are {names}.")
        return cls(**known)

    def to_query(self) -> dict[str, str]:
        """Short URL parameters of what differs from the defaults."""
        default = TuningPlan()
        out = {} if self.source == default.source else {_SOURCE: _short_source(self.source)}
        for name, option in options().items():
            if (value := getattr(self, name)) != getattr(default, name):
                out[option.query] = as_text(value)
        return out

    @staticmethod
    def query_names() -> frozenset[str]:
        """The URL parameters that a plan may set."""
        return frozenset({_SOURCE, *(option.query for option in options().values())})

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> tuple[TuningPlan, list[str]]:
        """The plan of a link, and a sentence for each parameter that could not be used."""
        plan, refused = cls(), []
        for name, short in {
            "source": _SOURCE,
            **{n: o.query for n, o in options().items()},
        }.items():
            if short not in query:
                continue
            try:
                plan = replace(plan, **{name: from_text(name, query[short])})
            except (PlanError, SourceError) as error:
                refused.append(f"The link's {short}={query[short]!r} was not used. {error}")
        return plan, refused

    @property
    def key(self) -> str:
        """16 hex digits over every field: the plan's name in caches and in the history."""
        plain = asdict(self) | {"source": self.source.to_json()}
        text = json.dumps(plain, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


_SOURCE = "data"


@cache
def options() -> dict[str, Option]:
    """The Option of every field but ``source``, in the order of the fields."""
    said = dict(re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", TuningPlan.__doc__ or "", re.M))
    return {
        name: replace(
            next(one for one in hint.__metadata__ if isinstance(one, Option)),
            help=" ".join(said[name].split()),
        )
        for name, hint in get_type_hints(TuningPlan, include_extras=True).items()
        if name != "source"
    }


@cache
def plain_type(name: str) -> Any:
    """What a field holds: int, float, bool, str, a Literal, or a tuple of whole numbers."""
    return get_type_hints(TuningPlan)[name]


def as_text(value: Any) -> str:
    """A field's value in a link or on a command line; ``from_text`` reads it back."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def from_text(name: str, text: str) -> Any:
    """The value of a field from a link or a command line. Raises PlanError or SourceError."""
    if name == "source":
        if text.startswith("sample:"):
            return SourceSpec("sample", text.removeprefix("sample:"))
        return SourceSpec.from_query(text)
    kind = plain_type(name)
    try:
        if get_origin(kind) is tuple:
            return _checked(name, [int(part) for part in text.split(",") if part])
        if kind is bool:
            return _checked(name, {"0": False, "1": True}.get(text, text))
        return _checked(name, kind(text) if kind in (int, float) else text)
    except (ValueError, OverflowError) as error:
        if isinstance(error, PlanError):
            raise
        number = "whole numbers, separated by commas" if get_origin(kind) is tuple else "a number"
        raise PlanError(f"{name} must be {number}.") from None


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(TuningPlan, include_extras=True)[name])


def _checked(name: str, value: object) -> Any:
    """``value`` where the field may hold it. Raises PlanError saying what it may be."""
    lists = isinstance(value, list)  # JSON has no tuples
    try:
        return _adapter(name).validate_python(tuple(value) if lists else value, strict=True)  # type: ignore[arg-type]
    except ValidationError:
        pass
    kind = plain_type(name)
    if get_origin(kind) is Literal:
        raise PlanError(f"{name} is {value!r}; choose one of {', '.join(get_args(kind))}.")
    if get_origin(kind) is tuple:
        raise PlanError(f"{name} must be a list of whole numbers.")
    if kind is bool:
        raise PlanError(f"{name} must be true or false.")
    if kind is str:
        raise PlanError(f"{name} must be a name.")
    least = 1 if _refuses_zero(name) else 0
    number = "a whole number" if kind is int else "a number"
    raise PlanError(f"{name} is {value!r}; it must be {number}, at least {least}.")


def _refuses_zero(name: str) -> bool:
    try:
        _adapter(name).validate_python(plain_type(name)(0))
    except ValidationError:
        return True
    return False


def _short_source(source: SourceSpec) -> str:
    """``sample:NAME`` where that says it all, JSON otherwise."""
    if source == SourceSpec("sample", source.location):
        return f"sample:{source.location}"
    return source.to_query()
