"""Records to drafts of rows: by role, one row a conversation, a turn, or a sampled completion.

Notable:
- without a group column, rows of one prompt are a group (of one step, where steps are logged)
- ``prompt`` and ``completion`` are taken as they are, ``question`` becomes a user's message; before
  a prompt of plain text stands what the tokenizer's own ``encode`` puts there, as AReaL and vLLM's
  completions have it
- a completion that is text goes after the generation prompt as it is: it is never rendered; turns
  of the assistant inside ``prompt`` are context
- what ends a turn is put after a completion that lacks it, except in AReaL's dumps, which hold
  the generated text itself
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from packing.sources import fields
from packing.sources.chat.messages import Chat, normalised, normalised_tools
from packing.sources.chat.syntax import set_clock
from packing.sources.chat.template import Conversation, Part, Renderer
from packing.sources.chat.tokenizer import Tokenizer
from packing.sources.chunks import Record
from packing.sources.drafts import (
    Draft,
    PrefixCheck,
    RowParts,
    completion_flags,
    number_of,
    prompt_key,
    required,
    reward_of,
    rewards_of,
    values_of,
)
from packing.sources.errors import SourceError, Where
from packing.sources.problems import Flag
from packing.sources.records.given import given_ids, segment_rows
from packing.sources.records.groups import Groups
from packing.sources.records.padding import Padding
from packing.sources.roles import Roles
from packing.sources.sandbox import record_limit
from packing.sources.spec import SourceSpec
from packing.sources.token_ids import token_ids


class Expander:
    """Turns records into drafts of rows.

    tokenizer: None where all rows are token ids
    padding:   of ids that no attention mask speaks of; None where nothing is
    raw:       texts are what an engine generated: no end token is added
    """

    def __init__(
        self,
        spec: SourceSpec,
        roles: Roles,
        tokenizer: Tokenizer | None,
        padding: Padding | None,
        raw: bool = False,
    ) -> None:
        self._spec, self._roles, self._tokenizer, self._raw = spec, roles, tokenizer, raw
        self._padding = padding
        self.check = PrefixCheck()
        self.groups = Groups(roles)
        self.without_turns = 0
        self.begun = 0
        self._simulated: set[Any] = set()
        set_clock()

    def drafts(self, record: Record, where: Where, number: int) -> list[Draft]:
        """Rows of a record, ``number`` of all. Raises SourceError naming it and the field."""
        with record_limit(where):
            return self._drafts(record, where, number)

    def _drafts(self, record: Record, where: Where, number: int) -> list[Draft]:
        segments = self._roles.first("segments")
        given = None if segments else given_ids(record, self._roles, where)
        if segments:
            rows = segment_rows(record, segments, where, self._tokenizer)
        elif given is not None:
            rows = [g.row(self._padding) for g in given]
        elif self._roles.first("messages"):
            rows = self._conversations(record, where)
        elif self._roles.asked:
            rows = self._prompted(record, where)
        else:
            rows = self._alone(record, where)
        rewards = rewards_of(record, self._roles)
        seqlen = number_of(record, self._roles, "seqlen")
        simulate = self._spec.simulate is not None
        drafts = []
        for n, row in enumerate(rows):
            group = self.groups.of(record, where, row.key, number)
            if simulate:
                if group in self._simulated:
                    continue
                self._simulated.add(group)
                drafts.append(self._prompt_only(row, group, number, where, record))
                continue
            flags = row.flags | completion_flags(row.parts, self._tokenizer)
            drafts.append(
                Draft(
                    tuple(row.parts),
                    group,
                    number,
                    where,
                    reward_of(rewards, row.path, n, len(rows)),
                    flags,
                    None if seqlen is None else int(seqlen),
                    retokenised=row.retokenised,
                )
            )
        return drafts

    # -- the shapes of records ---------------------------------------------------------------

    def _conversations(self, record: Record, where: Where) -> list[RowParts]:
        out: list[RowParts] = []
        render = self._renderer(record, where)
        for path, value in values_of(record, self._roles, "messages", where):
            value = fields.unpacked(value)
            several = isinstance(value, list) and bool(value) and isinstance(value[0], list)
            for n, messages in enumerate(value if several else [value]):
                at = f"{path}.{n}" if several else path
                out += self._talk(normalised(messages, where, at), render, where, at)
        return out

    def _talk(self, chat: Chat, render: Renderer, where: Where, path: str) -> list[RowParts]:
        talk = Conversation(render, chat.messages, path, chat.untrained)
        self.check.see(talk, where)
        key = prompt_key([Part(talk.key, "", False)])
        flags = Flag.NOT_TEXT if chat.left_out else 0
        if self._spec.expand == "conversation" or self._spec.simulate is not None:
            parts = talk.whole()
            return [RowParts(parts, path, key, flags | (Flag.TURN_LOST if talk.lost else 0))]
        rows = talk.individual() if self._spec.style == "individual" else talk.concat()
        self.without_turns += not rows
        return [RowParts(parts, path, key, flags) for parts in rows]

    def _prompted(self, record: Record, where: Where) -> list[RowParts]:
        path = self._roles.asked or ""
        value = required(record, path, where)
        if self._roles.first("prompt") is None and isinstance(value, str):
            value = [{"role": "user", "content": value}]
        if not fields.is_messages(value):
            head = self._part(value, where, path, trained=False)
            asked = [*self._begin(head), head]
            key, flags = prompt_key(asked), self._stripped(head.content, where)
            if not self._roles.first("completion"):
                return [RowParts(asked, path, key, flags)]
            return [
                RowParts([*asked, *self._answer(answer, where, at, head.content)], at, key, flags)
                for at, answer in self._samples(record, where)
            ]
        chat = normalised(value, where, path)
        render = self._renderer(record, where)
        head = Part(render.head(chat.messages, path), "prompt", False)
        key = prompt_key([head])
        flags = Flag.NOT_TEXT if chat.left_out else 0
        if not self._roles.first("completion"):
            return [RowParts([head], path, key, flags)]
        out: list[RowParts] = []
        for at, answer in self._samples(record, where):
            if not fields.is_messages(answer):
                parts = [head, *self._answer(answer, where, at, None)]
                out.append(RowParts(parts, at, key, flags))
                continue
            made = normalised(answer, where, at)
            before = len(chat.messages)
            context = {i for i, m in enumerate(chat.messages) if m["role"] == "assistant"}
            whole = Chat(
                chat.messages + made.messages,
                chat.left_out or made.left_out,
                frozenset(context | {before + i for i in made.untrained}),
            )
            for row in self._talk(whole, render, where, at):
                out.append(RowParts(row.parts, at, key, row.flags))
        return out

    def _alone(self, record: Record, where: Where) -> list[RowParts]:
        """Completions without a prompt, or texts of which nobody knows what was generated."""
        if self._roles.first("completion"):
            return [
                RowParts(self._answer(answer, where, at, ""), at, None)
                for at, answer in self._samples(record, where)
            ]
        texts = [
            (path, self._part(value, where, path, False))
            for path, value in values_of(record, self._roles, "text", where)
        ]
        return [RowParts([*self._begin(text), text], path, None) for path, text in texts]

    def _samples(self, record: Record, where: Where) -> list[tuple[str, Any]]:
        """(path, completion) of every sample; a list of completions counts as several."""
        out = []
        for path, value in values_of(record, self._roles, "completion", where):
            several = isinstance(value, list) and bool(value) and not fields.is_messages(value)
            if several and not isinstance(value[0], int | float):
                out += [(f"{path}.{n}", v) for n, v in enumerate(value)]
            else:
                out.append((path, value))
        return out

    # -- pieces ------------------------------------------------------------------------------

    def _part(self, value: Any, where: Where, path: str, trained: bool) -> Part:
        role = "completion" if trained else "prompt"
        if isinstance(value, list | np.ndarray):
            return Part(token_ids(value, where, path), role, trained)
        if not isinstance(value, str):
            raise where.unlike(
                value,
                "text or token ids",
                "repair the row or give the role to another column",
                path,
            )
        eos = self._text_tokenizer(where).eos_token
        plain_text = self._roles.first("text") is not None
        ends = plain_text and not self._raw and self._spec.simulate is None
        if eos and ends and value.strip() and not value.endswith(eos):
            value += eos
        return Part(value, "unsplit" if plain_text else role, trained)

    def _begin(self, text: Part) -> list[Part]:
        """What an engine puts before a prompt of plain text, where the text does not have it."""
        if not isinstance(text.content, str) or self._raw or self._tokenizer is None:
            return []
        start = self._tokenizer.start_ids
        if not len(start) or text.content.startswith(self._tokenizer.decode(start)):
            return []
        self.begun += 1
        return [Part(start, text.role, False)]

    def _stripped(self, prompt: str | npt.NDArray[np.int32], where: Where) -> int:
        """The flag of a prompt that ends in a turn's header but for its special tokens."""
        shape = self._renderer_of(None, where).shape() if isinstance(prompt, str) else None
        if shape is None or shape.special is None or shape.special.search(str(prompt)):
            return 0
        bare = (shape.special.sub("", h) for h in shape.headers)
        return Flag.STRIPPED if any(b.strip() and str(prompt).endswith(b) for b in bare) else 0

    def _answer(
        self, value: Any, where: Where, path: str, prompt: str | npt.NDArray[np.int32] | None
    ) -> list[Part]:
        """A completion as it was generated, with what ends it; space after that is not trained on.

        prompt: text it follows, or None where it follows a generation prompt
        """
        if not isinstance(value, str) or isinstance(prompt, np.ndarray):
            return [self._part(value, where, path, True)]
        tokenizer = self._text_tokenizer(where)
        shape = self._renderer_of(None, where).shape()
        eos = tokenizer.eos_token or ""
        # An engine also stops at the token that pads (Qwen's <|endoftext|>).
        stops = [t for t in (eos, tokenizer.special_tokens.get("pad_token")) if t]
        ends = [*(shape.ends if shape else ()), *stops]
        # Text may be a prompt that a template wrote: its turns end as the template ends them.
        rendered = prompt is None or (shape and any(h in prompt for h in shape.headers))
        end = (shape.end or "") if shape and rendered else eos
        ended = value.rstrip()
        if ended and not self._raw and ended.endswith(tuple(ends)):
            rest = value[len(ended) :]
            after = [Part(rest, "completion", False)] if rest else []
            return [Part(ended, "completion", True), *after]
        return [Part(value if self._raw or not ended else value + end, "completion", True)]

    def _text_tokenizer(self, where: Where) -> Tokenizer:
        if self._tokenizer is None:
            raise where.error("holds text where token ids were expected", "choose a tokenizer")
        return self._tokenizer

    def _renderer(self, record: Record, where: Where) -> Renderer:
        return self._renderer_of(self._tools(record, where), where)

    def _renderer_of(self, tools: list[Any] | None, where: Where) -> Renderer:
        return Renderer(self._text_tokenizer(where), tools, self._spec.keep_thinking, where)

    def _tools(self, record: Record, where: Where) -> list[Any] | None:
        path = self._roles.first("tools")
        value = fields.unpacked(fields.first(record, path)) if path else None
        if value is None or value is fields.MISSING or value == "" or value == []:
            return None
        if not isinstance(value, list) or not all(isinstance(t, dict) for t in value):
            raise where.unlike(
                value,
                "a list of tools",
                "list each tool as an object",
                path,
            )
        return normalised_tools(value, where)

    def _prompt_only(
        self, row: RowParts, group: Any, number: int, where: Where, record: Record
    ) -> Draft:
        parts = list(row.parts)
        cut = next((i for i, p in enumerate(parts) if p.trained), len(parts))
        length: float | Part | None = None
        simulate = self._spec.simulate
        if simulate is not None and simulate.lengths == "column":
            path = self._roles.first("length")
            if path is None:
                raise SourceError(
                    "simulate: no column holds lengths; give one the role 'length', or choose "
                    "lognormal."
                )
            length = number_of(record, self._roles, "length")
            if length is None or length < 0:
                raise where.error("is not a length in tokens", "give a number of 0 or more", path)
        elif simulate is not None and simulate.lengths == "answer":
            if cut == len(parts):
                raise where.error(
                    "has no answer to take a length from", "choose lognormal lengths instead"
                )
            length = parts[cut]
        return Draft(tuple(parts[:cut]), group, number, where, length=length)
