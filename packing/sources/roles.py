"""Which column is what: roles recognised from names and contents, and reassigned by hand.

Notable:
- a role is given by (role, path) pairs; ``completion`` may be in many columns (one per sample)
- names decide only where the content fits: a ``messages`` column that holds text is not messages
- reassigning one content role drops the other recognised content roles
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from packing.sources import fields
from packing.sources.columns import named, names, walk
from packing.sources.dialects import is_conversation
from packing.sources.errors import SourceError
from packing.sources.role_names import (
    ANSWERS,
    CONTENT,
    GROUP,
    MESSAGES,
    PROMPT,
    QUESTION,
    REWARD,
    ROW_OR_GROUP,
    SAMPLE_TEXT,
    SAMPLED,
    STEP,
    TRAJECTORY,
)
from packing.sources.token_ids import recognised_ids

FEWEST = 4
COMPARED = 100  # first records that tell an id of a group from a number of a row


@dataclass(frozen=True)
class Roles:
    """Role to column paths, as (role, path) pairs."""

    pairs: tuple[tuple[str, str], ...]

    def all(self, role: str) -> tuple[str, ...]:
        return tuple(path for r, path in self.pairs if r == role)

    def first(self, role: str) -> str | None:
        return next((path for r, path in self.pairs if r == role), None)

    @property
    def asked(self) -> str | None:
        """Where the prompts are, or None."""
        return self.first("prompt") or self.first("question")

    @property
    def columns(self) -> set[str]:
        """Every top-level column that may hold a path's start (keys may hold dots)."""
        out = set()
        for _, path in self.pairs:
            parts = path.split(".")
            out |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
        return out


def resolve(
    records: Sequence[Mapping[str, Any]], chosen: tuple[tuple[str, str], ...], file: str
) -> Roles:
    """Recognised roles with the ``chosen`` ones in their place.

    Raises SourceError for a path that no record has, and where nothing holds rows.
    """
    known = recognise(records)
    replaced = {role for role, _ in chosen}
    content = replaced & set(CONTENT)
    if content:
        replaced |= {*CONTENT, "attention_mask", "loss_mask"}
        if content <= {"prompt", "question"}:
            replaced.discard("completion")
        elif content == {"completion"}:
            replaced -= {"prompt", "question"}
    replaced |= {role for role, _ in chosen}
    for role, path in chosen:
        if not any(True for record in records for _ in fields.find(record, path)):
            raise SourceError(
                f"{file}, field '{path}': no such field in the first {len(records)} rows; "
                f"{role} can be one of {names(records)}."
            )
    pairs = tuple(p for p in known if p[0] not in replaced) + chosen
    roles = Roles(pairs)
    if not any(roles.first(role) for role in CONTENT):
        raise SourceError(
            f"{file}: no column is recognised as rows; say which one is, as in --role messages="
            f"COLUMN or --role prompt=COLUMN --role completion=COLUMN: the columns are "
            f"{names(records)}."
        )
    return roles


def recognise(records: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """(role, path) pairs found in the first records; empty where nothing is recognised."""
    sample = _merged(records)
    pairs = _content(sample)
    taken = {path for _, path in pairs}
    named = [n for n in GROUP if _scalar(sample.get(n)) and n not in taken]
    group = next((n for n in named if not _numbers_rows(records, n, pairs)), None)
    pairs += [("group", group)] if group else []
    step = next((n for n in STEP if _scalar(sample.get(n)) and n not in taken), None)
    pairs += [("step", step)] if step and not _counts_turns(records, step) else []
    if not any(role == "reward" for role, _ in pairs):
        name = next((n for n in REWARD if n in sample and _rewards(sample[n])), None)
        pairs += [("reward", name)] if name else []
    if "tools" in sample and isinstance(fields.unpacked(sample["tools"]), list):
        pairs.append(("tools", "tools"))
    if {"seqlen", "prompt_len", "completion"} <= sample.keys():
        pairs.append(("seqlen", "seqlen"))
    return tuple(pairs)


def _numbers_rows(
    records: Sequence[Mapping[str, Any]], name: str, pairs: Sequence[tuple[str, str]]
) -> bool:
    """Whether ids of their own number the rows of one prompt: then they name no groups."""
    path = next((p for role, p in pairs if role in ("prompt", "question")), None)
    if path is None or name not in ROW_OR_GROUP or len(records) < FEWEST:
        return False
    prompts = [repr(fields.first(r, path)) for r in records[:COMPARED]]
    ids = [str(r.get(name)) for r in records[:COMPARED]]
    return len(set(prompts)) < len(prompts) and len(set(ids)) == len(ids)


def _counts_turns(records: Sequence[Mapping[str, Any]], step: str) -> bool:
    """Whether a step goes on inside a trajectory: then it is a turn's number, not a batch's."""
    seen: dict[str, Any] = {}
    for record in records:
        name = next((n for n in TRAJECTORY if n in record), None)
        if name and seen.setdefault(str(record[name]), record.get(step)) != record.get(step):
            return True
    return False


def _content(sample: Mapping[str, Any]) -> list[tuple[str, str]]:
    if _segments(sample.get("segments")):
        return [("segments", "segments")]
    given = recognised_ids(sample)
    if given:
        return given
    question = named(sample, QUESTION, _texty, True)
    prompt = named(sample, PROMPT, _promptlike, True)
    head = [("prompt", prompt)] if prompt else [("question", question)] if question else []
    chosen = [n for n in ("chosen", "rejected") if n in sample]
    if len(chosen) == 2:
        talk = fields.unpacked(sample["chosen"])
        whole = "messages" if is_conversation(talk) else "text"
        if head and (whole == "text" or len(talk) == 1):
            return head + [("completion", n) for n in chosen]
        return [(whole, n) for n in chosen]
    # Of several such columns, the others say something of the first: its parts, a score's input.
    sampled = next((p for n in SAMPLED if n in sample and (p := _completions(sample, n))), [])
    sampled = sampled or [p for n in sample if _one_of_several(n) for p in _completions(sample, n)]
    if head and not sampled and isinstance(sample.get("choices"), list):
        # Of an API they are objects; texts are those of a question with several answers.
        sampled = [p for p in _completions(sample, "choices") if "*" in p[1]]
    if head and sampled:
        return head + sampled
    rest = {k: v for k, v in sample.items() if ("prompt", k) not in head}
    messages = named(sample, MESSAGES, _conversation) or _nested_messages(rest)
    if messages:
        return [("messages", name) for name in _series(sample, messages)]
    if head:
        several = _dicts_of_samples(sample)
        answers = [("completion", n) for n in ANSWERS if _texty(sample.get(n))]
        return head + answers + several if several else head + answers[:1]
    text = named(sample, ("text", "content"), _texty, True)
    if text and any(_texty(sample.get(n)) for n in ("role", "speaker")):
        return []  # one message of a chat, of which no column says which
    if text:
        return [("text", text)]
    alone = sampled or [("text", n) for n in ANSWERS if _texty(sample.get(n))][:1]
    return alone


def _segments(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(v, Mapping) and {"role", "text"} <= v.keys() for v in value)
        and any(v["role"] == "gen" for v in value)
    )


