"""Rows of a library's batch as one packed tree: what a trainer needs around a model on trees.

Notable:
- one entry a predicted token, row after row, is the common form: log-probabilities, labels,
  advantages and masks all have it, so a loss reads them without knowing of the tree
- padding on either side is left out by the mask before rows become a tree, and rows come back into
  the shape that they came in
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from kernels.model.context import TreeContext
from kernels.model.logprobs import PackedLogprobs, head_logprobs
from kernels.model.micro_batches import Inputs, MicroBatch, batch_mask, token_index
from kernels.model.refusals import output_head
from packing.layout import TreeLayout, depth_first_layout
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import whole_trie


@dataclass(frozen=True)
class TreeCollator:
    """Rows to one packed tree: a data collator for ``transformers.Trainer`` and the like.

    A row is a mapping with ``input_ids`` and further fields of one number a token (labels, old
    log-probabilities, …) or of one number (an advantage). The batch holds ``input_ids`` and
    ``position_ids`` ``(1, N)`` and ``espalier_tree``, which are the model's; ``transitions``, for
    ``head_logprobs``; and each further field as ``(T,)``: one entry a predicted token, row after
    row in the order of ``head_logprobs(...).rows()``.

    multiple: N is padded up to a multiple of it
    backend:  how to attend, as in ``tree_attention``
    """

    multiple: int = 128
    backend: str = "auto"

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Raises ValueError where a field has neither one number nor one a token."""
        rows = Rows.from_lists([np.asarray(row["input_ids"]).tolist() for row in features])
        layout = one_tree(rows)
        inputs, context = self.pack(layout)
        at = token_index(rows, layout)
        batch = {
            "input_ids": inputs.input_ids[None],
            "position_ids": inputs.position_ids[None],
            "espalier_tree": context,
            "transitions": inputs.transitions,
        }
        for name in features[0].keys() - batch.keys() - {"attention_mask"}:
            values = [_per_token(row[name], len(row["input_ids"]), name) for row in features]
            batch[name] = torch.from_numpy(np.concatenate(values)[at])
        return batch

    def pack(
        self, layout: TreeLayout, device: torch.device | str = "cpu"
    ) -> tuple[Inputs, TreeContext]:
        """What a model reads of a layout, on ``device``."""
        padded = max(-(-layout.n_tokens // self.multiple), 1) * self.multiple
        batch, where = MicroBatch(layout, padded), torch.device(device)
        return Inputs.of(batch, where), TreeContext(batch_mask(batch, where), self.backend)


def one_tree(rows: Rows) -> TreeLayout:
    """All rows as one depth-first tree (or forest, where they share no first token)."""
    return depth_first_layout(rows, whole_trie(PrefixOrder.of(rows)))


def padded_logprobs(
    lm: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    collator: TreeCollator = TreeCollator(),
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities, and entropies where asked for, of a padded batch through one tree.

    lm: made ready by ``use_trees``; ids and mask ``(B, L)``, padding on any side
    Returns ``(B, L - 1)`` each: entry t is of token t + 1; 0 at padding and at each row's first.
    """
    keep = attention_mask.bool().cpu().numpy()
    ids = input_ids.cpu().numpy()
    rows = Rows.from_lists([row[real].tolist() for row, real in zip(ids, keep, strict=True)])
    layout = one_tree(rows)
    inputs, context = collator.pack(layout, input_ids.device)
    packed = tree_logprobs(lm, inputs, context, temperature, entropy)
    place = np.flatnonzero(keep)[token_index(rows, layout)]
    at = torch.from_numpy(place).to(input_ids.device)

    def unpacked(values: Tensor) -> Tensor:
        flat = values.new_zeros(input_ids.numel()).index_copy(0, at, values)
        return flat.view(input_ids.shape)[:, 1:]

    return unpacked(packed.rows()), unpacked(packed.row_entropies()) if entropy else None


def tree_logprobs(
    lm: PreTrainedModel,
    inputs: Inputs,
    context: TreeContext,
    temperature: float = 1.0,
    entropy: bool = False,
) -> PackedLogprobs:
    """One forward over a packed tree; logits, divided by ``temperature``, exist in chunks only."""
    hidden = lm.base_model(
        input_ids=inputs.input_ids[None],
        position_ids=inputs.position_ids[None],
        use_cache=False,
        espalier_tree=context,
    ).last_hidden_state[0]
    head = output_head(lm)
    bias = None if head.bias is None else head.bias / temperature
    return head_logprobs(hidden / temperature, head.weight, inputs.transitions, bias, entropy)


def _per_token(value: Any, length: int, name: str) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    if array.ndim == 0:
        return np.full(length, array)
    if array.shape != (length,):
        raise ValueError(
            f"{name} has shape {array.shape} in a row of {length} tokens; it needs one number, or "
            "one a token"
        )
    return array
