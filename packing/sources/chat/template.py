"""A conversation through a chat template, cut into parts: who said what, and what is trained on.

Notable:
- the prompt of a turn is the conversation before it plus the generation prompt, as an engine
  sees it; the completion is what the turn adds, up to its end token
- a template keeps prefixes if the prompt of the next turn starts with the turn before; where it
  does not (reasoning of past turns dropped, say), siblings and turns stop sharing there
- a template that writes what came before otherwise once the turn is made does not change what the
  engine saw: only the newest turn is read off what it writes then
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packing.sources.chat.messages import Message
from packing.sources.chat.shape import Shape, common, shape_of
from packing.sources.chat.syntax import reasoning_of
from packing.sources.chat.tokenizer import Tokenizer, TokenizerError
from packing.sources.chat.turns import Span, mark, marked, searched, spans
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

    def shape(self) -> Shape | None:
        """What the template writes around turns; None where it does not take a plain question."""
        return _shape(self._tokenizer, bool(self._tools), self._keep)

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
                raise self._where.error(str(error), error.mend, field) from None
            self._made[key] = messages, text
        return self._made[key][1]

    def skeleton(self, messages: Sequence[Message], prompt: bool) -> str | None:
        """Marks for every content, of messages that are text alone; None where they are not."""
        if self._tools or any(len(m) > 2 or not m["content"].strip() for m in messages):
            return None
        roles = tuple(str(m["role"]) for m in messages)
        return _skeleton(self._tokenizer, self._keep, roles, prompt)

    def head(self, messages: Sequence[Message], field: str) -> str:
        """The prompt of ``messages``; where they end in a turn of the assistant, that turn begun.

        Raises SourceError where the template refuses, or writes the turn's text otherwise.
        """
        begun = messages[-1]["content"].rstrip() if messages[-1]["role"] == "assistant" else ""
        if not begun:
            return self(messages, True, field)
        text = self(messages, False, field)
        at = text.rfind(begun)
        if at < 0:
            raise self._where.error(
                "the chat template does not write the begun answer as it is",
                "move it to the completion",
                field,
            )
        return text[: at + len(begun)]


@lru_cache(maxsize=16)
def _shape(tokenizer: Tokenizer, tools: bool, keep_thinking: bool | None) -> Shape | None:
    some = (
        [{"type": "function", "function": {"name": "probe", "parameters": {}}}] if tools else None
    )
    render = Renderer(tokenizer, some, keep_thinking, Where(tokenizer.name))
    try:
        return shape_of(lambda m, prompt: render(m, prompt, "messages"), tokenizer.special_texts)
    except SourceError:
        return None


@lru_cache(maxsize=256)
def _skeleton(
    tokenizer: Tokenizer, keep_thinking: bool | None, roles: tuple[str, ...], prompt: bool
) -> str:
    messages: list[Message] = [{"role": r, "content": mark(i)} for i, r in enumerate(roles)]
    render = Renderer(tokenizer, None, keep_thinking, Where(tokenizer.name))
    return render(messages, prompt, "messages")


class PrefixBreak(NamedTuple):
    """The first place of a conversation where the prefix is not kept, and the text made twice."""

    turn: int
    lost: str


class Conversation:
    """One conversation: its whole text, its turns, where messages end, what breaks.

    turns: numbers of the assistant's messages that are trained on
    lost:  a turn could not be told from what is around it: it is not trained on in ``whole``
    """

    def __init__(
        self,
        renderer: Renderer,
        messages: Sequence[Message],
        field: str,
        untrained: frozenset[int] = frozenset(),
    ) -> None:
        self._renderer, self._field = renderer, field
        self._messages, self._marked = list(messages), marked(messages)
        self._shape = renderer.shape()
        said = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
        self.turns = tuple(i for i in said if i not in untrained)
        self.lost = False

    def _render(self, stop: int, prompt: bool = False) -> str:
        return self._renderer(self._messages[:stop], prompt, self._field)

    @cached_property
    def text(self) -> str:
        """Raises SourceError with the template's own words where it refuses the messages."""
        return self._render(len(self._messages))

    @cached_property
    def key(self) -> str:
        """The text before the first turn: conversations sampled from one prompt agree in it."""
        first = next((s for s in self._spans if s.turn is not None), None)
        if first is None:
            return self.asked(self.turns[0]) if self.turns else self.text
        at = self._spans.index(first)
        return self.text[: self._spans[at - 1].stop if at else 0]

    @cached_property
    def _spans(self) -> list[Span]:
        return self._cut(self.text, len(self._messages), False)

    def asked(self, turn: int) -> str:
        """The prompt of a turn, generation prompt included."""
        return self._render(turn, prompt=True)

    def written(self, turn: int) -> str:
        """What a turn adds to its prompt, up to its end token."""
        asked, full = self.asked(turn), self._render(turn + 1)
        message, shape = self._messages[turn], self._shape
        if full.startswith(asked):
            body = full[len(asked) :]
            return body[: shape.end_of(body, message["content"])] if shape else body
        found = self._cut(full, turn + 1, False)
        at = next((n for n, s in enumerate(found) if s.turn == turn), None)
        if at is None:
            text = str(message["content"]) + ((shape.end if shape else None) or "")
        else:
            text = full[found[at - 1].stop if at else 0 : found[at].stop]
        if asked.rstrip().endswith("<think>") and "</think>" not in text:
            text = _with_thought(message, text, asked, (shape.end if shape else None) or "")
        return text

    @cached_property
    def breaks(self) -> list[PrefixBreak]:
        """Turns whose text the prompt of the next one does not start with."""
        out = []
        for turn, following in zip(self.turns, self.turns[1:], strict=False):
            full, asked = self._render(turn + 1), self.asked(following)
            if not asked.startswith(full):
                out.append(PrefixBreak(turn, full[common(full, asked) :]))
        return out

    def whole(self) -> list[Part]:
        """One row: the conversation as the template writes it, every turn trained on."""
        trained = set(self.turns)
        missing = trained - {s.turn for s in self._spans}
        # A template may show the newest messages alone: an old turn is then absent, not lost.
        self.lost = any(_shown(self._messages[turn], self.text) for turn in missing)
        return _parts(self.text, self._spans, trained)

    def individual(self) -> list[list[Part]]:
        """One row a turn: everything before it as the engine saw it, then what it wrote."""
        rows = []
        for turn in self.turns:
            prompt = self._prompt_spans(turn)
            rows.append([*_parts(self.asked(turn), prompt, set()), self._new(turn)])
        return rows

    def concat(self) -> list[list[Part]]:
        """One row a chain of turns: what each turn saw and wrote, appended to the turn before.

        As AReaL joins turns: of a prompt only what follows the end of the turn before is new, so
        the chain holds what was generated even where the template writes past turns otherwise. A
        new row starts where the turn before cannot be found in the prompt.
        """
        rows: list[list[Part]] = []
        before: int | None = None
        for turn in self.turns:
            prompt = self._prompt_spans(turn)
            at = next((n for n, s in enumerate(prompt) if s.turn == before), None)
            parts = _parts(self.asked(turn), prompt, set())
            if before is None or at is None:
                rows.append(parts)
            else:
                rows[-1] += parts[at + 1 :]
            rows[-1].append(self._new(turn))
            before = turn
        return rows

    def _new(self, turn: int) -> Part:
        return Part(self.written(turn), "assistant", True)

    def _prompt_spans(self, turn: int) -> list[Span]:
        asked = self.asked(turn)
        if not self.text.startswith(asked):
            return self._cut(asked, turn, True)
        out = [s for s in self._spans if s.stop <= len(asked)]
        if asked and (not out or out[-1].stop < len(asked)):
            out.append(Span(len(asked), "unsplit"))
        return out

    def _cut(self, text: str, stop: int, prompt: bool) -> list[Span]:
        """``text``, made of the first messages, cut where who wrote it changes."""
        if self._shape is None:
            return [Span(len(text), "unsplit")]
        messages = self._messages[:stop]
        for skeleton in self._skeletons(stop, prompt):
            found = spans(text, skeleton, messages, self._shape)
            if found is not None:
                return found
        return searched(text, messages, self._shape)

    def _skeletons(self, stop: int, prompt: bool) -> Iterator[str]:
        """The messages with marks for contents: one that many conversations share, then their own.

        A template that does with marks what it would not do with contents gives one that does not
        fit, or none.
        """
        with suppress(SourceError):
            plain = self._renderer.skeleton(self._messages[:stop], prompt)
            if plain is not None:
                yield plain
        with suppress(SourceError):
            yield self._renderer(self._marked[:stop], prompt, self._field)


def _parts(text: str, cuts: Sequence[Span], trained: set[int]) -> list[Part]:
    out, at = [], 0
    for stop, role, turn in cuts:
        out.append(Part(text[at:stop], role, turn in trained))
        at = stop
    return out


def _shown(message: Message, text: str) -> bool:
    calls = [call["function"]["name"] for call in message.get("tool_calls", ())]
    return any(said and said in text for said in (message["content"].strip(), *calls))


def _with_thought(message: Message, text: str, asked: str, end: str) -> str:
    """A turn with its reasoning, as it was generated after a prompt that opens it.

    text: the turn without reasoning, as the template writes it
    """
    content = str(message["content"])
    thought, closing, answer = content.partition("</think>")
    thought = thought.removeprefix("<think>")
    if closing and not message.get("tool_calls"):
        opened = asked[asked.rindex("<think>") :].removeprefix("<think>")
        return thought.removeprefix(opened) + closing + answer + end
    thought = reasoning_of(message) or (thought if closing else "")
    return (thought.strip("\n") + "\n</think>\n\n" if thought.strip() else "") + text