def _completions(sample: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    """Role pairs of a sampled column: text, messages, a list of texts, or objects with a text."""
    value = sample[name]
    if _texty(value) or is_conversation(value) or fields.is_lists_of_ids(value):
        return [("completion", name)]
    elements = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(elements, list) or not elements:
        return []
    if any(isinstance(v, str) or is_conversation(v) for v in elements):
        return [("completion", f"{name}.*" if isinstance(value, dict) else name)]
    if all(isinstance(v, dict) for v in elements):
        key = next((k for k in SAMPLE_TEXT if all(k in v for v in elements)), None)
        if key:
            reward = next((k for k in REWARD if all(k in v for v in elements)), None)
            pairs = [("completion", f"{name}.*.{key}")]
            return pairs + ([("reward", f"{name}.*.{reward}")] if reward else [])
    return []


def _one_of_several(name: str) -> bool:
    """A column of one sample among numbered ones: ``response_0``, ``completion_b``."""
    base, _, last = name.rpartition("_")
    return base in SAMPLED and (last.isdecimal() or len(last) == 1)


def _dicts_of_samples(sample: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Columns that each hold ``{"solution": …}``: two or more of one shape are samples."""
    for key in SAMPLE_TEXT:
        names = [n for n, v in sample.items() if isinstance(v, dict) and _texty(v.get(key))]
        if len(names) >= 2:
            pairs = [("completion", f"{n}.{key}") for n in names]
            reward = next((k for k in REWARD if all(k in sample[n] for n in names)), None)
            return pairs + ([("reward", f"{n}.{reward}") for n in names] if reward else [])
    for name, value in sample.items():
        if isinstance(value, dict) and len(value) >= 2:
            pairs = _completions(sample, name)
            if pairs and pairs[0][1].count(".") == 2:
                return pairs
    return []


def _nested_messages(sample: Mapping[str, Any]) -> str | None:
    found = [p for p, v in walk(sample) if _conversation(fields.unpacked(v))]
    named = [p for p in found if p.rsplit(".", 1)[-1] in MESSAGES]
    return next(iter(named + found), None)


def _series(sample: Mapping[str, Any], name: str) -> list[str]:
    """A column of chats and those that differ from it in the last letter alone (``chat_a``)."""
    same = [n for n in sample if n[:-1] == name[:-1] and n[:-1].endswith("_")]
    return [n for n in same if _conversation(fields.unpacked(sample[n]))] or [name]


def _merged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One record that has, for each column, the first value that says something."""
    out: dict[str, Any] = {}
    for record in records:
        for key, value in record.items():
            empty = value is None or (isinstance(value, str | list | dict) and not value)
            if key not in out or (not empty and _says_nothing(out[key])):
                out[key] = value
    return out


def _says_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _texty(value: Any) -> bool:
    return isinstance(value, str)


def _promptlike(value: Any) -> bool:
    return isinstance(value, str) or is_conversation(value)


def _conversation(value: Any) -> bool:
    inner = value[0] if isinstance(value, list) and value else None
    return is_conversation(value) or is_conversation(inner)


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | np.number) and not isinstance(value, bool)


def _rewards(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(v, int | float) for v in value)
    # A CSV has numbers as text.
    number = isinstance(value, str) and re.fullmatch(
        r"\s*[-+]?\d*\.?\d+(e[-+]?\d+)?\s*", value, re.I
    )
    return isinstance(value, int | float) or bool(number)
