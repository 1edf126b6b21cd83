"""Messages of other ecosystems in OpenAI's form: Gemini, LangChain, inspect_ai, spans, responses.

Notable:
- only the form changes here: which role a name stands for, and what content may be, is decided
  where messages are checked
- a message that is OpenAI's already stays the object it is
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from packing.sources import fields
from packing.sources.events import called, is_event, messages_of

Message = dict[str, Any]

# LangChain names messages by class or by type.
LANGCHAIN = {
    "human": "user",
    "humanmessage": "user",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "system": "system",
    "systemmessage": "system",
    "tool": "tool",
    "toolmessage": "tool",
    "function": "tool",
    "functionmessage": "tool",
}


def as_messages(value: Any) -> list[Any] | None:
    """A conversation in OpenAI's form, or None where ``value`` is no conversation.

    value: messages of any known dialect, or one message
    """
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list) or not value or not isinstance(value[0], Mapping):
        return None
    if is_event(value[0]):
        return messages_of(value)
    out: list[Any] = []
    for item in value:
        try:
            message = _message(item) if isinstance(item, Mapping) else item
        except (KeyError, TypeError, AttributeError):
            return None  # of a dialect by name, and not as it is written
        if message is None:
            return None
        out += _joined(out, message)
    return out


def with_speakers(messages: Sequence[Any], speakers: Mapping[str, str]) -> list[Any]:
    """Messages with the roles of an ecosystem of one's own replaced by known ones."""
    out = []
    for message in messages:
        key = "role" if isinstance(message, Mapping) and "role" in message else "from"
        said = message.get(key) if isinstance(message, Mapping) else None
        known = speakers.get(said) if isinstance(said, str) else None
        out.append({**message, key: known} if known else message)
    return out


def _message(item: Mapping[str, Any]) -> Message | None:
    """One message in OpenAI's form; None where it is not a message."""
    if isinstance(item.get("message"), Mapping) and "role" not in item:
        return _message({"role": "assistant", **item["message"]})  # a choice, or a span's message
    if "message.role" in item:
        flat = {k.removeprefix("message."): v for k, v in item.items()}
        return _message(flat)
    if isinstance(item.get("parts"), list):
        return _of_parts(item)
    if "kwargs" in item and isinstance(item.get("id"), list):  # LangChain's serialised objects
        return _langchain(str(item["id"][-1]), item["kwargs"])
    if isinstance(item.get("data"), Mapping) and "type" in item:
        return _langchain(str(item["type"]), item["data"])
    kind = item.get("type")
    if "role" not in item and isinstance(kind, str):
        named = kind.lower() in LANGCHAIN and "content" in item  # a tool's type is function, too
        return _langchain(kind, item) if named else _response_item(kind, item)
    if "role" in item and (item.keys() & {"content", "tool_calls", "function_call"}):
        calls = item.get("tool_calls")
        if isinstance(calls, list) and any(map(_foreign_call, calls)):
            return {**item, "tool_calls": [_call(c) for c in calls]}
        return item if isinstance(item, dict) else dict(item)
    if "role" in item and isinstance(item.get("text", item.get("system_prompt")), str):
        return {**item, "content": item.get("text") or item.get("system_prompt")}
    return dict(item) if {"from", "value"} <= item.keys() else None


def _foreign_call(call: Any) -> bool:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    return isinstance(call, Mapping) and not (isinstance(function, Mapping) and "name" in function)


def _call(call: Any) -> Any:
    """inspect_ai writes ``function`` as a name; spans write ``tool_call.function.name``."""
    if not _foreign_call(call):
        return call
    if isinstance(call.get("function"), str):
        return called(call["function"], call.get("arguments"), call.get("id"))
    inner = call.get("tool_call")
    if isinstance(inner, Mapping):
        return _call(inner)
    if "tool_call.function.name" in call:
        arguments = call.get("tool_call.function.arguments")
        return called(call["tool_call.function.name"], arguments, call.get("tool_call.id"))
    return call


