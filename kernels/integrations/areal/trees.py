"""AReaL's ``build_packed_tree_batch`` and ``build_tree_attn_kwargs``, by Espalier.

Notable:
- same checks and words, same statistics and fields; rows are read through their mask, so left
  padding packs the right tokens
- row numbers of tokens travel through the packer: each field of a tree is one gather on its device
- one int32 a token stands for the mask: nothing N x N is made, here or in attention
- ``use_cache`` is off: AReaL's own tree path fills a key-value cache that nobody reads
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from kernels.attention import TreeMask
from kernels.integrations.areal.options import option
from kernels.model import Transitions, TreeContext
from packing.batch.padded import MicroBatchList, PaddedTree
from packing.batch.padded import build_packed_tree_batch as pack
from packing.layout import TreeLayout
from packing.packers.prefix_aware import pack_prefix_aware
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.spec import MicroBatchSpec


@dataclass(eq=False)
class PackedTree:
    """What stands in for AReaL's ``TrieNode``: one tree in depth-first order, padded to S tokens.

    subtree_end: int32 ``(S,)``, 0 in the padding
    """

    layout: TreeLayout
    subtree_end: npt.NDArray[np.int32]

    @property
    def all_sequence_ids(self) -> list[int]:
        """Row numbers in the order of the tree's fields; empty for a dummy tree."""
        ids: list[int] = self.layout.rows.tolist()
        return ids

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        lengths: list[int] = np.diff(self.layout.row_offsets).tolist()
        return lengths

    def transitions(self, device: torch.device, every_position: bool = False) -> Transitions:
        """The tree's predictions, on the device of the model."""
        size = len(self.subtree_end)
        return Transitions.of(self.layout, size, device, every_position=every_position)


class EngineTree(TreeContext):
    """The keyword of the model's forward, and the tree that the head needs."""

    def __init__(self, tree: PackedTree, device: torch.device) -> None:
        super().__init__(TreeMask.from_subtree_end(tree.subtree_end, device))
        self.tree = tree


def build_tree_attn_kwargs(
    trie: PackedTree, padded_size: int, device: torch.device
) -> dict[str, Any]:
    """Keywords of the model's forward; the engine adds them, and takes them back after it."""
    return {"espalier_tree": EngineTree(trie, device), "use_cache": False}


def build_packed_tree_batch(
    data: dict[str, Any],
    mb_spec: Any,
    pad_to_maximum: bool = True,
    dp_group: dist.ProcessGroup | None = None,
    parallel_size: int = 1,
) -> Any:
    """One rank's batch as AReaL's ``MicroBatchList`` of trees, in step with its ``dp_group``.

    data: padded ``input_ids`` and ``attention_mask`` ``(B, S)``; a field of that shape is packed,
          every other is handed on whole. Raises ValueError in AReaL's words.
    """
    from areal.utils import stats_tracker
    from areal.utils.data import MicroBatchList as AReaLMicroBatchList

    ids, keep = data["input_ids"], data["attention_mask"].bool()
    spec = MicroBatchSpec(
        mb_spec.max_tokens_per_mb, mb_spec.n_mbs, mb_spec.granularity, mb_spec.n_mbs_divisor
    )
    rows = Rows.from_padded(ids.cpu().numpy(), keep.cpu().numpy())
    packed = _pack(rows, spec, pad_to_maximum, parallel_size, keep)
    trees = list(packed.micro_batches)
    missing = _most_trees(len(trees), ids.device, dp_group) - len(trees)
    if missing:
        empty = pack(rows.take([]), _cap_only(spec), parallel_size=parallel_size, n_trees=1)
        trees += empty.micro_batches * missing
    stats_tracker.scalar(tree_token_ratio=packed.packing.tree_tokens / keep.sum())

    fields = {k: v for k, v in data.items() if k not in ("input_ids", "attention_mask")}
    mbs = [_micro_batch(tree, fields, ids) for tree in trees]
    tokens = [tree.layout.n_tokens for tree in trees]
    caps = [len(tree.input_ids) for tree in trees]
    return AReaLMicroBatchList(
        data=data,
        mb_spec=mb_spec,
        mbs=mbs,
        padded_mbs=mbs,
        group_lens=tokens,
        padding_lengths=[cap - n for cap, n in zip(caps, tokens, strict=True)],
        padded_to_lengths=caps,
        _max_seqlen=max(caps),
    )


def _pack(
    rows: Rows, spec: MicroBatchSpec, pad_to_maximum: bool, parallel_size: int, keep: Tensor
) -> MicroBatchList:
    """The trees of this rank; each carries where its rows' tokens stand in the padded batch."""
    packing, order = None, PrefixOrder.of(rows)
    if option("PACKER") == "prefix-aware":
        pack(rows.take([]), spec, pad_to_maximum, parallel_size)  # its checks and its warning
        spec = _cap_only(spec)
        packing = pack_prefix_aware(order, spec.max_tokens_per_mb or 0)
    place = keep.flatten().nonzero()[:, 0].cpu().numpy()
    return pack(
        rows,
        spec,
        pad_to_maximum,
        parallel_size,
        extras={"place": place},
        order=order,
        packing=packing,
    )


def _cap_only(spec: MicroBatchSpec) -> MicroBatchSpec:
    return MicroBatchSpec(spec.max_tokens_per_mb)


def _most_trees(mine: int, device: torch.device, group: dist.ProcessGroup | None) -> int:
    """The tree count of the rank that has the most."""
    if not dist.is_initialized():
        return mine
    count = torch.tensor([mine], dtype=torch.int64, device=device)
    dist.all_reduce(count, dist.ReduceOp.MAX, group=group)
    return int(count)


def _micro_batch(tree: PaddedTree, fields: dict[str, Any], ids: Tensor) -> dict[str, Any]:
    """A tree as AReaL's engine reads it: tokens ``(1, S)``, per-token fields ``(L,)``."""
    assert tree.subtree_end is not None  # the depth-first order has it
    place = torch.as_tensor(tree.extras.get("place", np.empty(0, np.int64)), device=ids.device)
    packed = {
        name: value.flatten(0, 1)[place]
        if torch.is_tensor(value) and value.shape == ids.shape
        else value
        for name, value in fields.items()
    }
    return {
        "input_ids": torch.as_tensor(tree.input_ids, device=ids.device).to(ids.dtype)[None],
        "position_ids": torch.as_tensor(tree.position_ids, device=ids.device).long()[None],
        "trie_node": PackedTree(tree.layout, tree.subtree_end),
        **packed,
    }
