"""PPO minibatches of whole groups: siblings stay where they can share their prefix.

Off by default (``ESPALIER_AREAL_MINIBATCHES=groups``), because it changes which rows share an
optimizer step: AReaL deals rows out one by one, the longest first, and scatters siblings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from packing.packers.allocate import NO_CAPACITY, ffd_allocate
from packing.rows import offsets_of


def group_minibatches(
    lengths: npt.ArrayLike, group_sizes: npt.ArrayLike, n_minibatches: int
) -> list[list[int]]:
    """Rows of each minibatch, ascending: AReaL's rule with groups in the place of rows.

    lengths ``(rows,)``, group after group; group_sizes ``(groups,)``. Raises RuntimeError, in
    AReaL's words, where there are fewer groups than minibatches.
    """
    offsets = offsets_of(group_sizes)
    tokens = np.add.reduceat(np.asarray(lengths, dtype=np.int64), offsets[:-1])
    groups = ffd_allocate(tokens, NO_CAPACITY, n_minibatches)
    rows = [[r for g in sorted(members) for r in range(*offsets[g : g + 2])] for members in groups]
    return sorted(rows)


def keep_groups(actor: Any) -> None:
    """Make ``PPOActor.ppo_update`` of AReaL's module ``areal.trainer.ppo.actor`` keep groups.

    Its ``batched_call`` is handed a list of groups, and makes one batch of it, which is then split.
    """
    import areal.utils.data as data

    split: Callable[..., Any] = actor.split_padded_tensor_dict_into_mb_list
    call: Callable[..., Any] = actor.batched_call
    sizes: list[int] = []

    def split_groups(batch: dict[str, Any], mb_spec: Any, group: Any = None) -> Any:
        def allocate(spec: Any, lengths: Any, group: Any = None) -> list[list[int]]:
            return group_minibatches(lengths, sizes, spec.n_mbs)

        with mock.patch.object(data, "allocate_balanced_mbs_synced", allocate):
            return split(batch, mb_spec, group)

    def batched_call(fn: Any, groups: list[dict[str, Any]], **options: Any) -> Any:
        sizes[:] = [len(group["input_ids"]) for group in groups]
        return call(fn, groups, **options)

    actor.split_padded_tensor_dict_into_mb_list = split_groups
    actor.batched_call = batched_call
