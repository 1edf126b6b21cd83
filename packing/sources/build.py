"""Drafts to Rows: texts go to the tokenizer in batches, only token ids stay.

Notable:
- a text that several rows share (a prompt, a past turn) is encoded once per batch
- parts are encoded one by one only where a special token stands between them that the tokenizer
  never merges across; at any other boundary they are one text, in every row
- boundaries of a completion are always kept: an engine appends its tokens to the prompt's
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.rows import Rows
from packing.sources.chat.dividers import Dividers
from packing.sources.chat.template import Part
from packing.sources.chat.tokenizer import Tokenizer
from packing.sources.drafts import Draft
from packing.sources.errors import SourceError, Where
from packing.sources.files.columnar import MAX_TOKENS
from packing.sources.problems import Flag


class Origin(IntEnum):
    """Where a row's tokens come from."""

    RETOKENISED = 0
    CHECKED = 1
    GENERATED = 2


ORIGINS = {
    Origin.GENERATED: "as generated",
    Origin.CHECKED: "re-tokenised, checked against the recorded length",
    Origin.RETOKENISED: "re-tokenised",
}


# What is known of each row, beside its tokens and its group.
PER_ROW = ("prompt_lengths", "rewards", "records", "flags", "origins")
_ROW = np.dtype(
    {
        "names": ("length", "simulate", "group", *PER_ROW),
        "formats": ("i8", "f8", "i4", "i8", "f8", "i8", "u2", "u1"),
    }
)


@dataclass(frozen=True, eq=False)
class Built:
    """Rows and what is known of each.

    prompt_lengths: int64 ``(rows,)``, tokens before the first that is trained on; None where no
                    loss mask is known
    rewards:        float64 ``(rows,)``, NaN where there is none; None where none has one
    records:        int64 ``(rows,)``, number of the record each row comes from
    flags:          uint16 ``(rows,)``, bits of ``problems.Flag``: filter rows by a problem
    origins:        uint8 ``(rows,)``, of ``Origin``: where each row's tokens come from
    role_tokens:    tokens by who wrote them (system, user, assistant, tool, prompt, completion)
    """

    rows: Rows
    prompt_lengths: npt.NDArray[np.int64] | None
    rewards: npt.NDArray[np.float64] | None
    records: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint16]
    origins: npt.NDArray[np.uint8]
    role_tokens: Mapping[str, int]

    def only(self, kept: npt.NDArray[np.int64]) -> Built:
        """These rows; who wrote their tokens is no longer known."""
        taken: dict[str, Any] = {
            name: None if (of := getattr(self, name)) is None else of[kept] for name in PER_ROW
        }
        return replace(self, rows=self.rows.take(kept), role_tokens={}, **taken)


