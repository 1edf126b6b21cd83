"""Layouts: what a record of a known tool, API or log holds, as the columns that roles have.

Notable:
- a layout is chosen once, from the first records; a role given by hand turns layouts off
- an answer that stands beside the messages is the completion, the messages are its prompt
- ``instruction`` comes before its ``input``, a ``context`` before its question, ``system`` and
  ``history`` before both, as in the frameworks that name them so
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packing.sources import fields
from packing.sources.chunks import Chunk, Record
from packing.sources.dialects import as_messages, is_conversation
from packing.sources.layouts import exchange
from packing.sources.layouts.columns import (
    SYSTEM,
    batch,
    beside,
    columns_of_a_prompt,
    stepwise,
    system_beside,
)
from packing.sources.layouts.logs import LOGS
from packing.sources.role_names import ANSWERS, MESSAGES, SAMPLED
from packing.sources.roles import recognise
from packing.sources.token_ids import recognised_ids

Convert = Callable[[Record, str], list[Record] | None]

PAIRS = (
    ("request", "response"),
    ("request_body", "response_body"),
    ("responses_create_params", "response"),
    ("inputs", "outputs"),
    ("inputs", "output"),
    ("input", "output"),
    ("input", "response"),
)
OFFERED = ("choices", "message", *SAMPLED)


@dataclass(frozen=True)
class Layout:
    """A layout by name.

    convert: (a record, its place) to the records in it; None where it is not of this layout
    note:    a sentence that a person should read beside the rows, or None
    """

    name: str
    convert: Convert
    note: str | None = None

    def records(self, record: Record, place: str) -> list[Record] | None:
        """The records in one record; None where it is not of this layout."""
        try:
            return self.convert(record, place)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            return None  # of this tool by name, and not as it writes them

    def chunk(self, chunk: Chunk) -> Chunk:
        """A chunk's records converted, each at the place it comes from."""
        records: list[Record] = []
        numbers: list[int] = []
        lines: list[int] = []
        for i, record in enumerate(chunk.records):
            where = chunk.where(i)
            # A record of another layout stays as it is: whatever it lacks is named later.
            made = self.records(record, f"{chunk.file}:{where.row}")
            made = [record] if made is None else made
            records += made
            numbers += [where.row or 0] * len(made)
            lines += [where.line or 0] * len(made)
        return Chunk(
            chunk.file,
            chunk.first_row,
            records,
            lines if chunk.lines else None,
            chunk.fraction,
            numbers,
        )


def layout_of(records: Sequence[Record], nested: bool = True) -> Layout | None:
    """The layout that the first records have, or None: their columns are what they are.

    nested: a list of records in each record counts as one
    """
    looked = [r for r in records if r][:20]
    for layout in LAYOUTS if nested else LAYOUTS[:-1]:
        made = [layout.records(record, "") for record in looked]
        if looked and all(m is not None for m in made) and any(made):
            return layout
    return None


def _messages_and_answer(record: Record, place: str) -> list[Record] | None:
    """Messages that end before the answer, which is in a column of its own."""
    name = next((n for n in MESSAGES if n in record), None)
    talk = as_messages(fields.unpacked(record[name])) if name else None
    if talk is None or not isinstance(talk[-1], Mapping) or _speaks(talk[-1]):
        return None
    talk = exchange.with_system(talk, record, SYSTEM)
    at = next((n for n in (*OFFERED, *ANSWERS) if _given(record.get(n)) and n != name), None)
    found = exchange.answers({at: record[at]} if at == "choices" else record[at]) if at else []
    if not found:
        return None
    used = (name or "", *SYSTEM, *OFFERED)
    return [beside(record, used, {"prompt": talk, "completion": found})]


def _speaks(message: Mapping[str, Any]) -> bool:
    said = str(message.get("role", message.get("from"))).lower()
    return said in ("assistant", "gpt", "model", "ai", "bot", "chatgpt", "bing", "function_call")


def _given(value: Any) -> bool:
    return value is not None and not (isinstance(value, str | list | Mapping) and not value)


