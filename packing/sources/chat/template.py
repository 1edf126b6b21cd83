"""A conversation through a chat template, cut into parts: who said what, and what is trained on.

Notable:
- the prompt of a turn is the conversation before it plus the generation prompt, as an engine
  sees it; the completion is the rest of the turn, up to its end token
- a template keeps prefixes if the prompt of the next turn starts with the turn before; where it
  does not (reasoning of past turns dropped, say), siblings and turns stop sharing there
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packing.sources.chat.messages import Message
from packing.sources.chat.tokenizer import Tokenizer, TokenizerError
from packing.sources.errors import SourceError, Where


class Part(NamedTuple):
    """A piece of a row: text or token ids, who it comes from, and whether it is trained on."""

    content: str | npt.NDArray[np.int32]
    role: str
    trained: bool


class Renderer:
    """The texts of one record's conversations, each made once: samples share their prompt's."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        tools: Sequence[Mapping[str, Any]] | None,
        keep_thinking: bool | None,
        where: Where,
    ) -> None:
        self._tokenizer, self._tools, self._keep, self._where = (
            tokenizer,
            tools,
            keep_thinking,
            where,
        )
        self._made: dict[tuple[tuple[int, ...], bool], tuple[Sequence[Message], str]] = {}

    @property
    def eos(self) -> str | None:
        """Text of the token that ends a turn."""
        return self._tokenizer.eos_token

    def __call__(self, messages: Sequence[Message], prompt: bool, field: str) -> str:
        """Text of ``messages``, with the generation prompt for a ``prompt``.

        Raises SourceError naming ``field`` where the template refuses.
        """
        if not messages:
            return ""
        # Messages are told apart by identity; kept beside the text, they stay the ones they are.
        key = tuple(map(id, messages)), prompt
        if key not in self._made:
            try:
                text = self._tokenizer.render(messages, self._tools, prompt, self._keep)
            except TokenizerError as error:
                raise self._where.error(
                    str(error), "repair the conversation or choose another tokenizer", field
                ) from None
            self._made[key] = messages, text
        return self._made[key][1]


@dataclass(frozen=True)
class Turn:
    """An assistant message as an engine makes it.

    index:  its number among the messages
    asked:  text of the prompt, generation prompt included
    prompt: the part of it that ``full`` starts with: all of it, but for a few templates
    full:   prompt and completion as the template writes them
    end:    characters of ``full`` up to its end token, what follows is the template's
    """

    index: int
    asked: str
    prompt: str
    full: str
    end: int

    @property
    def written(self) -> Part:
        """The completion, up to its end token."""
        return Part(self.full[len(self.prompt) : self.end], "assistant", True)


@dataclass(frozen=True)
class PrefixBreak:
    """The first place of a conversation where the prefix is not kept, and the text made twice."""

    turn: int
    lost: str


class _End(NamedTuple):
    """A place where text may be cut: after a message, at the start of a turn, or after one.

    role: of the message that ends here; "assistant" with a turn: its completion starts here;
          "" : what the template writes after a turn ends here
    prefix: all text up to here; None where the template refuses a conversation cut here
    """

    role: str
    prefix: str | None
    turn: Turn | None


