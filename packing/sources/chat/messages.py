"""Chat messages of any common shape as one: OpenAI's, checked.

Notable:
- ShareGPT's ``from``/``value``, content in parts, Anthropic's ``tool_use`` and ``tool_result``, and
  the old ``function_call`` are understood
- arguments of calls are objects, as AReaL and vLLM hand them to a template; JSON text is read
- ``weight``, ``loss`` and ``train`` of a turn say whether it is trained on
- content that is not text (images, audio) is left out and reported, never replaced by made-up text
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from packing.sources import fields
from packing.sources.errors import Where, shown

Message = dict[str, Any]

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "tool_result": "tool",
    "ipython": "tool",
    "environment": "tool",
}
CALLS = ("function_call", "tool_call")
REASONING = ("reasoning_content", "reasoning", "thinking")
TEXT_PARTS = ("text", "input_text", "output_text")
TRAINED = ("weight", "loss", "train", "training", "trainable")


class Chat(NamedTuple):
    """Messages in OpenAI's form.

    left_out:  content that is not text was left out
    untrained: numbers of the assistant's messages that the file says are not trained on
    """

    messages: list[Message]
    left_out: bool
    untrained: frozenset[int]


class Arguments(dict[str, Any]):
    """Arguments of a call: an object to a template. One that writes them as text gets ``text``."""

    def __init__(self, value: Mapping[str, Any], text: str) -> None:
        super().__init__(value)
        self.text = text

    def __str__(self) -> str:
        raise TypeError("arguments of a call are an object, not text")


def normalised(value: Any, where: Where, field: str) -> Chat:
    """Raises SourceError naming the message for an unknown role, a tool result that nobody asked
    for, content of a wrong type, and a conversation without a user or assistant.
    """
    value = fields.unpacked(value)
    if not isinstance(value, list):
        raise where.unlike(
            value,
            "a list of messages",
            "give it the role it has, or repair the row",
            field,
        )
    out: list[Message] = []
    left_out, untrained = False, set()
    for i, raw in enumerate(value):
        at = f"{field}.{i}"
        if not isinstance(raw, Mapping):
            raise where.unlike(raw, "a message", "give role and content", at)
        for message, dropped in _messages(raw, where, at):
            left_out |= dropped
            if message["role"] == "tool" and all(m["role"] == "system" for m in out):
                raise where.error(
                    "a tool result comes before any message of the assistant",
                    "keep the conversation from its start",
                    at,
                )
            if message["role"] == "assistant" and not _trained(raw, where, at):
                untrained.add(len(out))
            out.append(message)
    if not any(m["role"] in ("user", "assistant") for m in out):
        what = "only system messages" if out else "no messages"
        raise where.error(what, "take the row out or add the conversation", field)
    return Chat(out, left_out, frozenset(untrained))


def normalised_tools(value: list[Any], where: Where) -> list[Any]:
    """Tools in OpenAI's form: Anthropic's ``input_schema`` is its ``parameters``."""
    out = []
    for tool in without_nulls(value, where):
        if isinstance(tool.get("input_schema"), Mapping) and "function" not in tool:
            function = {k: tool[k] for k in ("name", "description") if k in tool}
            tool = {
                "type": "function",
                "function": function | {"parameters": tool["input_schema"]},
            }
        out.append(tool)
    return out


def without_nulls(value: Any, where: Where) -> Any:
    """``value`` without the nulls that typed columns add to objects; a file of text adds none."""
    if where.line is not None:
        return value
    if isinstance(value, Mapping):
        return {k: without_nulls(v, where) for k, v in value.items() if v is not None}
    return [without_nulls(v, where) for v in value] if isinstance(value, list) else value


def _messages(raw: Mapping[str, Any], where: Where, at: str) -> Iterator[tuple[Message, bool]]:
    """(message, whether other content was left out): of one that holds tool results, several."""
    said = raw.get("role", raw.get("from"))
    name = said.strip().lower().replace("-", "_") if isinstance(said, str) else ""
    role = ROLES.get(name)
    if role is None:
        raise where.error(
            f"the role is {shown(said, 40)}",
            "use system, user, assistant or tool, or map it (--speaker NAME=ROLE)",
            f"{at}.role",
        )
    content = raw.get("content", raw.get("value"))
    if role == "user" and isinstance(content, list):
        for part in content:
            if isinstance(part, Mapping) and part.get("type") == "tool_result":
                text, _, dropped = _content(part.get("content"), where, at)
                message: Message = {"role": "tool", "content": text}
                if isinstance(part.get("tool_use_id"), str):
                    message["tool_call_id"] = part["tool_use_id"]
                yield message, dropped
        rest = [p for p in content if not _of_kind(p, "tool_result")]
        if content and not rest:
            return
        content = rest
    calls = _tool_calls(raw, where, at)
    if role == "assistant" and isinstance(content, list):
        used = [p for p in content if _of_kind(p, "tool_use")]
        calls += [_call(p.get("name"), p.get("input"), p.get("id"), where) for p in used]
        content = [p for p in content if not _of_kind(p, "tool_use")]
    elif name in CALLS and isinstance(content, str):
        called = fields.unpacked(content)
        if isinstance(called, Mapping) and isinstance(called.get("name"), str):
            calls.append(_call(called["name"], called.get("arguments"), None, where))
            content = None
    text, thoughts, dropped = _content(content, where, at)
    message = {"role": role, "content": text}
    named = next((raw[k] for k in REASONING if isinstance(raw.get(k), str)), None)
    if named or thoughts:
        message["reasoning_content"] = named or thoughts
    if calls:
        message["tool_calls"] = calls
    for key in ("name", "tool_call_id"):
        if isinstance(raw.get(key), str):
            message[key] = raw[key]
    yield message, dropped


def _of_kind(part: Any, kind: str) -> bool:
    return isinstance(part, Mapping) and part.get("type") == kind


def _trained(raw: Mapping[str, Any], where: Where, at: str) -> bool:
    key = next((k for k in TRAINED if raw.get(k) is not None), None)
    if key is None:
        return True
    value = raw[key]
    if isinstance(value, str):  # of a table of text
        value = {"0": False, "1": True, "false": False, "true": True}.get(value.lower(), value)
    if not isinstance(value, bool | int | float):
        kind = fields.type_name(value)
        raise where.error(f"is {kind}", "write 0 or 1, true or false", f"{at}.{key}")
    return bool(value)


def _content(value: Any, where: Where, at: str) -> tuple[str, str, bool]:
    """(text, reasoning, whether other content was left out)."""
    if value is None:
        return "", "", False
    if isinstance(value, str):
        return value, "", False
    if isinstance(value, list):
        texts, thoughts, dropped = [], [], False
        for part in value:
            kind = part.get("type", "text") if isinstance(part, Mapping) else None
            if isinstance(part, str):
                texts.append(part)
            elif kind in TEXT_PARTS and isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif kind in REASONING and isinstance(part.get(kind, part.get("text")), str):
                thoughts.append(part.get(kind, part.get("text")))
            elif isinstance(kind, str):
                dropped = True
            else:
                raise where.error(
                    f"a content part is {fields.type_name(part)}",
                    'write parts as {"type": "text", "text": …}',
                    f"{at}.content",
                )
        return "".join(texts), "".join(thoughts), dropped
    raise where.unlike(value, "text", "write the content as text", f"{at}.content")


def _tool_calls(raw: Mapping[str, Any], where: Where, at: str) -> list[Message]:
    calls = raw.get("tool_calls")
    if calls is None and isinstance(raw.get("function_call"), Mapping):
        calls = [raw["function_call"]]
    calls = fields.unpacked(calls)
    if not calls:
        return []
    if not isinstance(calls, list):
        raise where.unlike(calls, "a list", "list the calls", f"{at}.tool_calls")
    out = []
    for n, call in enumerate(calls):
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise where.error(
                "the call has no function name",
                'write {"function": {"name": …, "arguments": …}}',
                f"{at}.tool_calls.{n}",
            )
        out.append(_call(function["name"], function.get("arguments"), call.get("id"), where))
    return out


def _call(name: Any, arguments: Any, identity: Any, where: Where) -> Message:
    function = {"name": name, "arguments": _arguments(arguments, where)}
    made: Message = {"type": "function", "function": function}
    return made | ({"id": identity} if isinstance(identity, str) else {})


def _arguments(value: Any, where: Where) -> Any:
    """Arguments as an object that knows its text; text that is no JSON object stays text."""
    if isinstance(value, str) and value.strip():
        try:
            read = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return Arguments(read, value) if isinstance(read, dict) else value
    value = without_nulls(value, where) or {}
    if isinstance(value, list) and all(isinstance(v, tuple) and len(v) == 2 for v in value):
        value = dict(value)  # a map of Arrow
    if not isinstance(value, Mapping):
        return value
    return Arguments(value, json.dumps(value, ensure_ascii=False, default=str))
