"""Rows whose tokens stand in the record: ids with their masks, and segments as AReaL dumps them.

Notable:
- what an attention mask calls padding goes, on either side and in holes; what a loss mask leaves
  out stays and is not trained; ``padding`` has what happens where no attention mask speaks
- segments are encoded each alone, as they were generated, and held against their recorded lengths
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packing.sources import fields
from packing.sources.chat.template import Part
from packing.sources.chat.tokenizer import Tokenizer
from packing.sources.chunks import Record
from packing.sources.drafts import RowParts, prompt_key, required, values_of
from packing.sources.errors import SourceError, Where
from packing.sources.problems import Flag
from packing.sources.records.padding import FEWEST, End, Ends, Padding
from packing.sources.roles import Roles
from packing.sources.token_ids import IGNORED_LABEL, integers, token_ids

SEGMENT_ROLES = {"prompt": False, "context": False, "gen": True}
# Of TRL: 1 up to the end token, 0 for the padding after it.
PADDING_MASKS = ("completion_mask",)
PAD_COLUMNS = ("pad_token_id", "pad_id")
EOS_COLUMNS = ("eos_token_id", "eos_id")
Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.int64]


def given_ids(record: Record, roles: Roles, where: Where) -> list[Given] | None:
    """The rows of a record that holds token ids; None where it holds text.

    Raises SourceError naming the field of a wrong id, or of a mask of another length.
    """
    found: list[tuple[str, Ids, Ids | None]]
    if roles.first("input_ids"):
        found = [
            (at, token_ids(value, where, at), None)
            for at, value in values_of(record, roles, "input_ids", where)
        ]
    else:
        path = roles.first("prompt")
        prompt = fields.first(record, path) if path else None
        if path is None or not _holds_ids(prompt):
            return None
        asked = token_ids(prompt, where, path)
        found = [(at, token_ids(v, where, at), asked) for at, v in _samples(record, roles, where)]
        if not roles.first("completion"):
            nothing = np.zeros(len(asked), dtype=bool)
            return [Given(path, asked, len(asked), (False, False), nothing, False)]
    attention = [_masks(record, p, len(found), where) for p in roles.all("attention_mask")]
    loss_path = roles.first("loss_mask")
    loss = _masks(record, loss_path, len(found), where) if loss_path else [None] * len(found)
    return [
        _given(path, ids, head, [a[n] for a in attention], loss[n], where)
        for n, (path, ids, head) in enumerate(found)
    ]


def padding_of(
    head: Sequence[Record], roles: Roles, where: Where, tokenizer: Tokenizer | None
) -> Padding:
    """What the first records say of padding; a record that is refused says nothing."""
    rows: list[Ends] = []
    for record in head if len(head) >= FEWEST else ():  # fewer show nothing
        with suppress(SourceError):
            rows += [g.ends() for g in given_ids(record, roles, where) or ()]
    pad, end = (_named(head, columns) for columns in (PAD_COLUMNS, EOS_COLUMNS))
    if tokenizer is not None:
        end = tokenizer.special_id("eos_token") if end is None else end
        known = tokenizer.special_id("pad_token")
        pad = known if pad is None and known != end else pad
    return Padding.of(rows, pad, end)


def _named(head: Sequence[Record], columns: Sequence[str]) -> int | None:
    """The id that a column of its own names."""
    found = (record.get(c) for record in head for c in columns)
    return next((v for v in found if type(v) is int), None)


def segment_rows(
    record: Record, path: str, where: Where, tokenizer: Tokenizer | None
) -> list[RowParts]:
    """The one row of a record's segments; flagged where one has not its recorded length."""
    value = fields.unpacked(required(record, path, where))
    if tokenizer is None or not isinstance(value, list) or not value:
        raise where.unlike(value, "a list of segments", "dump the rollouts again", path)
    texts: list[str] = []
    for n, segment in enumerate(value):
        role = segment.get("role") if isinstance(segment, dict) else None
        text = segment.get("text") if isinstance(segment, dict) else None
        if role not in SEGMENT_ROLES or not isinstance(text, str):
            raise where.error(
                "is no segment with a role (prompt, gen or context) and a text",
                "dump the rollouts again",
                f"{path}.{n}",
            )
        texts.append(text)
    try:
        encoded = tokenizer.encode_batch(texts)
    except ValueError as error:
        at = f"{path}.{getattr(error, 'index', 0)}"
        what = f"the text cannot be tokenised ({getattr(error, 'problem', error)})"
        raise where.error(what, "repair it or take the row out", at) from None
    equal = all(s.get("len") in (None, len(i)) for s, i in zip(value, encoded, strict=True))
    parts = [
        Part(ids, "assistant" if SEGMENT_ROLES[s["role"]] else s["role"], SEGMENT_ROLES[s["role"]])
        for s, ids in zip(value, encoded, strict=True)
    ]
    flags = 0 if equal else int(Flag.LENGTH_DIFFERS)
    return [RowParts(parts, path, prompt_key(parts), flags, retokenised=True)]


