"""What is odd about rows, counted: a bit per row and kind, so that a page can filter by it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntFlag

import numpy as np
import numpy.typing as npt

from packing.rows import Rows

Flags = npt.NDArray[np.uint16]
EXAMPLES = 5


class Flag(IntFlag):
    """Bits of ``Loaded.flags``."""

    EMPTY = 1
    DUPLICATE = 2
    NO_COMPLETION = 4
    EMPTY_COMPLETION = 8
    WHITESPACE = 16
    GROUP_OF_ONE = 32
    NOT_TEXT = 64
    LENGTH_DIFFERS = 128
    TURN_LOST = 256
    PADDING = 512
    MAYBE_PADDED = 1024
    STRIPPED = 2048


SENTENCES = {
    Flag.EMPTY: "rows have no tokens: AReaL drops them",
    Flag.DUPLICATE: "rows repeat an earlier row token by token: almost free in a tree",
    Flag.NO_COMPLETION: "rows have no completion: nothing in them is trained on",
    Flag.EMPTY_COMPLETION: "completions are empty",
    Flag.WHITESPACE: "completions are whitespace only",
    Flag.GROUP_OF_ONE: "rows are alone in their group: they have no sibling to share a prompt with",
    Flag.NOT_TEXT: "rows had content that is not text (images, audio); it was left out",
    Flag.LENGTH_DIFFERS: (
        "rows have another number of tokens than when they were generated: choose the tokenizer "
        "of that model"
    ),
    Flag.TURN_LOST: (
        "rows hold a turn that the chat template writes so that it cannot be told from what is "
        "around it: that turn is not trained on"
    ),
    Flag.PADDING: "rows had padding at an end that no attention mask marks; it was taken off",
    Flag.MAYBE_PADDED: (
        "rows begin or end in a run of one id that may be padding; it was kept: give an attention "
        "mask, a column pad_token_id or the tokenizer"
    ),
    Flag.STRIPPED: (
        "prompts are chats whose special tokens were left out when they were written (verl's dumps "
        "are): the engine read more tokens than these rows have"
    ),
}
OVER_CONTEXT = "rows are longer than the context of"


@dataclass(frozen=True)
class Oddity:
    """One kind of oddity: how many rows, which sentence, and the first few of them."""

    kind: str
    count: int
    sentence: str
    examples: tuple[int, ...]


def find_flags(rows: Rows, made: Flags) -> Flags:
    """uint16 ``(rows,)``: the bits ``made`` while rows were made, and those that rows show."""
    flags = made.copy()
    flags[rows.lengths == 0] |= np.uint16(Flag.EMPTY)
    flags[_duplicates(rows)] |= np.uint16(Flag.DUPLICATE)
    _, inverse, counts = np.unique(rows.group, return_inverse=True, return_counts=True)
    if len(counts) < len(rows):  # where all are alone, groups are not known rather than small
        flags[counts[inverse] == 1] |= np.uint16(Flag.GROUP_OF_ONE)
    return flags


def problems(flags: Flags) -> tuple[Oddity, ...]:
    """The kinds that occur, the most frequent first."""
    found = []
    for flag, sentence in SENTENCES.items():
        at = np.flatnonzero(flags & np.uint16(flag))
        if at.size and flag.name:
            found.append(_problem(flag.name.lower(), at, sentence))
    return tuple(sorted(found, key=lambda p: -p.count))


def over_context(rows: Rows, context_length: int) -> Oddity | None:
    """Rows longer than a model's context (tokens), or None."""
    at = np.flatnonzero(rows.lengths > context_length)
    return (
        _problem("over_context", at, f"{OVER_CONTEXT} {context_length:,} tokens")
        if at.size
        else None
    )


def _problem(kind: str, at: npt.NDArray[np.int64], sentence: str) -> Oddity:
    return Oddity(kind, int(at.size), sentence, tuple(at[:EXAMPLES].tolist()))


def _duplicates(rows: Rows) -> npt.NDArray[np.int64]:
    seen: set[bytes] = set()
    out = []
    for number, row in enumerate(rows):
        digest = hashlib.blake2b(row.data, digest_size=16).digest()
        if len(row) and digest in seen:
            out.append(number)
        seen.add(digest)
    return np.array(out, dtype=np.int64)
