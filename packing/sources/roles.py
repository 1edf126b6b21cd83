"""Which column is what: roles recognised from names and contents, and reassigned by hand.

Notable:
- a role is given by (role, path) pairs; ``completion`` may be in many columns (one per sample)
- names decide only where the content fits: a ``messages`` column that holds text is not messages
- reassigning one content role drops the other recognised content roles
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from packing.sources import fields
from packing.sources.errors import SourceError, shown
from packing.sources.role_names import (
    ANSWERS,
    COMPLETION_IDS,
    CONTENT,
    GROUP,
    INPUT_IDS,
    LOSS_MASK,
    MESSAGES,
    PROMPT,
    PROMPT_IDS,
    QUESTION,
    REWARD,
    SAMPLE_TEXT,
    SAMPLED,
)


@dataclass(frozen=True)
class Roles:
    """Role to column paths, as (role, path) pairs."""

    pairs: tuple[tuple[str, str], ...]

    def all(self, role: str) -> tuple[str, ...]:
        return tuple(path for r, path in self.pairs if r == role)

    def first(self, role: str) -> str | None:
        return next((path for r, path in self.pairs if r == role), None)

    @property
    def columns(self) -> set[str]:
        """Every top-level column that may hold a path's start (keys may hold dots)."""
        out = set()
        for _, path in self.pairs:
            parts = path.split(".")
            out |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
        return out


@dataclass(frozen=True)
class Column:
    """A column (or nested field) a role can be given to: its path, type and an example."""

    path: str
    kind: str
    example: str


def describe(records: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Columns and nested fields (three levels) of the first records, in file order."""
    out: dict[str, Column] = {}
    for record in records:
        for path, value in _walk(record, 3):
            if path not in out or out[path].kind in ("nothing", "empty list"):
                out[path] = Column(path, fields.type_name(value), shown(value, 80))
    return tuple(out.values())


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
                f"{role} can be one of {_names(records)}."
            )
    pairs = tuple(p for p in known if p[0] not in replaced) + chosen
    roles = Roles(pairs)
    if not any(roles.first(role) for role in CONTENT):
        raise SourceError(
            f"{file}: no column is recognised as rows; say which one is, as in role "
            f"'text' or 'prompt': the columns are {_names(records)}."
        )
    return roles


def recognise(records: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """(role, path) pairs found in the first records; empty where nothing is recognised."""
    sample = _merged(records)
    pairs = _content(sample)
    taken = {path for _, path in pairs}
    for role, names in (("group", GROUP), ("step", ("step", "global_step"))):
        name = next((n for n in names if _scalar(sample.get(n)) and n not in taken), None)
        pairs += [(role, name)] if name else []
    if not any(role == "reward" for role, _ in pairs):
        name = next((n for n in REWARD if n in sample and _rewards(sample[n])), None)
        pairs += [("reward", name)] if name else []
    if "tools" in sample and isinstance(fields.unpacked(sample["tools"]), list):
        pairs.append(("tools", "tools"))
    if {"seqlen", "prompt_len", "completion"} <= sample.keys():
        pairs.append(("seqlen", "seqlen"))
    return tuple(pairs)


def _content(sample: Mapping[str, Any]) -> list[tuple[str, str]]:
    # A list under the standard name is taken as it is, so that a bad id is named, not the column.
    ids = _named(sample, INPUT_IDS[:1], _listy) or _named(sample, INPUT_IDS, fields.is_ids)
    if ids:
        masks = _named(sample, ("attention_mask",), _listy)
        loss = _named(sample, LOSS_MASK, _listy)
        out = [("input_ids", ids)]
        return out + [(r, p) for r, p in (("attention_mask", masks), ("loss_mask", loss)) if p]
    prompt_ids = _named(sample, PROMPT_IDS, fields.is_ids)
    sampled_ids = _named(sample, COMPLETION_IDS, lambda v: fields.is_ids(v) or _lists_of_ids(v))
    if prompt_ids and sampled_ids:
        return [("prompt", prompt_ids), ("completion", sampled_ids)]
    question = _named(sample, QUESTION, _texty)
    prompt = _named(sample, PROMPT, _promptlike)
    head = [("prompt", prompt)] if prompt else [("question", question)] if question else []
    chosen = [n for n in ("chosen", "rejected") if n in sample]
    if len(chosen) == 2:
        if head and not fields.is_messages(fields.unpacked(sample["chosen"])):
            return head + [("completion", n) for n in chosen]
        whole = "messages" if fields.is_messages(fields.unpacked(sample["chosen"])) else "text"
        if head and whole == "messages" and len(fields.unpacked(sample["chosen"])) == 1:
            return head + [("completion", n) for n in chosen]
        return [(whole, n) for n in chosen]
    sampled = [p for n in SAMPLED if n in sample for p in _completions(sample, n)]
    if head and sampled:
        return head + sampled
    rest = {k: v for k, v in sample.items() if ("prompt", k) not in head}
    messages = _named(sample, MESSAGES, _conversation) or _nested_messages(rest)
    if messages:
        return [("messages", messages)]
    if head:
        several = _dicts_of_samples(sample)
        answers = [("completion", n) for n in ANSWERS if _texty(sample.get(n))]
        return head + answers + several if several else head + answers[:1]
    text = _named(sample, ("text", "content", *SAMPLED, *ANSWERS), _texty)
    return [("text", text)] if text else []


def _completions(sample: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    """Role pairs of a sampled column: text, messages, a list of texts, or objects with a text."""
    value = fields.unpacked(sample[name])
    if _texty(value) or fields.is_messages(value) or _lists_of_ids(value):
        return [("completion", name)]
    elements = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(elements, list) or not elements:
        return []
    if any(isinstance(v, str) or fields.is_messages(v) for v in elements):
        return [("completion", f"{name}.*" if isinstance(value, dict) else name)]
    if all(isinstance(v, dict) for v in elements):
        key = next((k for k in SAMPLE_TEXT if all(k in v for v in elements)), None)
        if key:
            reward = next((k for k in REWARD if all(k in v for v in elements)), None)
            pairs = [("completion", f"{name}.*.{key}")]
            return pairs + ([("reward", f"{name}.*.{reward}")] if reward else [])
    return []


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
    found = [p for p, v in _walk(sample, 3) if _conversation(fields.unpacked(v))]
    named = [p for p in found if p.rsplit(".", 1)[-1] in MESSAGES]
    return next(iter(named + found), None)


def _named(sample: Mapping[str, Any], names: Sequence[str], fits: Any) -> str | None:
    return next((n for n in names if n in sample and fits(fields.unpacked(sample[n]))), None)


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


def _walk(record: Mapping[str, Any], depth: int, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        yield prefix + str(key), value
        if depth > 1 and isinstance(value, Mapping):
            yield from _walk(value, depth - 1, f"{prefix}{key}.")


def _texty(value: Any) -> bool:
    return isinstance(value, str)


def _listy(value: Any) -> bool:
    return isinstance(value, list | np.ndarray)


def _promptlike(value: Any) -> bool:
    return isinstance(value, str) or fields.is_messages(value)


def _conversation(value: Any) -> bool:
    inner = value[0] if isinstance(value, list) and value else None
    return fields.is_messages(value) or fields.is_messages(inner)


def _lists_of_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(fields.is_ids(v) for v in value)


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _rewards(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(v, int | float) for v in value)
    return isinstance(value, int | float)


def _names(records: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(str(k) for record in records for k in record))
    return ", ".join(names[:20]) + (" …" if len(names) > 20 else "") if names else "none"
