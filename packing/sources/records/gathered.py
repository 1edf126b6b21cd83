"""Records that are messages, a row or a line each, gathered into the chats they are of.

Notable:
- a column of ids says which chat a message is of; without one, a file is one chat, and where
  turns are numbered, a number that goes back begins another
- where messages name the one they answer, every path from the first to a last one is a chat
- messages of a chat may stand anywhere in a file up to HELD_BYTES; of a longer file, chats
  are given on as they end, and one that comes back after that is an error
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packing.sources.chat.messages import REASONING, ROLES, TRAINED
from packing.sources.chunks import Chunk, Record
from packing.sources.dialects import is_conversation
from packing.sources.drafts import as_float, required
from packing.sources.errors import SourceError, Where, shown
from packing.sources.events import is_event
from packing.sources.files.records import CHUNK_RECORDS
from packing.sources.odd import OddRecords
from packing.sources.role_names import CONTENT, TRAJECTORY
from packing.sources.roles import recognise

HELD_BYTES = 256 << 20
OF_A_RECORD = 300  # bytes of a record beside its text
SPEAKER = ("role", "from", "speaker", "author", "source")
SAID = ("content", "value", "text", "message", "utterance")
# Also where no column says which chat it is; of the latter two, every speaker must be known.
PLAIN = [("role", "content"), ("from", "value"), ("role", "text"), ("source", "content")]
CHAT = (
    *TRAJECTORY,
    "message_tree_id",
    *(
        f"{n}{end}"
        for n in ("conversation", "conv", "convo", "chat", "dialog", "dialogue", "thread")
        for end in ("_id", "_uid", "_idx", "_index", "Id", "")
    ),
)
# Beside the id of a chat or a task: which of several tries.
TRY = ("trial", "sample", "sample_id", "sample_idx", "sample_index", "rollout_idx", "attempt")
TASK = ("task_id", "problem_id", "question_id", "instance_id")
TURN = tuple(
    f"{n}{end}"
    for n in ("turn", "message", "msg", "step", "utterance", "position", "order", "index", "idx")
    for end in ("", "_idx", "_index", "_number", "_num", "_no", "_id")
)
LINKS = (
    ("message_id", "parent_id"),
    ("message_id", "parent_message_id"),
    ("id", "parent_id"),
    ("id", "parent"),
    ("uuid", "parentUuid"),
)
OF_MESSAGE = ("tool_calls", "function_call", "tool_call_id", "name", *REASONING, *TRAINED)


@dataclass(frozen=True)
class Gathering:
    """Which columns hold what. ``speaker`` is None where records are events as they are."""

    speaker: str | None
    said: str
    chat: tuple[str, ...]
    turn: str | None
    links: tuple[str, str] | None = None

    @property
    def note(self) -> str:
        """A sentence for people."""
        by = self.links[1] if self.links else self.turn
        order = f"in the order of '{by}'" if by else "in the order of the file"
        return f"Messages of one {' and '.join(map(repr, self.chat))} are one chat, {order}."

    def chunks(self, chunks: Iterator[Chunk], odd: OddRecords) -> Iterator[Chunk]:
        """Chats as records, each at the place of its first message."""
        held = _Held(self)
        for chunk in chunks:
            if held.chats and chunk.file != held.file:
                yield from held.give(0, chunk.fraction)
                held = _Held(self)
            for i, record in enumerate(chunk.records):
                try:
                    held.add(record, chunk.where(i))
                except SourceError as error:
                    odd.take(error, chunk.where(i), record)
            if held.size > HELD_BYTES:
                yield from held.give(1, chunk.fraction)
        yield from held.give(0, 1.0)


class _Held:
    """Chats of one file that may go on."""

    def __init__(self, by: Gathering) -> None:
        self._by = by
        self.chats: dict[tuple[str, ...], list[tuple[float, Record]]] = {}
        self._places: dict[tuple[str, ...], Where] = {}
        self._given: set[tuple[str, ...]] = set()
        self.size, self.file, self._begun, self._last = 0, "", 0, float("-inf")

    def add(self, record: Record, where: Where) -> None:
        """Raises SourceError where the chat of a message was given on already."""
        by = self._by
        turn = as_float(record.get(by.turn)) if by.turn else float("nan")
        key = tuple(str(required(record, name, where)) for name in by.chat)
        if not by.chat:
            self._begun += turn <= self._last
            self._last = turn
            key = (str(self._begun),)
        if key in self._given:
            raise where.error(
                f"the chat {shown(by.chat and key[0])} goes on far from its start",
                f"sort the rows by '{by.chat[0]}'",
            )
        self.file = where.file
        self._places.setdefault(key, where)
        self.chats.setdefault(key, []).append((turn, record))
        text = sum(len(v) for v in record.values() if isinstance(v, str))
        self.size += text + OF_A_RECORD
        if not by.chat and self.size > HELD_BYTES:
            raise where.error(
                f"one chat of more than {HELD_BYTES >> 20} MiB is not read",
                "give each message the id of its chat (conversation_id)",
            )

    def give(self, kept: int, fraction: float) -> Iterator[Chunk]:
        """The chats but the last ``kept``."""
        done = list(self.chats)[: len(self.chats) - kept]
        for start in range(0, len(done), CHUNK_RECORDS):
            keys = done[start : start + CHUNK_RECORDS]
            places = [self._places.pop(k) for k in keys]
            made = [self._records(self.chats.pop(k)) for k in keys]
            records = [r for of in made for r in of]
            spread = [p for p, of in zip(places, made, strict=True) for _ in of]
            lines = [p.line for p in spread if p.line is not None]
            rows = [p.row or 0 for p in spread]
            yield Chunk(self.file, rows[0], records, lines or None, fraction, rows)
        self._given.update(done)
        self.size = 0

    def _records(self, told: list[tuple[float, Record]]) -> list[Record]:
        by = self._by
        numbers = [turn for turn, _ in told]
        if len(set(numbers)) == len(numbers) and all(n == n for n in numbers):
            told = sorted(told, key=lambda t: t[0])
        records = [r for _, r in told]
        if by.speaker is None:
            return [{"messages": records}]
        return [self._record(r) for r in (_paths(records, *by.links) if by.links else [records])]

    def _record(self, records: list[Record]) -> Record:
        by = self._by
        messages = [
            {"role": r.get(by.speaker or ""), "content": r.get(by.said)}
            | {k: r[k] for k in OF_MESSAGE if r.get(k) not in (None, "")}
            for r in records
        ]
        around: dict[str, Any] = {}
        for name in dict.fromkeys(k for r in records for k in r):
            values = [r[name] for r in records if r.get(name) not in (None, "")]
            # What differs from message to message is theirs.
            if values and all(v == values[0] for v in values[1:]):
                around[name] = values[0]
        own = (by.speaker, by.said, by.turn, *(by.links or ()), *OF_MESSAGE)
        return {k: v for k, v in around.items() if k not in own} | {"messages": messages}


def gathering_of(
    records: Sequence[Record], speakers: Sequence[tuple[str, str]] = ()
) -> Gathering | None:
    """How the first records are messages of chats; None where they are rows of their own."""
    if records and all(map(is_event, records)):
        return Gathering(None, "", (), None)
    columns = dict.fromkeys(k for r in records for k in r)
    chat = next(((n,) for n in CHAT if n in columns and _scalar(records, n)), ())
    task = next((n for n in TASK if n in columns and _scalar(records, n)), None)
    tries = tuple(n for n in TRY if n in columns and _scalar(records, n))
    if task and not chat and tries:
        chat = (task,)
    known = {*ROLES, *(name for name, _ in speakers)}
    for speaker, said in [(s, t) for s in SPEAKER for t in SAID] if chat else PLAIN:
        if not {speaker, said} <= columns.keys():
            continue
        speakers_of = [str(r.get(speaker)).strip().lower() for r in records]
        names = [name in known for name in speakers_of]
        # One who speaks alone, line after line, is no chat.
        several = bool(chat) or len(set(speakers_of)) > 1 or len(records) == 1
        if several and (all(names) or (any(names) and (speaker, said) in PLAIN[:2])):
            break
    else:
        return None
    talk = [{"role": r[speaker], "content": r.get(said)} for r in records]
    if not chat and not is_conversation(talk):
        return None
    own = (speaker, said, *SAID)
    if any(role in CONTENT and path not in own for role, path in recognise(records)):
        return None
    turn = next(
        (n for n in TURN if n in columns and n not in (speaker, said) and n not in chat), None
    )
    links = next((pair for pair in LINKS if {*pair} <= columns.keys()), None)
    return Gathering(speaker, said, (*chat, *tries) if chat else (), turn, links)


def _paths(records: list[Record], own: str, parent: str) -> list[list[Record]]:
    """Messages from the first to each that nobody answers, by the one that each names."""
    by_id = {str(r.get(own)): r for r in records}
    answered = {str(r.get(parent)) for r in records}
    out = []
    for name, last in by_id.items():
        if name in answered:
            continue
        path, step = [last], by_id.get(str(last.get(parent)))
        while step is not None and all(step is not r for r in path):
            path.append(step)
            step = by_id.get(str(step.get(parent)))
        out.append(path[::-1])
    return out or [records]


def _scalar(records: Sequence[Mapping[str, Any]], name: str) -> bool:
    values = [r[name] for r in records if r.get(name) not in (None, "")]
    return bool(values) and all(isinstance(v, str | int | float) for v in values)
