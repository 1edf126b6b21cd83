"""Tokenizers: text and chats to token ids, and ids back to readable text.

Notable:
- only the ``tokenizers`` library and jinja2 are used, and both only when needed
- texts are encoded as they are: special tokens are added by chat templates, not here
- the next chunk is encoded while the ids of the last one are copied into an array
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.sources.chat import syntax as _chat_template
from packing.sources.chat.dividers import Dividers

BUNDLED = "bundled"
CHUNK_CHARACTERS = 1_000_000

TokenIds = Sequence[int] | npt.NDArray[np.integer]


class TokenizerError(ValueError):
    """A tokenizer cannot be loaded or used; the message is one sentence with the mend.

    mend: of an error that is about one conversation: what to do with it
    """

    def __init__(self, message: str, mend: str = "choose another tokenizer") -> None:
        super().__init__(message)
        self.mend = mend


class TextError(TokenizerError):
    """A text cannot be encoded: ``problem``, and ``index``, its place among the texts given."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"text {index}: {problem}")
        self.index = index
        self.problem = problem


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A tokenizer of any origin behind one small surface.

    name:           how it was asked for: ``bundled``, a folder or a Hub id
    fingerprint:    16 hex digits over vocabulary, rules, special tokens and chat template
    chat_template:  Jinja source, or None where the tokenizer has none
    tool_template:  the one that is used where tools are given, or None
    special_tokens: text of ``bos_token``, ``eos_token``, ``pad_token``, ``unk_token`` where known
    """

    name: str
    fingerprint: str
    chat_template: str | None = field(repr=False)
    tool_template: str | None = field(repr=False)
    special_tokens: Mapping[str, str] = field(repr=False)
    _backend: Any = field(repr=False)

    @property
    def eos_token(self) -> str | None:
        """Text of the token that ends a turn, or None where it is not known."""
        return self.special_tokens.get("eos_token")

    def special_id(self, name: str) -> int | None:
        """Id of one of ``special_tokens``, or None where it is not known."""
        text = self.special_tokens.get(name)
        found: int | None = None if text is None else self._backend.token_to_id(text)
        return found

    @cached_property
    def start_ids(self) -> npt.NDArray[np.int32]:
        """Ids that the tokenizer's own ``encode`` puts before every text; empty for most."""
        (bare,) = self.encode_batch(["a"])
        whole = self._backend.encode("a").ids
        n = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare.tolist()), 0)
        return np.array(whole[:n], dtype=np.int32)

    @cached_property
    def special_texts(self) -> frozenset[str]:
        """Texts of special tokens."""
        added = self._backend.get_added_tokens_decoder().values()
        return frozenset(t.content for t in added if t.special and t.content)

    @cached_property
    def dividers(self) -> Dividers:
        """Where a text can be cut without changing its tokens."""
        added = [t.content for t in self._backend.get_added_tokens_decoder().values() if t.content]
        return Dividers(added, self.special_texts, self.encode_batch)

    @cached_property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode_batch(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        """Token ids of each text, int32 ``(tokens,)`` each (views of one array per chunk).

        Raises TextError naming the first text that is no text or holds half a surrogate pair.
        """
        from concurrent.futures import ThreadPoolExecutor

        out: list[npt.NDArray[np.int32]] = []
        with ThreadPoolExecutor(1) as worker:
            running = None
            for part in [*_chunks(texts), None]:
                upcoming = None if part is None else worker.submit(self._encode, texts, part)
                if running is not None:
                    out += _arrays(running.result())
                running = upcoming
        return out

    def _encode(self, texts: Sequence[str], part: range) -> Any:
        chunk = list(texts[part.start : part.stop])
        try:
            return self._backend.encode_batch_fast(chunk, add_special_tokens=False)
        except Exception as error:  # the library raises plain exceptions without a place
            for index, text in zip(part, chunk, strict=True):
                if problem := _problem(text):
                    raise TextError(index, problem) from None
            raise TokenizerError(f"{self.name}: the tokenizer failed ({error})") from error

    def decode(self, ids: TokenIds) -> str:
        """The text of token ids; special tokens are visible, unknown ids are named."""
        return "".join(text for _, text in self._runs(ids))

    def tokens_text(self, ids: TokenIds) -> list[str]:
        """One piece of text per id, special tokens visible; joined they are ``decode(ids)``.

        A character made of several tokens stands at its last one, the others are empty.
        """
        from tokenizers.decoders import DecodeStream

        pieces: list[str] = []
        for run, text in self._runs(ids):
            if len(run) == 1:
                pieces.append(text)
                continue
            stream = DecodeStream(skip_special_tokens=False)
            made = [stream.step(self._backend, token) or "" for token in run]
            # What the stream still holds back (half a character at the end) goes to the last one.
            made[-1] = text[sum(map(len, made[:-1])) :]
            pieces += made
        return pieces

    def _runs(self, ids: TokenIds) -> Iterator[tuple[list[int], str]]:
        """Ids cut into runs of known ones with their text; an unknown id is a run of its own."""
        run: list[int] = []
        for token in np.asarray(ids, dtype=np.int64).tolist():
            if 0 <= token < 2**32 and self._backend.id_to_token(token) is not None:
                run.append(token)
                continue
            if run:
                yield run, self._backend.decode(run, skip_special_tokens=False)
                run = []
            yield [token], f"<|unknown {token}|>"
        if run:
            yield run, self._backend.decode(run, skip_special_tokens=False)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        keep_thinking: bool | None = None,
    ) -> str:
        """A conversation as the text that the model sees.

        keep_thinking: None does what the template does, True keeps the reasoning of every turn,
        False of none. Raises TokenizerError where there is no template or it refuses.
        """
        template = self.tool_template if tools and self.tool_template else self.chat_template
        if template is None:
            raise TokenizerError(
                f"{self.name} has no chat template; choose the tokenizer of a chat model, or "
                f"'{BUNDLED}'"
            )
        variables = {
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self.special_tokens,
        }
        try:
            return _chat_template.render(template, variables, messages, keep_thinking)
        except _chat_template.TemplateRefusal as error:
            said = str(error).splitlines()[0][:200]
            mend = "repair the conversation" if error.own else "the template is at fault: repair it"
            raise TokenizerError(
                f"the chat template of {self.name} refuses the messages: {said}",
                f"{mend} or choose another tokenizer",
            ) from error


def _chunks(texts: Sequence[str]) -> Iterator[range]:
    """Ranges of texts with about ``CHUNK_CHARACTERS`` characters each."""
    start = size = 0
    for i, text in enumerate(texts):
        size += len(text) if isinstance(text, str) else 0
        if size >= CHUNK_CHARACTERS:
            yield range(start, i + 1)
            start, size = i + 1, 0
    if start < len(texts):
        yield range(start, len(texts))


def _arrays(encodings: Any) -> list[npt.NDArray[np.int32]]:
    ids = [encoding.ids for encoding in encodings]
    ends = np.cumsum([len(i) for i in ids])
    flat = np.fromiter(chain.from_iterable(ids), dtype=np.int32, count=int(ends[-1]))
    return np.split(flat, ends[:-1])


def _problem(text: Any) -> str | None:
    if not isinstance(text, str):
        return f"it is {type(text).__name__}, not text; give a string"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return (
            f"character {error.start} is half of a surrogate pair (U+{ord(text[error.start]):04X}) "
            "and cannot be written as UTF-8; repair the encoding of the file"
        )
    return None
