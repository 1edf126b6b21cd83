"""What was asked and what was answered, wherever an API's request and response keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packing.sources import fields
from packing.sources.dialects import Message, as_messages

ASKED = ("messages", "contents", "input", "inputs", "prompt", "question", "text")
ANSWERED = ("message", "output", "outputs", "content", "text", "completion", "response", "answer")


BODY = ("body", "inputBodyJson", "outputBodyJson")
SYSTEM = ("systemInstruction", "system_instruction", "instructions", "system")


def _body(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((value[n] for n in BODY if isinstance(value.get(n), Mapping)), None)


def asked(value: Any) -> list[Any] | str | None:
    """The prompt of a request: messages, or text as it is; None where there is none."""
    value = fields.unpacked(value)
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        while len(value) == 1 and isinstance(value[0], list):
            value = value[0]  # LangSmith wraps the one batch of a run in a list
        return as_messages(value)
    if not isinstance(value, Mapping):
        return None
    if body := _body(value):
        return asked(body)
    for name in ASKED:
        found = asked(value[name]) if value.get(name) else None
        if found is not None:
            system = any(value.get(n) for n in SYSTEM)
            return with_system(found, value) if system else found
    return None


def answers(value: Any) -> list[Any]:
    """Every answer of a response: a message list or a text each; empty where there is none."""
    value = fields.unpacked(value) if not isinstance(value, str) else value
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return _of_list(value)
    if not isinstance(value, Mapping):
        return []
    if body := _body(value):
        return answers(body)
    for name in ("choices", "candidates", "generations"):
        if isinstance(value.get(name), list):
            return [a for choice in _flat(value[name]) for a in _of_choice(choice)]
    messages = value.get("messages")
    if isinstance(messages, list):
        made = as_messages(messages)
        return [made] if made else []
    whole = as_messages(value)
    if whole and whole[0].get("role") == "assistant":
        return [whole]
    for name in ANSWERED:
        if name in value and (found := answers(value[name])):
            return found
    return []


def tools(value: Any) -> list[Any] | None:
    """Tools that a request offered, in OpenAI's form."""
    value = fields.unpacked(value)
    if not isinstance(value, Mapping):
        return None
    if body := _body(value):
        return tools(body)
    given = fields.unpacked(value.get("tools"))
    if not isinstance(given, list):
        return None
    declared = [
        d
        for tool in given
        if isinstance(tool, Mapping)
        for d in tool.get("functionDeclarations", tool.get("function_declarations", [tool]))
    ]
    return [
        d if "function" in d else {"type": "function", "function": d}
        for d in declared
        if isinstance(d, Mapping)
    ]


def _of_choice(choice: Any) -> list[Any]:
    if not isinstance(choice, Mapping):
        return answers(choice)
    inner = choice.get("message", choice.get("content", choice.get("text")))
    if isinstance(inner, str):
        return [inner]
    if isinstance(inner, Mapping) and "role" not in inner and "parts" in inner:
        inner = {"role": "model", **inner}
    made = as_messages(inner)
    if made and isinstance(made[0], Mapping) and "role" not in made[0]:
        made[0] = {"role": "assistant", **made[0]}
    return [made] if made else []


def _of_list(value: list[Any]) -> list[Any]:
    if value and all(isinstance(v, str) for v in value):
        return list(value)
    made = as_messages(value)
    if made:
        return [made]
    return [a for v in _flat(value) for a in (_of_choice(v) or answers(v))]


def _flat(value: list[Any]) -> list[Any]:
    return [v for item in value for v in (_flat(item) if isinstance(item, list) else [item])]


def with_system(
    found: list[Any] | str, request: Mapping[str, Any], names: Sequence[str] = SYSTEM
) -> list[Any]:
    """What stands beside the messages is the system message before them, where they have none."""
    talk = found if isinstance(found, list) else [{"role": "user", "content": found}]
    said = next((request[k] for k in names if request.get(k)), None)
    first = talk[0] if talk and isinstance(talk[0], Mapping) else {}
    if said is None or first.get("role", first.get("from")) in ("system", "developer"):
        return talk
    if isinstance(said, Mapping):
        said = as_messages({**said, "role": "system"})
        said = said[0]["content"] if said else ""
    elif isinstance(said, list):
        said = "".join(p.get("text", "") for p in said if isinstance(p, Mapping))
    head: Message = {"role": "system", "content": said}
    return [head, *talk]
