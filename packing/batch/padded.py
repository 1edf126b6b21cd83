"""build_packed_tree_batch: rows in, padded trees out, as a training engine takes them.

The library face of ``packing``: same checks and same words as AReaL's function of this name
(``areal/models/tree_attn/tree.py``), in either token order, from any packer, without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from packing.layout import TreeLayout, areal_layout, depth_first_layout
from packing.metrics import tree_token_ratio
from packing.packers.areal import pack_areal
from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import Rows, RowsError
from packing.spec import MicroBatchSpec, check_spec
from packing.trie import Trie, build_forest

TokenOrder = Literal["depth-first", "areal"]


@dataclass(frozen=True, eq=False)
class PaddedTree:
    """One tree padded to ``max_tokens_per_mb`` = S tokens.

    input_ids, position_ids: int32 ``(S,)``, 0 in the padding
    parent:      int32 ``(S,)``, -1 at roots and in the padding
    subtree_end: int32 ``(S,)``, 0 in the padding; None in AReaL's order
    layout:      the tree without its padding; trie: its nodes
    extras:      each ``(L,)``, the rows' fields in the order the rows were fed
    """

    input_ids: npt.NDArray[np.int32]
    position_ids: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]
    subtree_end: npt.NDArray[np.int32] | None
    layout: TreeLayout
    trie: Trie
    extras: Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class MicroBatchList:
    """All trees of one rank's batch; dummy trees (no row, all padding) stand last."""

    micro_batches: tuple[PaddedTree, ...]
    packing: Packing
    padded_to_lengths: tuple[int, ...]
    padding_lengths: tuple[int, ...]
    tree_token_ratio: float
    n_dummy_trees: int = field(default=0)

    def __len__(self) -> int:
        return len(self.micro_batches)


def build_packed_tree_batch(
    data: Rows | tuple[npt.ArrayLike, npt.ArrayLike],
    spec: MicroBatchSpec,
    pad_to_maximum: bool = True,
    parallel_size: int = 1,
    *,
    extras: Mapping[str, npt.ArrayLike] | None = None,
    order: PrefixOrder | None = None,
    packing: Packing | None = None,
    token_order: TokenOrder = "depth-first",
    n_trees: int | None = None,
) -> MicroBatchList:
    """Pack rows into trees of at most ``spec.max_tokens_per_mb`` tokens, padded to it.

    data:    Rows, or ``(input_ids, attention_mask)`` of shape ``(B, S)``, padded on either side.
    extras:  fields with one value per token, ``(total,)`` for Rows and ``(B, S)`` for a padded
             batch (advantages, old log-probabilities, …). The rows' loss mask comes along.
    order:   ``PrefixOrder.of(rows)``, where the caller has it.
    packing: trees found by another packer for the same rows; AReaL's first fit by default.
    n_trees: the largest tree count of any data-parallel rank; missing trees become dummies.
    Raises ValueError in AReaL's words for a cap that is unset, unaligned or below a row.
    """
    cap = check_spec(spec, pad_to_maximum, parallel_size)
    rows, fields = _rows_and_fields(data, extras or {})
    order = PrefixOrder.of(rows) if order is None else order
    if packing is None:
        packing = pack_areal(order, cap)
    elif packing.max_tokens_per_mb != cap:
        raise ValueError(
            f"the packing was made for {packing.max_tokens_per_mb} tokens per tree, "
            f"the spec asks for {cap}; pack again with that cap"
        )
    forest = build_forest(order, packing)
    dummies = max((n_trees or 0) - packing.n_trees, 0)
    trees = [
        _micro_batch(rows, fields, forest.tree(t), cap, token_order) for t in range(len(forest))
    ]
    nothing = rows.take([])
    dummy = [_micro_batch(nothing, {}, Trie.empty(), cap, token_order)] * dummies
    padding = [cap - len(mb.layout.input_ids) for mb in trees + dummy]
    fed = int(rows.lengths[packing.arrival].sum())
    return MicroBatchList(
        tuple(trees + dummy),
        packing,
        (cap,) * len(padding),
        tuple(padding),
        tree_token_ratio(packing.tree_tokens, fed),
        dummies,
    )


def _rows_and_fields(
    data: Rows | tuple[npt.ArrayLike, npt.ArrayLike], extras: Mapping[str, npt.ArrayLike]
) -> tuple[Rows, dict[str, npt.NDArray[np.generic]]]:
    """Rows, and every field flat over their tokens."""
    if isinstance(data, Rows):
        rows, keep, shape = data, None, (data.n_tokens,)
    else:
        rows = Rows.from_padded(*data)
        keep = np.asarray(data[1]).astype(bool)
        shape = keep.shape
    fields: dict[str, npt.NDArray[np.generic]] = {}
    if rows.loss_mask is not None:
        fields["loss_mask"] = rows.loss_mask
    for name, values in extras.items():
        array = np.asarray(values)
        if array.shape != shape:
            raise RowsError(f"{name}: shape {array.shape} is not the tokens' own shape {shape}")
        fields[name] = array if keep is None else array[keep]
    return rows, fields


def _micro_batch(
    rows: Rows,
    fields: Mapping[str, npt.NDArray[np.generic]],
    trie: Trie,
    cap: int,
    token_order: TokenOrder,
) -> PaddedTree:
    make = depth_first_layout if token_order == "depth-first" else areal_layout
    layout = make(rows, trie)
    inside = rows.take_tokens(trie.rows) if fields else None
    return PaddedTree(
        _padded(layout.input_ids, cap, 0),
        _padded(layout.position_ids, cap, 0),
        _padded(layout.parent, cap, -1),
        None if layout.subtree_end is None else _padded(layout.subtree_end, cap, 0),
        layout,
        trie,
        {} if inside is None else {name: values[inside] for name, values in fields.items()},
    )


def _padded(values: npt.NDArray[np.int32], length: int, fill: int) -> npt.NDArray[np.int32]:
    out = np.full(length, fill, dtype=np.int32)
    out[: len(values)] = values
    return out
