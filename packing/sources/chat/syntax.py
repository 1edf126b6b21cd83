"""Chat templates: messages to the text that a model sees, with reasoning kept or dropped.

Notable:
- templates come with tokenizers and are untrusted: they run in jinja2's immutable sandbox
- the environment is the one that transformers documents for chat templates (trimmed blocks,
  ``tojson`` without HTML escapes, ``raise_exception``, ``strftime_now``, loop controls)
- a template that drops reasoning of earlier turns can be asked to keep it: marks stand in for the
  reasoning while it renders
- a template that wants the arguments of calls as text gets their text, any other gets objects
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from packing.sources.chat.messages import Arguments

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_METHODS = frozenset(dir(dict))
_THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)

Message = Mapping[str, Any]
# The time that templates are told: one for a whole load, or rows of one prompt would differ.
_clock = [datetime.now()]


class TemplateRefusal(ValueError):
    """A template does not accept the messages; the message says what it does not like.

    own: it raised the refusal itself; else it failed
    """

    def __init__(self, message: str, own: bool = False) -> None:
        super().__init__(message)
        self.own = own


def render(
    source: str,
    variables: Mapping[str, Any],
    messages: Sequence[Message],
    keep_thinking: bool | None,
) -> str:
    """Text of ``messages`` by the template ``source``.

    keep_thinking: None as the template does it, True keeps the reasoning of every turn, False of
    none. Raises TemplateRefusal where the template raises or leaves no place for the reasoning.
    """
    if keep_thinking is None or _reads(source, "keep_thinking"):
        aliased = [_with_reasoning_names(m) for m in messages]
        return _run(source, aliased, {**variables, "keep_thinking": keep_thinking})
    thoughts, bare = _apart(messages)
    if not keep_thinking:
        return _run(source, bare, variables)
    marked = [
        {**m, "content": _marked(i, m.get("content"))} if i in thoughts else m
        for i, m in enumerate(bare)
    ]
    text = _run(source, marked, variables)
    for i, thought in thoughts.items():
        line_end = "" if bare[i].get("content") else "\n?"
        kept = f"<think>\n{thought}\n</think>\n\n".replace("\\", r"\\")
        text, found = re.subn(rf"(?:<think>\s*</think>\s*)?{_mark(i)}{line_end}", kept, text)
        if not found:
            raise TemplateRefusal(f"it leaves no place for the reasoning of message {i}")
    return text


def set_clock() -> None:
    """The time that templates write is now, and stays so until this is called again."""
    _clock[0] = datetime.now()


def _apart(messages: Sequence[Message]) -> tuple[dict[int, str], list[Message]]:
    """Reasoning by message number, and the messages without it."""
    thoughts: dict[int, str] = {}
    bare: list[Message] = []
    for i, message in enumerate(messages):
        if message.get("role") != "assistant":
            bare.append(message)
            continue
        rest = {key: value for key, value in message.items() if key not in REASONING_FIELDS}
        thought = reasoning_of(message)
        content = rest.get("content")
        if isinstance(content, str) and (inside := _THOUGHT.match(content)):
            thought = thought or inside[1]
            rest["content"] = content[inside.end() :]
        if thought.strip():
            thoughts[i] = thought.strip("\n")
        bare.append(rest)
    return thoughts, bare


def reasoning_of(message: Message) -> str:
    """Reasoning that stands beside the content of a message, or empty."""
    return next((m for f in REASONING_FIELDS if isinstance(m := message.get(f), str) and m), "")


def _with_reasoning_names(message: Message) -> Message:
    """Reasoning under each name that templates read (``thinking`` is that of gpt-oss)."""
    reasoning = reasoning_of(message)
    return (
        {**message, "reasoning_content": reasoning, "thinking": reasoning} if reasoning else message
    )


def _mark(index: int) -> str:
    return f"\ue000{index}\ue001"


def _marked(index: int, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": _mark(index)}, *content]
    return _mark(index) + (content or "")


def _run(source: str, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
    from jinja2 import TemplateRuntimeError

    tried = [messages]
    if any(m.get("tool_calls") for m in messages):
        tried.append([_with_argument_text(m) for m in messages])
    refusal: Exception | None = None
    for given in tried:
        try:
            return str(_compiled(source).render(messages=given, **variables))
        except Exception as error:  # a template is a program of its own and may raise anything
            refusal = refusal or error
    own = type(refusal) is TemplateRuntimeError
    raise TemplateRefusal(str(refusal) or type(refusal).__name__, own) from refusal


def _with_argument_text(message: Message) -> Message:
    """The message with the arguments of its calls as text."""
    calls = []
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        arguments = function.get("arguments")
        if isinstance(arguments, Arguments):
            function = {**function, "arguments": arguments.text}
        calls.append({**call, "function": function} if "function" in call else function)
    return {**message, "tool_calls": calls} if calls else message


@lru_cache(maxsize=16)
def _reads(source: str, variable: str) -> bool:
    from jinja2 import TemplateError, meta

    try:
        return variable in meta.find_undeclared_variables(_environment().parse(source))
    except TemplateError as error:
        raise TemplateRefusal(f"it is not a valid template ({error})") from error


@lru_cache(maxsize=16)
def _compiled(source: str) -> Any:
    return _environment().from_string(source)


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import TemplateRuntimeError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %} … {% endgeneration %}`` marks what is trained on; its body is text."""

        tags = {"generation"}  # noqa: RUF012 (read by jinja2 as it is)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    class Environment(ImmutableSandboxedEnvironment):
        def getattr(self, obj: Any, attribute: str) -> Any:
            # Messages are objects whose keys templates read, most often by far: a key needs none
            # of the checks of an attribute.
            if type(obj) is not dict or attribute in _METHODS:
                return super().getattr(obj, attribute)
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)

    def raise_exception(message: str) -> None:
        raise TemplateRuntimeError(message)

    def tojson(value: Any, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    def strftime_now(form: str) -> str:
        return _clock[0].strftime(form)

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment
