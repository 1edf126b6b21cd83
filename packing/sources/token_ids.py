"""Token ids as they stand in records: found, checked, and the masks beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.rows import MAX_TOKEN_ID
from packing.sources import fields
from packing.sources.columns import named
from packing.sources.errors import Where, shown
from packing.sources.role_names import (
    ATTENTION,
    COMPLETION_IDS,
    INPUT_IDS,
    LOSS_MASK,
    PROMPT_IDS,
    SAMPLE_IDS,
    SAMPLED,
)

IGNORED_LABEL = -100


def token_ids(value: Any, where: Where, field: str) -> npt.NDArray[np.int32]:
    """int32 ``(n,)``. Raises SourceError naming the first element that is not an id."""
    array = integers(value, where, field)
    bad = np.flatnonzero((array < 0) | (array > MAX_TOKEN_ID))
    if bad.size:
        at = int(bad[0])
        raise where.error(
            f"{int(array[at])} at position {at} is not a token id (0 … {MAX_TOKEN_ID})",
            "mask padding with attention_mask instead of negative ids",
            field,
        )
    return array.astype(np.int32)


def integers(value: Any, where: Where, field: str, mask: bool = False) -> npt.NDArray[np.int64]:
    """int64 ``(n,)`` of a list of whole numbers; floats, NaN, null, text and nesting are named.

    mask: true and false are 1 and 0
    """
    value = fields.unpacked(value)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu" + "b" * mask:
        return value.astype(np.int64)
    if not isinstance(value, list | np.ndarray):
        raise where.unlike(
            value,
            "a list of integers",
            "give each row its list of integers",
            field,
        )
    items = value if isinstance(value, list) else value.tolist()
    kinds = set(map(type, items))
    if mask and kinds <= {int, bool}:
        return np.array(items, dtype=np.int64)
    if kinds == {int}:
        try:
            return np.array(items, dtype=np.int64)
        except OverflowError:
            pass  # named below
    for at, item in enumerate(items):
        if type(item) is int and abs(item) < 2**63:
            continue
        if isinstance(item, list):
            raise where.error(
                f"holds a list at position {at}", "flatten it: one row a record", field
            )
        mend = "write whole numbers without a decimal point"
        if isinstance(item, float) and item.is_integer():
            mend = f"write {int(item)}: ids saved as floats come from a column with gaps"
        raise where.error(f"position {at} is {shown(item, 30)}, not an integer", mend, field)
    return np.array(items, dtype=np.int64)


def recognised_ids(sample: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Roles of a record that holds token ids; empty where it holds none."""
    # A list under the standard name is taken as it is, so that a bad id is named, not the column.
    ids = named(sample, INPUT_IDS[:1], _listed) or named(sample, INPUT_IDS, fields.is_ids)
    prompt_ids = named(sample, PROMPT_IDS, fields.is_ids)
    sampled = next((p for n in COMPLETION_IDS if (p := _sampled_ids(sample, n))), None)
    sampled = sampled or next(
        (p for n in ("choices", *SAMPLED) if (p := _sampled_ids(sample, n))), None
    )
    seen = [("attention_mask", n) for n in ATTENTION if _listed(fields.unpacked(sample.get(n)))]
    loss = named(sample, LOSS_MASK, _listed)
    masks = seen + ([("loss_mask", loss)] if loss else [])
    if ids and loss:
        return [("input_ids", ids), *masks]
    if ids and sampled and not prompt_ids and not _ends_with(sample[ids], sample.get(sampled)):
        prompt_ids = ids  # of an engine: what it was given, and what it returned
    if prompt_ids and sampled:
        return [("prompt", prompt_ids), ("completion", sampled), *masks]
    return [("input_ids", ids), *masks] if ids else []


def _sampled_ids(sample: Mapping[str, Any], name: str) -> str | None:
    """Path of the sampled ids of a column: ids, lists of them, or objects that hold them."""
    value = fields.unpacked(sample.get(name))
    if fields.is_ids(value) or fields.is_lists_of_ids(value):
        return name
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        key = next((k for k in SAMPLE_IDS if all(fields.is_ids(v.get(k)) for v in value)), None)
        return f"{name}.*.{key}" if key else None
    return None


def _ends_with(whole: Any, end: Any) -> bool:
    if not _listed(whole) or not _listed(end):
        return True
    return 0 < len(end) < len(whole) and list(whole)[-len(end) :] == list(end)


def _listed(value: Any) -> bool:
    return isinstance(value, list | np.ndarray)
