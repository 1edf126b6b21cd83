"""Layouts of tracing: spans of OpenInference and OpenTelemetry, and runs of LangSmith.

Notable:
- only calls of a model are rows, the chains and tools around them are not
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from packing.sources import fields
from packing.sources.chunks import Record
from packing.sources.dialects import as_messages
from packing.sources.layouts import exchange


def spans(record: Record, place: str) -> list[Record] | None:
    """Spans of OpenInference (Phoenix) and OpenTelemetry: only calls of a model are rows."""
    if isinstance(record.get("resourceSpans"), list):
        found = [
            span
            for resource in record["resourceSpans"]
            for scope in resource.get("scopeSpans", [])
            for span in scope.get("spans", [])
        ]
        return [m for span in found for m in (spans(span, place) or [])] or None
    said = _attributes(record)
    if said is None:
        return None
    asked = as_messages(_member(said, "llm.input_messages", "gen_ai.input.messages"))
    answered = as_messages(_member(said, "llm.output_messages", "gen_ai.output.messages"))
    if asked is None or answered is None:
        return []
    made_record: Record = {"prompt": asked, "completion": [answered]}
    trace = record.get("trace_id", record.get("traceId", record.get("context.trace_id")))
    context = record.get("context")
    trace = context.get("trace_id") if trace is None and isinstance(context, Mapping) else trace
    return [made_record | ({"trace_id": trace} if trace else {})]


def _attributes(record: Record) -> Record | None:
    """A span's attributes as one object; None where the record is no span."""
    given = fields.unpacked(record.get("attributes"))
    if isinstance(given, list):
        given = {
            a["key"]: next(iter(a["value"].values()), None)
            for a in given
            if isinstance(a, Mapping) and isinstance(a.get("value"), Mapping)
        }
    if isinstance(given, Mapping):
        span = {"span_kind", "span_id", "spanId", "context", "start_time", "trace_id", "traceId"}
        return dict(given) if record.keys() & span else None
    flat = {k.removeprefix("attributes."): v for k, v in record.items() if k[:11] == "attributes."}
    return flat or None


def _member(said: Record, *names: str) -> Any:
    """A member of attributes: under its dotted name, nested, or flattened by number."""
    for name in names:
        value = fields.first(said, name)
        if value is fields.MISSING:
            value = _numbered(said, name)
        value = fields.unpacked(value)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if value:
            return value
    return None


def _numbered(said: Record, name: str) -> list[Any]:
    """``name.0.message.role`` … as a list of messages."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in said.items():
        if key.startswith(name + "."):
            number, _, rest = key[len(name) + 1 :].partition(".")
            if number.isdecimal():
                found.setdefault(int(number), {})[rest] = value
    out = []
    for _, message in sorted(found.items()):
        calls: dict[int, dict[str, Any]] = {}
        for key in [k for k in message if k.startswith("message.tool_calls.")]:
            number, _, rest = key.removeprefix("message.tool_calls.").partition(".")
            calls.setdefault(int(number), {})[rest] = message.pop(key)
        if calls:
            message["message.tool_calls"] = [c for _, c in sorted(calls.items())]
            message.setdefault("message.content", None)
        out.append(message)
    return out


def run_of_langsmith(record: Record, place: str) -> list[Record] | None:
    """A LangSmith run: calls of a model are rows, the chains and tools around them are not."""
    kind = record.get("run_type")
    if not isinstance(kind, str):
        return None
    if kind not in ("llm", "chat_model"):
        return []
    prompt = exchange.asked(record.get("inputs"))
    found = exchange.answers(record.get("outputs"))
    if prompt is None or not found:
        return []
    made: Record = {"prompt": prompt, "completion": found}
    offered = exchange.tools(fields.first(record, "extra.invocation_params") or None)
    trace = record.get("trace_id")
    made |= {"tools": offered} if offered else {}
    return [made | ({"trace_id": trace} if trace else {})]
