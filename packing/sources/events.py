"""Events of OpenHands as the messages they were made of: of its runs, and of its SDK (``kind``).

Notable:
- a turn is the response that its action was made of; a response with several calls is one turn
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]

# Events of OpenHands that a model never sees.
UNSEEN = (
    "recall",
    "change_agent_state",
    "agent_state_changed",
    "condensation",
    "condensation_request",
    "agent_condensation",
    "null",
)


def is_event(value: Any) -> bool:
    """An event of OpenHands: an action, an observation, or one of a ``kind`` (its SDK)."""
    if not isinstance(value, Mapping) or "role" in value:
        return False
    kinds = value.get("action", value.get("observation")), value.get("kind")
    of_sdk = isinstance(kinds[1], str) and kinds[1].endswith(("Event", "Observation"))
    return of_sdk or (isinstance(kinds[0], str) and ("args" in value or "extras" in value))


def messages_of(events: Sequence[Any]) -> list[Message] | None:
    """The messages that events were made of; what the model never saw is none."""
    out: list[Message] = []
    responses: dict[Any, Message] = {}  # of several calls, each is an event of its own
    for event in events:
        if not isinstance(event, Mapping):
            return None
        response, message = _of_event(event)
        before = responses.get(response)
        if before is not None and message.get("role") == "assistant":
            there = [c.get("id") for c in before["tool_calls"]]
            new = [c for c in message.get("tool_calls", ()) if c.get("id") not in there]
            before["tool_calls"] = before["tool_calls"] + new
            continue
        if message:
            out.append(message)
        if response is not None and message.get("tool_calls"):
            responses[response] = message
    return out or None


def _of_event(event: Mapping[str, Any]) -> tuple[Any, Message]:
    """(the response it is of, or None; its message, empty for none)."""
    kind, does, sees = (event.get(k) for k in ("kind", "action", "observation"))
    if isinstance(kind, str):
        return event.get("llm_response_id"), _of_sdk_event(kind, event)
    args, told = event.get("args") or {}, event.get("tool_call_metadata") or {}
    if does in UNSEEN or sees in UNSEEN:
        return None, {}
    if isinstance(sees, str):
        made: Message = {"role": "tool" if told else "user", "content": event.get("content")}
        named = {"tool_call_id": told.get("tool_call_id"), "name": told.get("function_name")}
        return None, made | {k: v for k, v in named.items() if isinstance(v, str)}
    if does in ("system", "message"):
        role = "system" if does == "system" else "user"
        role = "assistant" if event.get("source") == "agent" and does == "message" else role
        return None, {"role": role, "content": args.get("content")}
    response = told.get("model_response") or {}
    recorded = response.get("choices") or [{}]
    if isinstance(recorded[0].get("message"), Mapping):
        return response.get("id"), {"role": "assistant", **recorded[0]["message"]}
    rest = {k: v for k, v in args.items() if k != "thought"}
    call = called(told.get("function_name", does), rest, told.get("tool_call_id"))
    return None, {"role": "assistant", "content": args.get("thought"), "tool_calls": [call]}


def _of_sdk_event(kind: str, event: Mapping[str, Any]) -> Message:
    if kind == "SystemPromptEvent":
        return {"role": "system", "content": _said(event.get("system_prompt"))}
    if kind == "MessageEvent":
        return dict(event["llm_message"])
    if kind == "ActionEvent":
        call = dict(event["tool_call"])
        if "function" not in call:
            call = called(call.get("name"), call.get("arguments"), call.get("id"))
        made: Message = {"role": "assistant", "content": _said(event.get("thought"))}
        thought = event.get("reasoning_content")
        return made | {"tool_calls": [call]} | ({"reasoning_content": thought} if thought else {})
    if isinstance(event.get("tool_call_id"), str):
        seen = event.get("observation", event.get("error", event.get("rejection_reason")))
        content = seen.get("content", seen.get("output")) if isinstance(seen, Mapping) else seen
        made = {"role": "tool", "content": _said(content), "name": event.get("tool_name")}
        return made | {"tool_call_id": event["tool_call_id"]}
    return {}


def _said(value: Any) -> str:
    """The text of a part, or of a list of them."""
    parts = value if isinstance(value, list) else [value]
    return "".join(str(p.get("text", "")) if isinstance(p, Mapping) else p or "" for p in parts)


def called(name: Any, arguments: Any, identity: Any = None) -> Message:
    """A tool call in OpenAI's form."""
    made: Message = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return made | ({"id": identity} if isinstance(identity, str) else {})
