"""AReaL's ``backend`` strings: which engine or server, and how many ranks share what.

Notable:
- the grammar and its checks are those of ``api/alloc_mode.py``: white space between words is
  free, a size that is given twice counts the last time, brackets need not be closed
- ``megatron[actor]:(attn:…|ffn:…)``, a name beside expert layouts, came after 2.0.0
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from tuning.areal.schema import Version

Engine = Literal["fsdp", "megatron", "archon"]
ServerKind = Literal["sglang", "vllm"]
_NAMED_EXPERTS: tuple[Version, ...] = ("main",)
_HEAD = re.compile(r"\s*(\w+)\s*(\[\s*[a-zA-Z_]\w*\s*\])?\s*:(.*)", re.DOTALL | re.ASCII)
_EXPERTS = re.compile(r"\s*\(?\s*attn\s*:([^|]*)\|\s*ffn\s*:([^)]*)\)?\s*", re.DOTALL)


class BackendError(ValueError):
    """AReaL refuses the string: why, with the mend. ``says`` is its own complaint."""

    def __init__(self, message: str, says: str = "") -> None:
        super().__init__(message)
        self.says = says


@dataclass(frozen=True)
class Backend:
    """A training engine ``engine:dXtXpXcXeX``; sizes default to 1.

    expert, expert_tensor: ranks that share the experts of a layer, and one expert
    """

    engine: Engine
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context

    @classmethod
    def parse(cls, text: str, version: Version = "1.0.4") -> Backend:
        """Raises BackendError."""
        engine, name, rest = _head(text, get_args(Engine))
        hybrid = _EXPERTS.fullmatch(rest)
        if hybrid and name and version not in _NAMED_EXPERTS:
            raise BackendError(
                f"`{engine}{name}:(attn:…|ffn:…)` gives a name to an expert layout, which only "
                f"AReaL main reads. Write `{engine}:{rest.strip()}`.",
                "Parsing error: Unexpected token",
            )
        if not hybrid:
            sizes = _sizes(rest, "pdtce", f"{engine}:d8")
            expert, expert_tensor = sizes.get("e", 1), 1
        else:
            sizes = _sizes(hybrid.group(1), "cdtp", "attn:d4t2")
            own = _sizes(hybrid.group(2), "detp", "ffn:d2e4")
            expert, expert_tensor = own.get("e", 1), own.get("t", 1)
            _check_experts(sizes, own)
        found = cls(
            engine,  # type: ignore[arg-type]
            data=sizes.get("d", 1),
            tensor=sizes.get("t", 1),
            pipeline=sizes.get("p", 1),
            context=sizes.get("c", 1),
            expert=expert,
            expert_tensor=expert_tensor,
        )
        found._check()
        return found

    def _check(self) -> None:
        shared = self.pipeline * self.expert_tensor * self.expert
        if self.expert > 1 and self.gpus % shared:
            raise BackendError(
                f"{self.expert} expert ranks in a pipeline of {self.pipeline} need a multiple of "
                f"{shared} GPUs, not {self.gpus}. Choose an e that divides.",
                f"Expert model parallel size {shared} cannot divide world size {self.gpus}.",
            )
        if self.engine == "fsdp" and (self.pipeline > 1 or self.expert > 1):
            raise BackendError(
                f"FSDP has p{self.pipeline} and e{self.expert}; it knows d, t and c only. Write it "
                "without p and e, or use megatron.",
                "FSDP backend only supports data/tensor/context parallelism.",
            )


@dataclass(frozen=True)
class Server:
    """An inference server ``sglang:dXtXpX``."""

    kind: ServerKind
    data: int = 1
    tensor: int = 1
    pipeline: int = 1

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline

    @classmethod
    def parse(cls, text: str) -> Server:
        """Raises BackendError."""
        kind, _, rest = _head(text, get_args(ServerKind))
        sizes = _sizes(rest, "dtp", f"{kind}:d4t2")
        data, tensor, pipeline = (sizes.get(letter, 1) for letter in "dtp")
        return cls(kind, data, tensor, pipeline)  # type: ignore[arg-type]


_KNOWN = (*get_args(Engine), *get_args(ServerKind))


def _head(text: str, wanted: tuple[str, ...]) -> tuple[str, str, str]:
    """Engine, ``[name]`` and sizes."""
    if "+" in text or re.search(r"\|\s*(?:fsdp|megatron|archon|sglang|vllm)\b", text):
        raise BackendError(
            f"`{text}` names several engines. Give each its own `backend`.",
            "ModelAllocation.from_str() accepts a single component spec.",
        )
    match = _HEAD.fullmatch(text)
    if match is None or match.group(1) not in _KNOWN:
        raise BackendError(
            f"`{text}` names no engine that AReaL has. Write such as `{wanted[0]}:d8`; it may be "
            f"{', '.join(wanted)}.",
            "Parsing error" if match else "Backend must be explicitly specified.",
        )
    engine, name, rest = match.groups()
    if engine not in wanted:
        raise BackendError(
            f"`{engine}` is none of {', '.join(wanted)}, which can stand here.",
            f"Invalid backend: {engine}, expected {', '.join(wanted[:-1])} or {wanted[-1]}",
        )
    return engine, name or "", rest


def _sizes(text: str, letters: str, example: str) -> dict[str, int]:
    if not re.fullmatch(rf"\s*(?:[{letters}]\s*[1-9][0-9]{{0,99}}\s*)+", text):
        raise BackendError(
            f"`{text.strip()}` are no sizes. Write a letter of {', '.join(letters)} and a number "
            f"from 1 each, such as {example}.",
            "Parsing error",
        )
    return {letter: int(size) for letter, size in re.findall(r"([a-z])\s*(\d+)", text)}


def _check_experts(attention: dict[str, int], own: dict[str, int]) -> None:
    pipeline = attention.get("p", 1)
    if own.get("p", pipeline) != pipeline:
        raise BackendError(
            f"The pipeline is {pipeline} for attn and {own['p']} for ffn. Give both the same p.",
            "Pipeline parallel size for attention and FFN modules must be identical.",
        )
    gpus = attention.get("d", 1) * attention.get("t", 1) * pipeline * attention.get("c", 1)
    shared = own.get("e", 1) * own.get("t", 1) * pipeline
    if "d" not in own and gpus % shared:
        raise BackendError(
            f"attn has {gpus} GPUs, which {shared} of ffn (e × t × p) do not divide. Choose an e "
            "that divides.",
            f"Cannot derive expert dp: attn world_size ({gpus}) is not divisible by ffn ep*tp*pp "
            f"({shared}).",
        )
    if "d" in own and own["d"] * shared != gpus:
        raise BackendError(
            f"attn has {gpus} GPUs and ffn {own['d'] * shared}. Both must have the same number.",
            "World size for expert modules and attention modules must be identical.",
        )
