"""Which text of a conversation was made by whom: the turns of the assistant, and what is around.

Notable:
- a conversation is rendered once more with marks for the contents of users and tools; what stands
  between two marks is the template's and the assistant's, so text that looks like a header or an
  end token deceives nobody
- where the marks change what a template does, headers and end tokens are searched for, and only
  if there are as many headers as turns
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from packing.sources.chat.messages import Message
from packing.sources.chat.shape import Shape

_MARK = re.compile("\ue002(\\d+)\ue003")


class Span(NamedTuple):
    """Text up to ``stop`` (characters), by the role of who wrote it; ``turn`` where a turn is."""

    stop: int
    role: str
    turn: int | None = None


def mark(number: int) -> str:
    """What stands for the content of message ``number`` in a skeleton."""
    return f"\ue002{number}\ue003"


def marked(messages: Sequence[Message]) -> list[Message]:
    """``messages`` with a mark for the content of every one that is not the assistant's.

    An empty system message is often not written at all: it stays as it is.
    """
    return [
        m
        if m["role"] == "assistant" or (m["role"] == "system" and not m["content"].strip())
        else {**m, "content": mark(i)}
        for i, m in enumerate(messages)
    ]


def spans(text: str, skeleton: str, messages: Sequence[Message], shape: Shape) -> list[Span] | None:
    """``text`` cut by who wrote it, or None where it is not ``skeleton`` with its marks filled in.

    skeleton: ``text`` with marks for contents. Turns that cannot be told apart are none.
    """
    contents = _contents(text, skeleton, messages)
    if contents is None:
        return None
    out: list[Span] = []
    at, before = 0, -1
    for following, start, stop in contents:
        out += _between(text[at:start], at, before, following, messages, shape)
        out.append(Span(stop, messages[following]["role"]))
        at, before = stop, following
    return _merged(out + _between(text[at:], at, before, None, messages, shape))


def _contents(
    text: str, skeleton: str, messages: Sequence[Message]
) -> list[tuple[int, int, int]] | None:
    """(message, start, stop) of every content in ``text`` that is not the assistant's."""
    if "\ue002" in text:
        return None
    glue = _MARK.split(skeleton)
    pieces, numbers = glue[::2], [int(n) for n in glue[1::2]]
    if not text.startswith(pieces[0]):
        return None
    out, at = [], len(pieces[0])
    for number, piece in zip(numbers, pieces[1:], strict=True):
        length = _written(text, at, messages[number]["content"], piece)
        if length is None:
            return None
        if messages[number]["role"] != "assistant":
            out.append((number, at, at + length))
        at += length + len(piece)
    return out if at == len(text) else None


def searched(text: str, messages: Sequence[Message], shape: Shape) -> list[Span]:
    """``text`` cut where headers and end tokens are found; no turns where they do not fit."""
    turns = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    out: list[Span] = []
    count = text.count(shape.headers[-1]) if shape.headers else -1
    if shape.ends and 0 <= count - len(turns) <= 1:
        at = 0
        for turn in turns:
            start = shape.after_header(text, at)
            stop = shape.first_end(text, start) if start is not None else 0
            if start is None or not stop:
                break
            at = stop
            out += [Span(start, "unsplit"), Span(at, "assistant", turn)]
    return [*out, Span(len(text), "unsplit")]


def _written(text: str, at: int, content: str, following: str) -> int | None:
    """Characters that ``content`` takes at ``at``: as it is, trimmed, or inside of JSON."""
    for trim in (str, str.rstrip, str.lstrip, str.strip):
        form = trim(content)
        for escaped in (False, True):
            form = json.dumps(form, ensure_ascii=False)[1:-1] if escaped else form
            if text.startswith(form, at) and text.startswith(following, at + len(form)):
                return len(form)
    return None


def _between(
    piece: str,
    at: int,
    before: int,
    following: int | None,
    messages: Sequence[Message],
    shape: Shape,
) -> list[Span]:
    """A text between the contents of two messages, cut by who wrote it; ``at``: where it starts."""
    until = len(messages) if following is None else following
    turns = [i for i in range(before + 1, until) if messages[i]["role"] == "assistant"]
    role = messages[before]["role"] if before >= 0 else ""
    after = messages[following]["role"] if following is not None else "assistant"
    out: list[Span] = []

    def cut(stop: int, who: str, turn: int | None = None) -> None:
        if stop > (out[-1].stop - at if out else 0):
            out.append(Span(at + stop, who, turn))

    header = next((h for h in shape.headers if piece.endswith(h)), "") if following is None else ""
    body = piece[: len(piece) - len(header)]
    starts = _starts(body, turns, role, shape)
    for n, (turn, start) in enumerate(starts):
        opened = next((h for h in shape.headers if body[:start].endswith(h)), "")
        cut(start - len(opened), role or after if n == 0 else "assistant")
        cut(start, "assistant")
        stop = starts[n + 1][1] if n + 1 < len(starts) else len(body)
        own, said = body[start:stop], str(messages[turn]["content"])
        last = following is None and not header and n + 1 == len(starts)
        cut(start + (shape.end_of(own, said) if last else shape.end_before(own)), "assistant", turn)
    if not starts and role:
        cut(len(body) if header else shape.first_end(body), role)
    cut(len(body), after)
    cut(len(piece), "assistant")
    return out


def _starts(body: str, turns: Sequence[int], role: str, shape: Shape) -> list[tuple[int, int]]:
    """(turn, where it starts) in a text that holds no content but that of ``turns``."""
    if not turns:
        return []
    if len(turns) == 1:
        start = shape.start(body, role)
        return [] if start is None else [(turns[0], start)]
    found, at = [], 0
    while (start := shape.after_header(body, at)) is not None:
        found.append(start)
        at = start
    if len(found) > len(turns):
        return []
    # A template that shows only the newest messages leaves out the first of them.
    return list(zip(turns[len(turns) - len(found) :], found, strict=True))


def _merged(parts: Sequence[Span]) -> list[Span]:
    out: list[Span] = []
    for part in parts:
        if out and part.stop == out[-1].stop:
            continue
        if out and out[-1].turn is None and part.turn is None and out[-1].role == part.role:
            out[-1] = part
        else:
            out.append(part)
    return out
