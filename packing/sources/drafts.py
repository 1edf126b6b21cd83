"""Drafts: rows before their text is tokens, and what is read off a record beside its text."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from packing.sources import fields
from packing.sources.chat.template import Conversation, Part
from packing.sources.chat.tokenizer import Tokenizer
from packing.sources.chunks import Record
from packing.sources.errors import Where
from packing.sources.problems import Flag
from packing.sources.roles import Roles

MAX_CHECKED = 40


@dataclass(frozen=True)
class Draft:
    """A row before its text is tokens.

    group:  any hashable value, equal for rows sampled from one prompt
    record: number of the record it comes from, counted over all files
    seqlen: tokens it had where it was generated, or None
    length: tokens to simulate: a number of the record, or its answer, or None
    retokenised: its ids were made here of text
    """

    parts: tuple[Part, ...]
    group: Any
    record: int
    where: Where
    reward: float = math.nan
    flags: int = 0
    seqlen: int | None = None
    length: float | Part | None = None
    retokenised: bool = False


@dataclass
class PrefixCheck:
    """Does the template keep prefixes from turn to turn, and what it costs where it does not.

    conversations, turns: how many were looked at (the first MAX_CHECKED conversations)
    broken:               turns whose text the next prompt does not start with
    first:                a sentence naming the first of them, or None
    lost:                 text of each that is computed a second time
    """

    conversations: int = 0
    turns: int = 0
    broken: int = 0
    first: str | None = None
    lost: list[str] = field(default_factory=list)

    def see(self, talk: Conversation, where: Where) -> None:
        if self.conversations >= MAX_CHECKED or len(talk.turns) < 2:
            return
        self.conversations += 1
        self.turns += len(talk.turns) - 1
        self.broken += len(talk.breaks)
        self.lost += [b.lost for b in talk.breaks]
        if talk.breaks and self.first is None:
            at = talk.breaks[0]
            self.first = (
                f"{where}, message {at.turn}: the next turn's prompt does not repeat this turn "
                f"from {at.lost[:40]!r} on"
            )


@dataclass(frozen=True)
class RowParts:
    parts: list[Part]
    path: str
    key: Any
    flags: int = 0
    retokenised: bool = False


def required(record: Record, path: str, where: Where) -> Any:
    value = fields.first(record, path)
    if value is fields.MISSING or value is None:
        what = "is null" if value is None else "is missing"
        raise where.error(what, "add it or take the row out", path)
    return value


def values_of(record: Record, roles: Roles, role: str, where: Where) -> list[tuple[str, Any]]:
    """(path, value) of every place that holds ``role``. Raises SourceError where there is none."""
    out = []
    for path in roles.all(role):
        found = [(p, v) for p, v in fields.find(record, path) if v is not None]
        out += found if "*" in path else [(path, required(record, path, where))]
    return out


def prompt_key(parts: Sequence[Part]) -> bytes:
    """A digest of the parts before the first that is trained on: rows of one prompt agree in it."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if part.trained:
            break
        content = part.content
        digest.update(content.encode() if isinstance(content, str) else content.tobytes())
    return digest.digest()


def completion_flags(parts: Sequence[Part], tokenizer: Tokenizer | None) -> int:
    trained = [p.content for p in parts if p.trained]
    if not trained:
        return Flag.NO_COMPLETION
    if not all(isinstance(t, str) for t in trained):
        return 0
    text = "".join(str(t) for t in trained)
    text = text.replace(tokenizer.eos_token, "") if tokenizer and tokenizer.eos_token else text
    return 0 if text.strip() else (Flag.WHITESPACE if text else Flag.EMPTY_COMPLETION)


def rewards_of(record: Record, roles: Roles) -> dict[str, Any]:
    """Reward by the path it is beside: ``""`` for one of the record itself."""
    found = (f for path in roles.all("reward") for f in fields.find(record, path))
    return {at.rpartition(".")[0]: fields.unpacked(value) for at, value in found}


def number_of(record: Record, roles: Roles, role: str) -> float | None:
    path = roles.first(role)
    value = as_float(fields.first(record, path)) if path else math.nan
    return value if math.isfinite(value) else None


def reward_of(rewards: dict[str, Any], path: str, n: int, rows: int) -> float:
    beside = path.rpartition(".")[0]
    value = rewards.get(beside, rewards.get("", math.nan))
    if isinstance(value, list | np.ndarray):
        value = value[n] if len(value) == rows else math.nan
    return as_float(value)


def as_float(value: Any) -> float:
    if isinstance(value, bool | int | float | np.number):
        return float(value)
    try:
        return float(value) if isinstance(value, str) else math.nan
    except ValueError:
        return math.nan
