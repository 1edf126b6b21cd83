"""Layouts of tables: what a record's own columns are together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from packing.sources import fields
from packing.sources.chunks import Record
from packing.sources.dialects import as_messages
from packing.sources.layouts import exchange
from packing.sources.role_names import COMPLETION_IDS, INPUT_IDS, MESSAGES, PROMPT_IDS, QUESTION

SYSTEM = ("system", "system_prompt", "system_message")


def beside(record: Record, used: Sequence[str], made: Record) -> Record:
    """``made`` with the columns of a record that it was not made from."""
    return {k: v for k, v in record.items() if k not in used} | made


def system_beside(record: Record, place: str) -> list[Record] | None:
    """Messages, and their system message in a column of its own."""
    names = [n for n in (*MESSAGES, "prompt") if isinstance(fields.unpacked(record.get(n)), list)]
    talk = as_messages(fields.unpacked(record[names[0]])) if names else None
    if talk is None or not any(n in record for n in SYSTEM):
        return None
    made = {names[0]: exchange.with_system(talk, record, SYSTEM)}
    return [beside(record, (names[0], *SYSTEM), made)]


def batch(record: Record, place: str) -> list[Record] | None:
    """A batch of ids in one record, a list of each column: its rows."""
    names = (*INPUT_IDS, *PROMPT_IDS, *COMPLETION_IDS)
    sizes = {len(record[n]) for n in names if fields.is_lists_of_ids(record.get(n))}
    if len(sizes) != 1 or any(fields.is_ids(record.get(n)) for n in names):
        return None
    if any(fields.is_messages(record.get(n)) for n in MESSAGES):
        return None  # lists of one chat, one for each message
    (count,) = sizes
    each = {k: v for k, v in record.items() if isinstance(v, list) and len(v) == count}
    rest = {k: v for k, v in record.items() if k not in each}
    return [rest | {k: v[n] for k, v in each.items()} for n in range(count)]


def stepwise(record: Record, place: str) -> list[Record] | None:
    """TRL's stepwise supervision: ``completions`` are the steps of one answer, a label each."""
    steps, labels = record.get("completions"), record.get("labels")
    if not isinstance(steps, list) or not isinstance(labels, list) or len(steps) != len(labels):
        return None
    if not steps or not all(isinstance(v, bool) for v in labels):
        return None
    whole = "\n".join(steps)
    return [beside(record, ("completions", "labels"), {"completion": whole})]


def columns_of_a_prompt(record: Record, place: str) -> list[Record] | None:
    """A question with what comes before it in columns of their own."""
    name = next((n for n in (*QUESTION, "prompt") if isinstance(record.get(n), str)), None)
    if name is None:
        return None
    after = next((n for n in ("input", "context") if isinstance(record.get(n), str)), None)
    system = next((n for n in ("system", "system_prompt") if isinstance(record.get(n), str)), None)
    past = next((n for n in ("history", "chat_history") if n in record), None)
    if after is None and system is None and past is None:
        return None
    if after == "input" and name != "instruction":
        return None  # beside a prompt of its own, `input` is something else
    text, more = str(record[name]), str(record[after]) if after else ""
    if more and name == "instruction":
        text = f"{text}\n{more}"
    elif more:
        text = f"{more}\n\n{text}"
    talk: list[Any] = []
    if system and record[system]:
        talk.append({"role": "system", "content": record[system]})
    earlier = fields.unpacked(record.get(past)) if past else None
    if isinstance(earlier, list) and earlier:
        told = as_messages(earlier) or _pairs(earlier)
        if told is None:
            return None
        talk += told
    talk.append({"role": "user", "content": text})
    used = tuple(n for n in (name, after, system, past) if n)
    return [beside(record, used, {"prompt": talk})]


def _pairs(history: list[Any]) -> list[Any] | None:
    """``[[asked, answered], …]``: what was said before."""
    out = []
    for pair in history:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            return None
        out.append({"role": "user", "content": pair[0]})
        out.append({"role": "assistant", "content": pair[1]})
    return out