def _of_parts(item: Mapping[str, Any]) -> Message:
    """Gemini's ``parts``, and those of OpenTelemetry's messages (``type``, ``content``)."""
    texts: list[Any] = []
    thoughts: list[Any] = []
    calls: list[Message] = []
    answer: Message | None = None
    for part in item["parts"]:
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = part.get("type")
        call = part.get("functionCall") or part.get("function_call")
        said = part.get("functionResponse") or part.get("function_response")
        if isinstance(call, Mapping):
            calls.append(called(call.get("name"), call.get("args") or {}, call.get("id")))
        elif kind == "tool_call":
            calls.append(called(part.get("name"), part.get("arguments") or {}, part.get("id")))
        elif isinstance(said, Mapping):
            answer = {"role": "tool", "content": _text(said.get("response"))}
            answer |= {"name": said["name"]} if isinstance(said.get("name"), str) else {}
        elif kind == "tool_call_response":
            answer = {"role": "tool", "content": _text(part.get("response", part.get("result")))}
        else:
            text = part.get("text", part.get("content", ""))
            (thoughts if part.get("thought") or kind == "reasoning" else texts).append(text)
    if answer is not None:
        return answer
    made: Message = {"role": item.get("role", "user"), "content": "".join(map(str, texts))}
    made |= {"reasoning_content": "".join(map(str, thoughts))} if thoughts else {}
    return made | ({"tool_calls": calls} if calls else {})


def _langchain(kind: str, data: Any) -> Message | None:
    role = LANGCHAIN.get(kind.lower())
    if kind.lower() in ("chat", "chatmessage") and isinstance(data, Mapping):
        role = data.get("role")
    if role is None or not isinstance(data, Mapping):
        return None
    made: Message = {"role": role, "content": data.get("content")}
    calls = data.get("tool_calls") or []
    extra = data.get("additional_kwargs")
    if calls:
        made["tool_calls"] = [
            called(c["name"], c["args"], c.get("id")) if "args" in c else _call(c) for c in calls
        ]
    elif isinstance(extra, Mapping) and extra.get("tool_calls"):
        made["tool_calls"] = extra["tool_calls"]
    named = {k: data[k] for k in ("name", "tool_call_id") if isinstance(data.get(k), str)}
    return made | named


def _response_item(kind: str, item: Mapping[str, Any]) -> Message | None:
    """An item of OpenAI's Responses that has no role of its own."""
    if kind == "function_call":
        call = called(item.get("name"), item.get("arguments"), item.get("call_id"))
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        made = {"role": "tool", "content": _text(item.get("output"))}
        return made | {"tool_call_id": item.get("call_id")}
    if kind == "reasoning":
        parts = item.get("content") or item.get("summary") or []
        said = "".join(str(p.get("text", "")) for p in parts if isinstance(p, Mapping))
        return {"role": "assistant", "content": None, "reasoning_content": said}
    return None


def _joined(before: list[Any], message: Any) -> list[Any]:
    """Reasoning and calls that follow each other as items are one turn of the assistant."""
    last = before[-1] if before else None
    if not (
        isinstance(last, dict)
        and isinstance(message, dict)
        and last.get("role") == message.get("role") == "assistant"
        and last.get("content") is None
        and (last.keys() - {"role", "content"})
        and (last.keys() <= {"role", "content", "tool_calls", "reasoning_content"})
        and not (last.get("tool_calls") and message.get("content"))
    ):
        return [message]
    calls = [*last.get("tool_calls", []), *message.get("tool_calls", [])]
    before[-1] = {**last, **message} | ({"tool_calls": calls} if calls else {})
    return []


def _text(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_conversation(value: Any) -> bool:
    """Whether ``value`` is a list of messages of any dialect."""
    return fields.is_messages(value) or (isinstance(value, list) and as_messages(value) is not None)
