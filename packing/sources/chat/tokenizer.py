"""Tokenizers: text and chats to token ids, and ids back to readable text.

Notable:
- only the ``tokenizers`` library and jinja2 are used, and both only when needed: transformers takes
  two seconds to import and brings torch; it is the way out for tokenizers without tokenizer.json
- texts are encoded as they are: special tokens are added by chat templates, not here
- the next chunk is encoded while the ids of the last one are copied into an array
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.sources.chat import syntax as _chat_template
from packing.sources.chat.dividers import Dividers

BUNDLED = "bundled"
BUNDLED_FOLDER = Path(__file__).parents[1] / "assets" / "tokenizer"
CHUNK_CHARACTERS = 1_000_000
TOKENIZER_FILE = "tokenizer.json"
TOOL_TEMPLATE_FILE = "additional_chat_templates/tool_use.jinja"
SIDE_FILES = (
    "tokenizer_config.json",
    "chat_template.jinja",
    TOOL_TEMPLATE_FILE,
    "special_tokens_map.json",
)
TEMPLATES = ("default", "tool_use")
SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")

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


def load_tokenizer(name: str) -> Tokenizer:
    """The tokenizer ``name``: ``bundled``, a local folder, or a model or dataset id of the Hub.

    Hub files come from the local cache where they are there; a private or gated one needs the
    token in ``HF_TOKEN``. Raises TokenizerError: not found, private, no connection, unreadable.
    """
    folder = BUNDLED_FOLDER if name == BUNDLED else Path(name).expanduser()
    if folder.is_dir():
        if (folder / TOKENIZER_FILE).is_file():
            return _from_files(name, {f: folder / f for f in (TOKENIZER_FILE, *SIDE_FILES)})
        return _through_transformers(name, str(folder))
    if folder.is_file():
        raise TokenizerError(f"{name} is a file; give the folder that it is in")
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise TokenizerError(f"{name}: there is no such folder; check the path")
    from packing.sources.files import hub_client as _hub

    try:
        files = _hub.download(name, TOKENIZER_FILE, SIDE_FILES)
    except _hub.HubError as error:
        raise TokenizerError(str(error)) from error
    return _through_transformers(name, name) if files is None else _from_files(name, files)


def _from_files(name: str, files: Mapping[str, Path]) -> Tokenizer:
    import tokenizers

    raw = files[TOKENIZER_FILE].read_bytes()
    try:
        backend = tokenizers.Tokenizer.from_buffer(raw)
    except Exception as error:  # the library raises plain exceptions
        raise TokenizerError(
            f"{name}: {TOKENIZER_FILE} cannot be read ({error}); download it again"
        ) from error
    config = _side_file(name, files, "special_tokens_map.json")
    config |= _side_file(name, files, "tokenizer_config.json")
    template = files.get("chat_template.jinja")
    templates = _templates(config.get("chat_template"))
    if template is not None and template.is_file():
        tool_file = files.get(TOOL_TEMPLATE_FILE)
        has_tools = tool_file is not None and tool_file.is_file()
        templates = (
            template.read_text(encoding="utf-8"),
            tool_file.read_text(encoding="utf-8") if tool_file and has_tools else None,
        )
    special = {key: text for key in SPECIAL_NAMES if (text := _token_text(config.get(key)))}
    return _tokenizer(name, raw, templates, special, backend)


def _tokenizer(
    name: str,
    raw: bytes,
    templates: tuple[str | None, str | None],
    special: Mapping[str, str],
    backend: Any,
) -> Tokenizer:
    # Some tokenizer.json files cut or pad, which would change rows silently.
    backend.no_padding()
    backend.no_truncation()
    digest = hashlib.blake2b(raw, digest_size=8)
    digest.update(json.dumps([templates, sorted(special.items())]).encode())
    return Tokenizer(name, digest.hexdigest(), *templates, special, backend)


def _side_file(name: str, files: Mapping[str, Path], file: str) -> dict[str, Any]:
    path = files.get(file)
    if path is None or not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{name}: {file} is not JSON ({error}); download it again") from error
    return content if isinstance(content, dict) else {}


def _templates(value: Any) -> tuple[str | None, str | None]:
    """(default, the one for tools) of a template, or of several named ones."""
    if isinstance(value, list):
        value = {entry.get("name"): entry.get("template") for entry in value}
    named = value if isinstance(value, Mapping) else {"default": value}
    default, tools = (t if isinstance(t := named.get(n), str) else None for n in TEMPLATES)
    return default, tools


def _token_text(value: Any) -> str | None:
    """Special tokens are written as text or as an object with ``content``."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _through_transformers(name: str, path: str) -> Tokenizer:
    """Tokenizers without tokenizer.json, made fast by ``AutoTokenizer``; no remote code is run."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, use_fast=True, trust_remote_code=False)
    except Exception as error:  # any of a dozen classes; only the first line is for people
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TokenizerError(
            f"{name} holds no tokenizer that can be loaded ({reason}); give a folder or Hub id "
            f"with a {TOKENIZER_FILE}"
        ) from error
    if not tokenizer.is_fast:
        raise TokenizerError(
            f"{name} has only a slow tokenizer; save it with a {TOKENIZER_FILE} first"
        )
    backend = tokenizer.backend_tokenizer
    special = {key: text for key in SPECIAL_NAMES if (text := getattr(tokenizer, key, None))}
    templates = _templates(tokenizer.chat_template)
    return _tokenizer(name, backend.to_str().encode(), templates, special, backend)


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
