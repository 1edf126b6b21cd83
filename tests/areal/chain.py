"""AReaL's own chain, from groups to trees, as a process that answers.

Notable:
- every step is a function of AReaL's wheel: the controller's dispatch or SPMD's redistribution,
  the actor's minibatches, tree packing with its dummy trees, and the flat micro-batches
- ranks run one after the other; what they would tell each other is handed to them
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from areal.api.cli_args import MicroBatchSpec, TrainDatasetConfig
from areal.infra import dist_rollout
from areal.infra.controller.train_controller import _dispatch_tensors
from areal.infra.rpc.rtensor import RTensor
from areal.models.tree_attn.tree import build_packed_tree_batch
from areal.utils.data import (
    amend_position_ids,
    concat_batch,
    pack_tensor_dict,
    pad_mb_list,
    split_padded_tensor_dict_into_mb_list,
)
from areal.utils.dataloader import create_dataloader

from tests.areal.worker import serve

Batch = dict[str, Any]


def trajectory(rows: list[list[int]]) -> Batch:
    """One group as a rollout hands it over: padded on the right to its longest row."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


@contextmanager
def ranks(size: int, counts: list[int] | None = None) -> Iterator[None]:
    """As if there were ``size`` ranks, which all-gather ``counts``."""

    def all_gather(out: list[torch.Tensor], mine: torch.Tensor, group: Any = None) -> None:
        for tensor, count in zip(out, counts or [], strict=True):
            tensor.fill_(count)

    with (
        mock.patch.object(dist, "is_initialized", lambda: True),
        mock.patch.object(dist, "get_world_size", lambda group=None: size),
        mock.patch.object(dist, "get_rank", lambda group=None: 0),
        mock.patch.object(dist, "all_gather", all_gather),
        mock.patch.object(
            dist_rollout, "all_gather_tensor_container", lambda local, group: [local]
        ),
    ):
        yield


def dispatch(groups: list[Batch], dp_size: int, mode: str, algorithm: str) -> list[list[int]]:
    """Group numbers of each rank, in its order."""
    if mode == "controller":  # there the tensors are elsewhere: only their shapes have arrived
        shapes = [
            {"attention_mask": RTensor(shard=None, data=group["attention_mask"].to("meta"))}
            for group in groups
        ]
        return _dispatch_tensors(shapes, dp_size)[1]
    config = TrainDatasetConfig(path="-", type="-", batch_size=len(groups), num_workers=0)
    create_dataloader(list(range(len(groups))), 0, dp_size, config)
    with ranks(dp_size):
        data = dist_rollout.redistribute_trajectories(groups, packing_algorithm=algorithm)
    return data.group_indices


def packed(batches: list[Batch], spec: MicroBatchSpec) -> list[dict[str, Any]]:
    """One pass: each rank's trees, in step."""
    counts = [len(build_packed_tree_batch(batch, spec)) for batch in batches]
    with ranks(len(batches), counts):
        lists = [build_packed_tree_batch(batch, spec) for batch in batches]
    out = []
    for batch, trees in zip(batches, lists, strict=True):
        members = [mb["trie_node"].all_sequence_ids for mb in trees.mbs]
        real = sum(map(bool, members))
        tokens = int(batch["attention_mask"].sum())
        out.append(
            {
                "n_trees": real,
                "dummy_trees": len(members) - real,
                "tree_tokens": sum(trees.group_lens),
                "tokens": tokens,
                "tree_token_ratio": sum(trees.group_lens) / tokens,
                "group_lens": trees.group_lens[:real],
                "sequence_ids": members[:real],
            }
        )
    return out


def flat(batch: Batch, spec: MicroBatchSpec, pad_to_maximum: bool) -> dict[str, Any] | None:
    """The flat micro-batches of a rank alone; None where AReaL refuses them."""
    try:
        mbs = split_padded_tensor_dict_into_mb_list(amend_position_ids(dict(batch)), spec)
    except RuntimeError:
        return None
    mbs.mbs = [pack_tensor_dict(mb) for mb in mbs.mbs]
    mbs = pad_mb_list(mbs, pad_to_maximum=pad_to_maximum)
    return {
        "n_mbs": len(mbs.mbs),
        "group_lens": mbs.group_lens,
        "padded_to": mbs.padded_to_lengths,
    }


def chain(
    groups: list[list[list[int]]],
    dp_size: int,
    ppo_n_minibatches: int,
    mode: str,
    pad_to_maximum: bool,
    **spec: Any,
) -> dict[str, Any]:
    """``BatchSimulation.to_json`` of one batch, less its summary, by AReaL."""
    mb_spec = MicroBatchSpec(**spec)
    tree_spec = MicroBatchSpec(max_tokens_per_mb=mb_spec.max_tokens_per_mb)
    trajectories = [trajectory(rows) for rows in groups]
    parts = dispatch(trajectories, dp_size, mode, mb_spec.packing_algorithm)
    parts = [[int(group) for group in part] for part in parts]
    whole = [concat_batch([trajectories[group] for group in part])[0] for part in parts]
    order = [[[group, i] for group in part for i in range(len(groups[group]))] for part in parts]
    logp = packed(whole, tree_spec)
    split = [
        split_padded_tensor_dict_into_mb_list(batch, MicroBatchSpec(n_mbs=ppo_n_minibatches))
        for batch in whole
    ]
    passes = [packed([s.mbs[i] for s in split], tree_spec) for i in range(ppo_n_minibatches)]
    out = []
    for rank, s in enumerate(split):
        taken = iter(s.forward_indices)
        updates = []
        for mb, done in zip(s.mbs, passes, strict=True):
            members = [order[rank][next(taken)] for _ in range(len(mb["input_ids"]))]
            baseline = flat(mb, mb_spec, pad_to_maximum)
            updates.append({"members": members} | done[rank] | {"baseline": baseline})
        out.append(
            {
                "order": order[rank],
                "compute_logp": logp[rank],
                "baseline_full_batch": flat(whole[rank], mb_spec, pad_to_maximum),
                "ppo_update": updates,
            }
        )
    return {"dp_parts": parts, "ranks": out}


if __name__ == "__main__":
    serve(chain)