class _Grown:
    """One array that grows in place: hundreds of millions of tokens are never held twice."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._array: npt.NDArray[Any] = np.empty(1 << 12, dtype=dtype)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def add(self, piece: npt.NDArray[Any]) -> None:
        end = self._used + len(piece)
        if end > len(self._array):
            # An eighth more: large blocks are moved by their pages, not copied.
            self._array.resize(max(end, len(self._array) * 9 // 8), refcheck=False)
        self._array[self._used : end] = piece
        self._used = end

    def whole(self) -> npt.NDArray[Any]:
        """What was added; nothing can be added after it."""
        self._array.resize(self._used, refcheck=False)
        return self._array


class RowBuilder:
    """Collects drafts; ``finish`` gives the rows. Group numbers follow first appearance."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._tokens, self._trained = _Grown(np.int32), _Grown(np.uint8)
        self._rows: list[tuple[float, ...]] = []  # as _ROW has them
        self._groups: dict[Hashable, int] = {}
        self._role_tokens: Counter[str] = Counter()
        self._any_trained = False
        self.n_tokens = 0
        self.compared = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, drafts: Sequence[Draft]) -> None:
        """Tokenise a batch. Raises SourceError for a text the tokenizer refuses."""
        dividers = self._tokenizer.dividers if self._tokenizer else None
        split = [joined(d.parts, dividers) if dividers else d.parts for d in drafts]
        answers = [d.length for d in drafts if isinstance(d.length, Part)]
        encoded = self._encode(
            [(p.content, d.where) for d, parts in zip(drafts, split, strict=True) for p in parts]
            + [(a.content, d.where) for d in drafts for a in (d.length,) if isinstance(a, Part)]
        )
        pieces: list[npt.NDArray[np.int32]] = []
        spans: list[tuple[int, bool]] = []
        at, answer_at = 0, len(encoded) - len(answers)
        for draft, parts in zip(drafts, split, strict=True):
            length, prompt = 0, -1
            for part, ids in zip(parts, encoded[at : at + len(parts)], strict=True):
                if part.trained and prompt < 0:
                    prompt = length
                length += len(ids)
                spans.append((len(ids), part.trained))
                pieces.append(ids)
                self._role_tokens[part.role] += len(ids)
                self._any_trained |= part.trained
            at += len(parts)
            answer_tokens = math.nan
            if isinstance(draft.length, Part):
                answer_tokens = len(encoded[answer_at])
                answer_at += 1
            elif draft.length is not None:
                answer_tokens = draft.length
            self._append(draft, length, prompt if prompt >= 0 else length, answer_tokens)
        if pieces:
            self._tokens.add(np.concatenate(pieces))
            trained = np.array([t for _, t in spans], dtype=np.uint8)
            self._trained.add(np.repeat(trained, [n for n, _ in spans]))
            self.n_tokens = len(self._tokens)
        if self.n_tokens > MAX_TOKENS:
            raise SourceError(
                f"{drafts[-1].where}: more than {MAX_TOKENS:,} tokens; read fewer rows."
            )

    def _append(self, draft: Draft, length: int, prompt: int, simulate: float) -> None:
        flags, origin = draft.flags, Origin.RETOKENISED
        text = any(isinstance(p.content, str) for p in draft.parts)
        if not (text or draft.retokenised):
            origin = Origin.GENERATED
        if draft.seqlen is not None:
            self.compared += 1
            if draft.seqlen != length:
                flags |= Flag.LENGTH_DIFFERS
            elif origin is Origin.RETOKENISED and not flags & Flag.LENGTH_DIFFERS:
                origin = Origin.CHECKED
        group = self._groups.setdefault(draft.group, len(self._groups))
        known = (prompt, draft.reward, draft.record, flags, origin)
        self._rows.append((length, simulate, group, *known))

    def _encode(
        self, contents: Sequence[tuple[str | npt.NDArray[np.int32], Where]]
    ) -> list[npt.NDArray[np.int32]]:
        number: dict[str, int] = {}
        first: list[Where] = []
        for content, where in contents:
            if isinstance(content, str) and content not in number:
                number[content] = len(number)
                first.append(where)
        found = self.encode_texts(list(number), first)
        return [found[number[c]] if isinstance(c, str) else c for c, _ in contents]

    def encode_texts(
        self, texts: Sequence[str], places: Sequence[Where]
    ) -> list[npt.NDArray[np.int32]]:
        """Token ids of each text; ``places`` for the message if one cannot be encoded."""
        if not texts:
            return []
        if self._tokenizer is None:
            raise places[0].error("holds text where token ids were expected", "choose a tokenizer")
        try:
            return self._tokenizer.encode_batch(texts)
        except ValueError as error:
            index = getattr(error, "index", 0)
            problem = getattr(error, "problem", str(error))
            raise places[index].error(
                f"the text cannot be tokenised ({problem})", "repair it or take the row out"
            ) from None

    def finish(self, where: str) -> tuple[Built, npt.NDArray[np.float64]]:
        """(rows, tokens to simulate for each: float64 ``(rows,)``, NaN where none are given).

        Raises SourceError where nothing became a row.
        """
        if not self._rows:
            raise SourceError(f"{where}: there are no rows; give a file with rows.")
        table = np.array(self._rows, dtype=_ROW)
        mask = self._trained.whole() if self._any_trained else None
        offsets = np.zeros(len(table) + 1, dtype=np.int64)
        np.cumsum(table["length"], out=offsets[1:])
        decoder = self._tokenizer.decode if self._tokenizer else None
        rows = Rows(self._tokens.whole(), offsets, table["group"].copy(), mask, decoder)
        known: dict[str, Any] = {name: table[name].copy() for name in PER_ROW}
        if not self._any_trained and not table["flags"].any():
            known["prompt_lengths"] = None
        if np.isnan(table["rewards"]).all():
            known["rewards"] = None
        return Built(rows, **known, role_tokens=dict(self._role_tokens)), table["simulate"].copy()


def joined(parts: Sequence[Part], dividers: Dividers) -> list[Part]:
    """Neighbouring texts that are not trained on as one part, but where they are kept apart."""
    out: list[Part] = []
    for part in parts:
        last = out[-1] if out else None
        if (
            last is not None
            and isinstance(last.content, str)
            and isinstance(part.content, str)
            and not last.trained
            and not part.trained
            and not dividers.between(last.content, part.content)
        ):
            role = part.role if part.role == last.role else "unsplit"
            out[-1] = Part(last.content + part.content, role, False)
        else:
            out.append(part)
    return out
