"""What a chat template writes around a turn of the assistant: asked by probes, not known by name.

Notable:
- a probe is a short conversation whose contents are marks; what stands between two marks is what
  the template writes there
- a past turn may have a shorter header than the generation prompt (reasoning is opened only where
  it is asked for), and another end than the last one
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from packing.sources.chat.messages import Arguments, Message
from packing.sources.errors import SourceError

# Characters for private use: no template writes them, and no text of a person holds them.
_ASKED, _SAID, _NEXT = "\ue010", "\ue011", "\ue012"
_TAG = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")

Render = Callable[[Sequence[Message], bool], str]


@dataclass(frozen=True)
class Shape:
    """What a template writes around a turn.

    headers: forms of the generation prompt, the longest first (a past turn may have a shorter one)
    tails:   by role of the message before a turn: what follows its content up to the turn
    ends:    texts that end a turn
    end:     the one that ends an answer; None where the template writes none
    lead:    what comes before a question that follows a turn
    special: texts of special tokens
    """

    headers: tuple[str, ...]
    tails: Mapping[str, tuple[str, ...]]
    ends: tuple[str, ...]
    end: str | None
    lead: str
    special: re.Pattern[str] | None

    def start(self, piece: str, role: str) -> int | None:
        """Characters of ``piece``, the text after a message of ``role``, before its turn."""
        tails = self.tails.get(role, ())
        for tail in tails:
            if piece.startswith(tail):
                return len(tail)
        if self.headers or not tails:
            return self.after_header(piece, 0)
        marks = self.marks(tails[0])
        last = tails[0][tails[0].rfind(marks[-1]) :] if marks else tails[0]
        return piece.find(last) + len(last) if last in piece else None

    def after_header(self, text: str, at: int) -> int | None:
        found = text.find(self.headers[-1], at) if self.headers else -1
        if found < 0:
            return None
        return found + next(len(h) for h in self.headers if text.startswith(h, found))

    def end_of(self, text: str, content: str) -> int:
        """Characters of ``text``, a turn and what the template writes after it, that are its own.

        text: goes to the end of the conversation. Where its last end token stands in ``content``,
              the template itself writes none.
        """
        content = content.strip()
        at = text.find(content) if content else -1
        end = self._last_end(text)
        return len(text) if end < 0 or (at >= 0 and end <= at + len(content)) else end

    def end_before(self, text: str) -> int:
        """As ``end_of``, where ``text`` goes to the content of the message that follows."""
        end = self._last_end(text)
        if end >= 0:
            return end
        if self.lead and text.endswith(self.lead):
            return len(text) - len(self.lead)
        marks = self.marks(text)
        return text.rfind(marks[-1]) if marks else len(text.rstrip())

    def first_end(self, text: str, at: int = 0) -> int:
        """Characters of ``text`` up to the first end of a turn after ``at``; 0 where none is."""
        return min((p + len(e) for e in self.ends if (p := text.find(e, at)) >= 0), default=0)

    def marks(self, text: str) -> list[str]:
        """Special tokens in ``text``; where it has none, what looks like one."""
        found = self.special.findall(text) if self.special else []
        return found or _TAG.findall(text)

    def shared(self, a: str, b: str) -> str:
        """What two texts share from their start, no special token cut in two."""
        stop = common(a, b)
        for found in (self.special or _TAG).finditer(a):
            if found.start() < stop < found.end():
                return a[: found.start()]
        return a[:stop]

    def _last_end(self, text: str) -> int:
        return max(
            (text.rfind(e) + len(e) for e in self.ends if e in text),
            default=-1,
        )


def shape_of(render: Render, special: Iterable[str]) -> Shape:
    """The shape of a template. Raises SourceError where it cannot write a question and its answer.

    special: texts of the tokenizer's special tokens
    """
    longest_first = sorted(special, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
    plain = Shape((), {}, (), None, "", pattern)
    user: Message = {"role": "user", "content": _ASKED}
    said: Message = {"role": "assistant", "content": _SAID}
    following: Message = {"role": "user", "content": _NEXT}
    arguments = Arguments({"x": _SAID}, json.dumps({"x": _SAID}, ensure_ascii=False))
    function = {"name": "probe", "arguments": arguments}
    # Mistral's templates want ids of nine letters and digits.
    called: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "id": "probe0001", "function": function}],
    }
    told: Message = {
        "role": "tool",
        "content": _NEXT,
        "tool_call_id": "probe0001",
        "name": "probe",
    }
    asked, bare = render([user], True), _try(render, [user])
    answered = render([user, said], False)
    inner = _try(render, [user, said, following])
    after = _from(answered, _SAID)
    marks = plain.marks(after)
    end = marks[0] if marks else (after.strip() or None)
    ends = [end] if end else []
    between = _from(inner, _SAID).partition(_NEXT)[0]
    if end is None or end not in between:
        marks = plain.marks(between)
        # Of one token alone it cannot be told whether it ends the turn or opens the next.
        ends += marks[:1] if len(marks) > 1 else []
    calling = _from(_try(render, [user, called]), _SAID)
    if calling and not any(e in calling for e in ends):
        marks = plain.marks(calling)
        ends += marks[-1:] if marks and calling.rstrip().endswith(marks[-1]) else []
    tails = {"user": _tails(plain, asked, [answered, inner], _ASKED, _SAID)}
    tool = [user, called, told]
    tails["tool"] = _tails(
        plain, _try(render, tool, prompt=True), [_try(render, [*tool, said])], _NEXT, _SAID
    )
    prompt = asked[len(plain.shared(asked, bare)) :] if bare else ""
    headers: tuple[str, ...] = ()
    if prompt:
        before = len(tails["user"][0]) - len(prompt)
        # A form that ends before the header is that of a template which writes more at its end.
        tails["user"] = tuple(t for t in tails["user"] if len(t) > before)
        headers = tuple(t[before:] for t in tails["user"])
        if any(t.endswith(headers) for t in tails["tool"]):  # some open no turn after a tool
            tails["tool"] = tuple(t for t in tails["tool"] if t.endswith(headers))
    lead = between[len(between) - common(between[::-1], answered.partition(_ASKED)[0][::-1]) :]
    return Shape(headers, tails, tuple(ends), end, lead if not ends else "", pattern)


def _tails(
    plain: Shape, prompt: str, written: Sequence[str], content: str, said: str
) -> tuple[str, ...]:
    """What follows ``content`` up to a turn: as the prompt has it, and as past turns do."""
    tail = _from(prompt, content)
    forms = {tail: None} if tail else {}
    for text in written:
        past = _from(text, content).partition(said)[0]
        if past:
            forms[plain.shared(tail, past)] = None
    forms.pop("", None)
    return tuple(sorted(forms, key=len, reverse=True))


def _from(text: str, mark: str) -> str:
    """What follows the last ``mark``, empty where it is not there."""
    return text.rpartition(mark)[2] if mark in text else ""


def _try(render: Render, messages: Sequence[Message], prompt: bool = False) -> str:
    """A probe that a template may refuse: then it says nothing."""
    try:
        return render(messages, prompt)
    except SourceError:
        return ""


def common(a: str, b: str) -> int:
    """Characters that two texts share from their start."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
