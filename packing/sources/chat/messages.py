"""Chat messages of any common shape as one: OpenAI's, checked.

Notable:
- ShareGPT's ``from``/``value``, content in parts, and the old ``function_call`` are understood
- content that is not text (images, audio) is left out and reported, never replaced by made-up text
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packing.sources import fields
from packing.sources.errors import Where, shown

Message = dict[str, Any]

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
}
REASONING = ("reasoning_content", "reasoning", "thinking")
TEXT_PARTS = ("text", "input_text", "output_text")


def normalised(value: Any, where: Where, field: str) -> tuple[list[Message], bool]:
    """(messages, whether content that is not text was left out).

    Raises SourceError naming the message for an unknown role, a tool result that nobody asked
    for, content of a wrong type, and a conversation without a user or assistant.
    """
    value = fields.unpacked(value)
    if not isinstance(value, list):
        raise where.error(
            f"is {fields.type_name(value)}, not a list of messages",
            "give it the role it has, or repair the row",
            field,
        )
    out: list[Message] = []
    left_out = False
    for i, raw in enumerate(value):
        at = f"{field}.{i}"
        if not isinstance(raw, Mapping):
            raise where.error(
                f"is {fields.type_name(raw)}, not a message", "give role and content", at
            )
        message, dropped = _message(raw, where, at)
        left_out |= dropped
        if message["role"] == "tool" and all(m["role"] == "system" for m in out):
            raise where.error(
                "a tool result comes before any message of the assistant",
                "keep the conversation from its start",
                at,
            )
        out.append(message)
    if not any(m["role"] in ("user", "assistant") for m in out):
        what = "only system messages" if out else "no messages"
        raise where.error(what, "take the row out or add the conversation", field)
    return out, left_out


def _message(raw: Mapping[str, Any], where: Where, at: str) -> tuple[Message, bool]:
    said = raw.get("role", raw.get("from"))
    role = ROLES.get(said.strip().lower()) if isinstance(said, str) else None
    if role is None:
        raise where.error(
            f"the role is {shown(said, 40)}",
            "use system, user, assistant or tool",
            f"{at}.role",
        )
    content, thoughts, dropped = _content(raw.get("content", raw.get("value")), where, at)
    message: Message = {"role": role, "content": content}
    named = next((raw[k] for k in REASONING if isinstance(raw.get(k), str)), None)
    if named or thoughts:
        message["reasoning_content"] = named or thoughts
    calls = _tool_calls(raw, where, at)
    if calls:
        message["tool_calls"] = calls
    for key in ("name", "tool_call_id"):
        if isinstance(raw.get(key), str):
            message[key] = raw[key]
    return message, dropped


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
    raise where.error(
        f"is {fields.type_name(value)}, not text", "write the content as text", f"{at}.content"
    )


def _tool_calls(raw: Mapping[str, Any], where: Where, at: str) -> list[Message]:
    calls = raw.get("tool_calls")
    if calls is None and isinstance(raw.get("function_call"), Mapping):
        calls = [raw["function_call"]]
    calls = fields.unpacked(calls)
    if not calls:
        return []
    if not isinstance(calls, list):
        raise where.error(
            f"is {fields.type_name(calls)}, not a list", "list the calls", f"{at}.tool_calls"
        )
    out = []
    for n, call in enumerate(calls):
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise where.error(
                "the call has no function name",
                'write {"function": {"name": …, "arguments": …}}',
                f"{at}.tool_calls.{n}",
            )
        made: Message = {
            "type": "function",
            "function": {"name": function["name"], "arguments": function.get("arguments") or {}},
        }
        if isinstance(call.get("id"), str):
            made["id"] = call["id"]
        out.append(made)
    return out
