"""Rows whose tokens stand in the record: ids with their masks, and segments as AReaL dumps them.

Notable:
- what is padding goes, on either side and in holes; what a mask leaves out stays and is not trained
- where no attention mask says what is padding, a run of one id outside of the loss mask at an end
  of the row is taken for it, and the row says so
- segments are encoded each alone, as they were generated, and held against their recorded lengths
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.sources import fields
from packing.sources.chat.template import Part
from packing.sources.chat.tokenizer import Tokenizer
from packing.sources.chunks import Record
from packing.sources.drafts import RowParts, prompt_key, required, values_of
from packing.sources.errors import Where
from packing.sources.problems import Flag
from packing.sources.roles import Roles
from packing.sources.token_ids import integers, token_ids, unpadded

SEGMENT_ROLES = {"prompt": False, "context": False, "gen": True}
# Of TRL: 1 up to the end token, 0 for the padding after it.
PADDING_MASKS = ("completion_mask",)
Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.int64]


def id_rows(record: Record, roles: Roles, where: Where) -> list[RowParts] | None:
    """Rows of a record that holds token ids; None where it holds text.

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
            part = Part(asked, "prompt", False)
            return [RowParts([part], path, prompt_key([part]))]
    attention = [_masks(record, p, len(found), where) for p in roles.all("attention_mask")]
    loss_path = roles.first("loss_mask")
    loss = _masks(record, loss_path, len(found), where) if loss_path else [None] * len(found)
    return [
        _row(path, ids, head, [a[n] for a in attention], loss[n], where)
        for n, (path, ids, head) in enumerate(found)
    ]


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


def _row(
    path: str,
    ids: Ids,
    head: Ids | None,
    attention: list[tuple[str, Mask]],
    loss: tuple[str, Mask] | None,
    where: Where,
) -> RowParts:
    start = 0 if head is None else len(head)
    whole = ids if head is None else np.concatenate([head, ids])
    seen = None
    for name, mask in attention:
        seen = np.ones(len(whole), dtype=np.int64) if seen is None else seen
        if len(mask) == len(whole):
            seen &= (mask != 0).astype(np.int64)
        elif head is not None and len(mask) == start and "prompt" in name:
            # Some call the loss mask of the prompt so: then nothing in it is set.
            seen[:start] &= (mask != 0).astype(np.int64) if mask.any() else 1
        elif head is not None and len(mask) == len(ids):
            seen[start:] &= (mask != 0).astype(np.int64)
        else:
            raise where.error(
                f"{len(mask)} values for {len(whole)} ids", "give one value per id", name
            )
    given = loss
    if loss is None and head is not None:
        loss = ("", np.repeat(np.array([0, 1]), [start, len(ids)]))
    names = (attention[0][0] if attention else "", loss[0] if loss else "")
    if given and given[0].rsplit(".", 1)[-1] in PADDING_MASKS:
        last = np.flatnonzero(given[1])
        if len(last):  # a mask without a single 1 says that the row is not trained, not what pads
            seen = np.ones(len(whole), dtype=np.int64) if seen is None else seen
            seen[max(len(whole) - len(given[1]), 0) + int(last[-1]) + 1 :] = 0
    kept, trained = unpadded(whole, seen, loss[1] if loss else None, where, names)
    flags = 0
    if trained is None:
        return RowParts([Part(kept, "unsplit", False)], path, None)
    if given and not attention:
        low, high = _padding(kept, trained)
        flags = int(Flag.PADDING) if high - low < len(kept) else 0
        kept, trained = kept[low:high], trained[low:high]
    cuts = [0, *(np.flatnonzero(trained[1:] != trained[:-1]) + 1).tolist(), len(kept)]
    parts = [
        Part(kept[a:b], "completion" if trained[a] else "prompt", bool(trained[a]))
        for a, b in pairwise(cuts)
        if b > a
    ]
    return RowParts(parts, path, prompt_key(parts), flags)


def _padding(ids: Ids, trained: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """(start, stop) of a row without the runs of one id, two or more, outside of its mask.

    A prompt is never all padding: one that is a single id over and over stays as it is.
    """
    at = np.flatnonzero(trained)
    if not len(at):
        return 0, len(ids)
    tail = ids[at[-1] + 1 :]
    stop = int(at[-1]) + 1 if len(tail) > 1 and (tail == tail[0]).all() else len(ids)
    lead = ids[: at[0]]
    run = int(np.argmax(lead != lead[0])) if len(lead) else 0
    return (run if run > 1 else 0), stop