def _request_and_response(record: Record, place: str) -> list[Record] | None:
    """What an API was asked and what it answered, of whichever API."""
    for left, right in PAIRS:
        if not isinstance(fields.unpacked(record.get(left)), Mapping | list):
            continue
        said = record.get(right)
        if isinstance(record[left], str) and isinstance(fields.unpacked(said), Mapping):
            said = fields.unpacked(said)  # both are written as JSON text
        prompt, found = exchange.asked(record[left]), exchange.answers(said)
        if prompt is None or not found:
            continue
        if isinstance(prompt, list):
            # Some answers repeat what was asked before they go on.
            found = [a[len(prompt) :] if _repeats(a, prompt) else a for a in found]
        offered = exchange.tools(record[left])
        made = {"prompt": prompt, "completion": found} | ({"tools": offered} if offered else {})
        return [beside(record, (left, right), made)]
    return None


def _repeats(answer: Any, prompt: list[Any]) -> bool:
    longer = isinstance(answer, list) and len(answer) > len(prompt)
    return longer and bool(answer[: len(prompt)] == prompt)


def _answers_alone(record: Record, place: str) -> list[Record] | None:
    """OpenAI's batch output: answers by ``custom_id``, without the questions."""
    body = record.get("response", record)
    known = "custom_id" in record or "choices" in record
    if not known or recognised_ids(record):
        return None
    if not isinstance(body, Mapping) or _asks(record):
        return None
    found = exchange.answers(body)
    if record.get("error") and not found:
        return []
    talks = [[{"role": "assistant", "content": a}] if isinstance(a, str) else a for a in found]
    group = record.get("custom_id", record.get("id"))
    made = [{"messages": talk} | ({"group": group} if group else {}) for talk in talks]
    return made or None


def _asks(record: Record) -> bool:
    return any(n in record for n in ("prompt", "question", "messages", "request", *MESSAGES))


def _observations(record: Record, place: str) -> list[Record] | None:
    """Observations of Langfuse: generations are rows, the spans and events around them are not."""
    if not ({"traceId", "trace_id"} & record.keys()) or "input" not in record:
        return None
    if record.get("type") not in ("GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN"):
        return None
    if record["type"] != "GENERATION":
        return []
    return _request_and_response(record, place) or []


def _contents(record: Record, place: str) -> list[Record] | None:
    """Gemini's tuning data: ``contents`` with parts, and a system instruction."""
    if not isinstance(record.get("contents"), list) or not is_conversation(record["contents"]):
        return None
    talk = exchange.asked(record)
    used = ("contents", "systemInstruction", "system_instruction", "tools", "generationConfig")
    offered = exchange.tools(record)
    answered = next((n for n in ("response", "candidates") if record.get(n)), None)
    found = exchange.answers({answered: record[answered]} if answered else None)
    if answered == "response":
        found = exchange.answers(record["response"])
    made: Record = {"prompt": talk, "completion": found} if found else {"messages": talk}
    made |= {"tools": offered} if offered else {}
    return [beside(record, (*used, answered or ""), made)]


def _records_inside(record: Record, place: str) -> list[Record] | None:
    """A record around a list of records: what it says of all of them goes to each."""
    found = [
        (name, value)
        for name, value in record.items()
        if isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
    ]
    inside = [(n, v) for n, v in found if not is_conversation(v) and _complete(v[:20])]
    if len(inside) != 1 or _complete([record], nested=False):
        return None
    value = inside[0][1]
    around = {k: v for k, v in record.items() if isinstance(v, str | int | float) or k == "tools"}
    return [around | inner for inner in value]


def _complete(records: Sequence[Record], nested: bool = True) -> bool:
    """Whether records hold rows and not a prompt alone."""
    pairs = recognise(records) if not layout_of(records, nested=False) else (("messages", "-"),)
    return any(
        role in ("input_ids", "segments", "completion", "messages", "text")
        and (nested or role == "completion" or "." not in path)
        for role, path in pairs
    )


WITHOUT_PROMPT = (
    "The file has the answers only: rows hold no prompt, so siblings share nothing. Give the "
    "prompts with them to see what trees save."
)
LAYOUTS = (
    *(Layout(name, convert, note) for name, convert, note in LOGS),
    Layout("Langfuse observations", _observations, "What is no call of a model is not a row."),
    Layout("a batch in one record", batch),
    Layout("steps of one answer", stepwise),
    Layout("Gemini contents", _contents),
    Layout("messages and an answer beside them", _messages_and_answer),
    Layout("requests and responses", _request_and_response),
    Layout("messages and the system message beside them", system_beside),
    Layout("answers without their questions", _answers_alone, WITHOUT_PROMPT),
    Layout(
        "a question and what comes before it",
        columns_of_a_prompt,
        "A prompt is made of several columns: system, then history, then instruction before its "
        "input, or context before its question.",
    ),
    Layout("records inside records", _records_inside),
)