def _holds_ids(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (
        isinstance(value, list) and (not value or isinstance(value[0], int | float))
    )


def _samples(record: Record, roles: Roles, where: Where) -> list[tuple[str, Any]]:
    """(path, ids) of every sample; a list of lists counts as several."""
    out = []
    for path, value in values_of(record, roles, "completion", where):
        if isinstance(value, list) and value and isinstance(value[0], list | np.ndarray):
            out += [(f"{path}.{n}", v) for n, v in enumerate(value)]
        else:
            out.append((path, value))
    return out


def _masks(record: Record, path: str, rows: int, where: Where) -> list[tuple[str, Mask]]:
    """The mask of each row: one of each, or one for all."""
    found = [(p, v) for p, v in fields.find(record, path) if v is not None]
    if not found:
        required(record, path, where)
    if len(found) == 1:
        at, value = found[0]
        if isinstance(value, list) and value and isinstance(value[0], list | np.ndarray):
            found = [(f"{at}.{n}", v) for n, v in enumerate(value)]
    if len(found) == 1:
        found = found * rows
    if len(found) != rows:
        raise where.error(f"{len(found)} masks for {rows} rows", "give one mask per row", path)
    return [(at, integers(value, where, at, mask=True)) for at, value in found]


class Given(NamedTuple):
    """Ids of a row as they stand in its record.

    ids:     int32 ``(n,)``, without what an attention mask says is padding
    start:   how many of them are the prompt's; None where prompt and completion are not apart
    spoken:  whether a mask says of the first id, and of the last, that it is no padding
    trained: bool ``(n,)``, or None where nothing says what is trained on
    masked:  it is a mask that says so
    """

    path: str
    ids: Ids
    start: int | None
    spoken: tuple[bool, bool]
    trained: npt.NDArray[np.bool_] | None
    masked: bool

    def ends(self) -> Ends:
        """What may be padding that no mask speaks of."""
        n, at = len(self.ids), self.start
        first, last = (n, n) if at is None else (at, n - at)
        outside = (first, last)
        if self.masked and self.trained is not None and self.trained.any():
            where = np.flatnonzero(self.trained)
            first, last = n, n
            outside = (int(where[0]), n - 1 - int(where[-1]))
        before = End(self.ids[:first], outside[0], self.masked)
        after = End(self.ids[::-1][:last], outside[1], self.masked)
        return None if self.spoken[0] else before, None if self.spoken[1] else after

    def row(self, padding: Padding | None) -> RowParts:
        """The row without padding; None where nothing is."""
        low, taken, flags = padding.cut(self.ends()) if padding else (0, 0, 0)
        high = max(low, len(self.ids) - taken)
        kept = self.ids[low:high]
        if self.trained is None:
            return RowParts([Part(kept, "unsplit", False)], self.path, None, flags)
        trained = self.trained[low:high]
        cuts = [0, *(np.flatnonzero(trained[1:] != trained[:-1]) + 1).tolist(), len(kept)]
        parts = [
            Part(kept[a:b], "completion" if trained[a] else "prompt", bool(trained[a]))
            for a, b in pairwise(cuts)
            if b > a
        ]
        return RowParts(parts, self.path, prompt_key(parts), flags)


def _given(
    path: str,
    ids: Ids,
    head: Ids | None,
    attention: list[tuple[str, Mask]],
    loss: tuple[str, Mask] | None,
    where: Where,
) -> Given:
    start = 0 if head is None else len(head)
    whole = ids if head is None else np.concatenate([head, ids])
    real, spoken = np.ones(len(whole), dtype=bool), [False, False]
    for name, mask in attention:
        span = slice(0, len(whole))
        if head is not None and len(mask) != len(whole):
            if len(mask) == start and "prompt" in name:
                span = slice(0, start)
                mask = mask if mask.any() else np.ones_like(mask)  # some name a loss mask so
            else:
                span = slice(start, len(whole))
        if len(mask) != len(whole[span]):
            raise _unequal(mask, whole, where, name)
        real[span] &= mask != 0
        spoken[0] |= span.start == 0
        spoken[1] |= span.stop == len(whole)
    trained = None
    if loss is not None:
        name, mask = loss
        if len(mask) > len(whole):
            raise _unequal(mask, whole, where, name)
        member = name.rsplit(".", 1)[-1]
        labels = member == "labels" or bool((mask == IGNORED_LABEL).any())
        trained = np.zeros(len(whole), dtype=bool)
        # One value per id, or one per id of the completion at the end (verl's response mask).
        trained[len(whole) - len(mask) :] = mask != IGNORED_LABEL if labels else mask != 0
        # A mask without a single 1 says that the row is not trained, not what pads.
        if member in PADDING_MASKS and trained.any():
            real[int(np.flatnonzero(trained)[-1]) + 1 :] = False
            spoken[1] = True
    elif head is not None:
        trained = np.arange(len(whole)) >= start
    return Given(
        path,
        whole[real],
        None if head is None else int(np.count_nonzero(real[:start])),
        (spoken[0], spoken[1]),
        None if trained is None else trained[real],
        loss is not None,
    )


def _unequal(mask: Mask, ids: Ids, where: Where, name: str) -> SourceError:
    return where.error(f"{len(mask)} values for {len(ids)} ids", "give one value per id", name)
