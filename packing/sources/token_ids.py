"""Token ids as they stand in records: checked, and the masks beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from packing.rows import MAX_TOKEN_ID
from packing.sources import fields
from packing.sources.errors import Where, shown

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
