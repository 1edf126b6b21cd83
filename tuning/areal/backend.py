"""AReaL's ``backend`` strings: the engine and how many ranks share what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Engine = Literal["fsdp", "megatron", "archon"]


class BackendError(ValueError):
    """AReaL cannot parse the string; the message says why."""


@dataclass(frozen=True)
class Backend:
    """``engine:dXtXpXcXeX``; sizes default to 1. ``expert`` is what ``ffn:`` says where given."""

    engine: Engine
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context

    @classmethod
    def parse(cls, text: str) -> Backend:
        """Raises BackendError."""
        match = re.fullmatch(r"\s*(\w+)\s*(?:\[\w+\])?\s*:\s*(.+?)\s*", text)
        if match is None:
            raise BackendError(
                f"`{text}` names no engine. Write `fsdp:d8`, `megatron:d4t2` or `archon:d8`."
            )
        engine, dims = match.groups()
        if engine not in get_args(Engine):
            raise BackendError(
                f"`{engine}` is no training engine. Choose fsdp, megatron or archon."
            )
        expert: dict[str, int] = {}
        hybrid = re.fullmatch(r"\(?\s*attn\s*:([^|]+)\|\s*ffn\s*:([^)]+)\)?", dims)
        if hybrid:
            dims = hybrid.group(1)
            expert = _dims(hybrid.group(2), "detp")
        sizes = _dims(dims, "cdtp" if hybrid else "cdtpe")
        return cls(
            engine,  # type: ignore[arg-type]
            data=sizes.get("d", 1),
            tensor=sizes.get("t", 1),
            pipeline=sizes.get("p", 1),
            context=sizes.get("c", 1),
            expert=expert.get("e", sizes.get("e", 1)),
        )


def _dims(text: str, allowed: str) -> dict[str, int]:
    text = re.sub(r"\s", "", text)
    if not re.fullmatch(rf"(?:[{allowed}][1-9]\d*)+", text):
        raise BackendError(
            f"`{text}` are no sizes. Write a letter of {', '.join(allowed)} and a number each, "
            "such as d4t2."
        )
    return {letter: int(size) for letter, size in re.findall(r"([a-z])(\d+)", text)}