@dataclass(frozen=True)
class Conversation:
    """One conversation rendered: the whole text, its turns, where messages end, what breaks.

    header: the generation prompt, the same text before every turn
    eos:    text of the token that ends a turn, or None
    """

    text: str
    turns: tuple[Turn, ...]
    ends: tuple[_End, ...]
    breaks: tuple[PrefixBreak, ...]
    header: str
    eos: str | None

    @classmethod
    def of(
        cls,
        renderer: Renderer,
        messages: Sequence[Message],
        field: str,
    ) -> Conversation:
        """Raises SourceError with the template's own words where it refuses the messages."""

        def render(stop: int, prompt: bool = False) -> str:
            return renderer(messages[:stop], prompt, field)

        whole = render(len(messages))
        turns: list[Turn] = []
        ends: list[_End] = []
        last, header = -1, ""
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            asked = render(i, prompt=True)
            full = whole if i + 1 == len(messages) else render(i + 1)
            for k in range(last + 1, i):
                # The last message before a turn ends where the generation prompt starts, which is
                # the same text before every turn: one render tells it.
                text = asked.removesuffix(header) if k == i - 1 and header else _try(render, k + 1)
                ends.append(_End(messages[k]["role"], text, None))
                if k == i - 1 and text is not None and asked.startswith(text):
                    header = asked[len(text) :]
            prompt = asked if full.startswith(asked) else full[: common(asked, full)]
            turns.append(Turn(i, asked, prompt, full, _end_of(full, renderer.eos)))
            ends += [_End("assistant", prompt, turns[-1]), _End("", full, None)]
            last = i
        for k in range(last + 1, len(messages)):
            text = whole if k + 1 == len(messages) else _try(render, k + 1)
            ends.append(_End(messages[k]["role"], text, None))
        breaks = tuple(_breaks(turns))
        return cls(whole, tuple(turns), tuple(ends), breaks, header, renderer.eos)

    def whole(self) -> list[Part]:
        """One row: the conversation as the template writes it, every turn trained on."""
        return self._cut(self.text, {t.index for t in self.turns})[0]

    def individual(self) -> list[list[Part]]:
        """One row a turn: everything before it as the engine saw it, then what it wrote."""
        return [[*self._cut(turn.prompt, set())[0], turn.written] for turn in self.turns]

    def concat(self) -> list[list[Part]]:
        """One row a chain of turns: what each turn saw and wrote, appended to the turn before.

        As AReaL joins turns: of a prompt only what follows the end of the turn before is new, so
        the chain holds what was generated even where the template writes past turns otherwise. A
        new row starts where the turn before cannot be found in the prompt.
        """
        rows: list[list[Part]] = []
        before: Turn | None = None
        for turn in self.turns:
            parts, found = self._cut(turn.prompt, set())
            end = found.get(before.index) if before is not None else None
            if end is None:
                rows.append(parts)
            else:
                rows[-1] += _after(parts, end)
            rows[-1].append(turn.written)
            before = turn
        return rows

    def _cut(self, text: str, trained: set[int]) -> tuple[list[Part], dict[int, int]]:
        """(parts of ``text``, cut where messages end; where each turn ends in it).

        A turn that the template wrote otherwise than when it was generated (without its
        reasoning, say) is found by the generation prompt before it and its end token.
        """
        out: list[Part] = []
        found: dict[int, int] = {}
        at = 0
        pending: list[str] = []

        def cut(stop: int, role: str, marked: bool = False) -> None:
            nonlocal at
            if stop > at:
                out.append(Part(text[at:stop], role, marked))
                at = stop

        for role, prefix, turn in self.ends:
            matches = prefix is not None and at <= len(prefix) and text.startswith(prefix)
            if turn is None:
                if matches and prefix is not None:
                    cut(len(prefix), _label([*pending, role or "assistant"]))
                    pending = []
                elif role:
                    pending.append(role)
                continue
            start = len(turn.prompt) if matches else self._start(text, at)
            if start < at:
                pending.append("unsplit")
                continue
            if pending:
                cut(max(at, start - len(self.header)), _label(pending))
                pending = []
            cut(start, "assistant")
            end = turn.end if text.startswith(turn.full) else self._end(text, at)
            if end > at:
                cut(end, "assistant", turn.index in trained)
                found[turn.index] = at
            elif at < len(text):
                pending.append("unsplit")
        cut(len(text), "unsplit")
        return out, found

    def _start(self, text: str, at: int) -> int:
        start = text.find(self.header, at) if self.header and self.eos else -1
        return -1 if start < 0 else start + len(self.header)

    def _end(self, text: str, at: int) -> int:
        end = text.find(self.eos, at) if self.eos else -1
        return -1 if end < 0 else end + len(self.eos or "")


def _label(roles: Sequence[str]) -> str:
    return roles[0] if len(set(roles)) == 1 else "unsplit"


def _after(parts: Sequence[Part], position: int) -> list[Part]:
    """The parts from a character on; parts are cut there already."""
    out, at = [], 0
    for part in parts:
        if at >= position:
            out.append(part)
        at += len(part.content)
    return out


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


def _breaks(turns: Sequence[Turn]) -> list[PrefixBreak]:
    out = []
    for turn, following in pairwise(turns):
        if not following.asked.startswith(turn.full):
            out.append(PrefixBreak(turn.index, turn.full[common(turn.full, following.asked) :]))
    return out


def _try(render: Callable[[int], str], stop: int) -> str | None:
    """A template may refuse a conversation cut before its first question: then no cut is made."""
    try:
        return render(stop)
    except SourceError:
        return None


def _end_of(full: str, eos: str | None) -> int:
    """Characters up to the last end token, if only space follows it."""
    at = full.rfind(eos) if eos else -1
    return len(full) if at < 0 or full[at + len(eos or "") :].strip() else at + len(eos or "")
