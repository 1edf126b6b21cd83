"""A batch of prompt groups over data-parallel ranks and PPO minibatches, as AReaL hands them out.

Notable:
- a group (all rows of one prompt) never leaves its rank; its rows keep their order
- *controller* mode weighs a group by rows x padded width, because only the shape has arrived;
  *SPMD* mode weighs it by its tokens
- a PPO minibatch takes rows, not groups: equal counts, and siblings scattered
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from packing.packers.allocate import NO_CAPACITY, allocator, balanced_greedy_partition, ffd_allocate
from packing.rows import Rows, offsets_of, ragged_ranges

Int64s = npt.NDArray[np.int64]
Dispatch = Literal["controller", "spmd"]


@dataclass(frozen=True, eq=False)
class GroupTable:
    """The groups of a batch in the order in which they arrived. G groups, R rows.

    ids:     int64 ``(G,)``, group numbers
    rows:    int64 ``(R,)``, row numbers, group after group, each in file order
    offsets: int64 ``(G + 1,)``, group ``i`` is ``rows[offsets[i]:offsets[i + 1]]``
    tokens:  int64 ``(G,)``, tokens in each group
    width:   int64 ``(G,)``, tokens in the longest row of each group
    """

    ids: Int64s
    rows: Int64s
    offsets: Int64s
    tokens: Int64s
    width: Int64s

    @classmethod
    def of(
        cls,
        rows: Rows,
        groups: npt.ArrayLike | None = None,
        samples_per_prompt: int | None = None,
    ) -> GroupTable:
        """Groups by their numbers, in the order given (all, ascending, by default).

        ``samples_per_prompt`` keeps at most that many first rows of each. Raises ValueError where
        a group is unknown or named twice.
        """
        by_group = np.argsort(rows.group, kind="stable")
        known, start, count = np.unique(rows.group[by_group], return_index=True, return_counts=True)
        ids: Int64s = np.array(known if groups is None else groups, dtype=np.int64)
        _check_ids(ids, known)
        at = np.searchsorted(known, ids)
        kept = (
            count[at] if samples_per_prompt is None else np.minimum(count[at], samples_per_prompt)
        )
        gather, offsets = ragged_ranges(start[at].astype(np.int64), kept.astype(np.int64))
        members = by_group[gather].astype(np.int64)
        lengths = rows.lengths[members]
        total = offsets_of(lengths)
        width = np.maximum.reduceat(lengths, offsets[:-1]) if len(ids) else lengths
        return cls(ids, members, offsets, total[offsets[1:]] - total[offsets[:-1]], width)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sizes(self) -> Int64s:
        """int64 ``(G,)``, rows in each group."""
        return np.diff(self.offsets)

    @property
    def sample(self) -> Int64s:
        """int64 ``(R,)``, place of each row in its group."""
        return np.arange(len(self.rows)) - np.repeat(self.offsets[:-1], self.sizes)

    def places(self, groups: npt.ArrayLike) -> Int64s:
        """Places in ``rows`` of the groups at ``groups`` (places in ``ids``), in that order."""
        at = np.asarray(groups, dtype=np.int64)
        return ragged_ranges(self.offsets[at], self.sizes[at])[0]


def dispatch(
    table: GroupTable, dp_size: int, mode: Dispatch, packing_algorithm: str = "ffd"
) -> list[list[int]]:
    """Places in ``table.ids`` of each rank's groups, in the rank's own order.

    Raises ValueError, in AReaL's words, where the number of groups is no multiple of ``dp_size``.
    """
    if mode == "controller":
        return balanced_greedy_partition(table.sizes * table.width, dp_size)
    if len(table) % dp_size:
        raise ValueError(f"batch size({len(table)}) must be divisible by world_size({dp_size})!")
    return allocator(packing_algorithm)(table.tokens, NO_CAPACITY, dp_size, 1)


def ppo_minibatches(lengths: npt.ArrayLike, n_minibatches: int) -> list[list[int]]:
    """Places of each minibatch's rows among a rank's rows of ``lengths`` ``(n,)``, ascending.

    Whatever the packing algorithm, AReaL takes ffd without a capacity here: the rows in
    descending length, each to the minibatch with the fewest. Raises RuntimeError, in AReaL's
    words, where there are fewer rows than minibatches.
    """
    values = np.asarray(lengths, dtype=np.int64)
    return sorted(sorted(group) for group in ffd_allocate(values, NO_CAPACITY, n_minibatches))


def batches(
    rows: Rows,
    prompts_per_step: int,
    samples_per_prompt: int | None = None,
    shuffle_seed: int | None = None,
) -> list[Int64s]:
    """Group numbers of each training step in one pass over the dataset.

    Ascending, or shuffled by ``shuffle_seed``; a last step that is not full is dropped, as
    AReaL's sampler drops it. With ``samples_per_prompt``, only groups that have as many rows.
    """
    groups, count = np.unique(rows.group, return_counts=True)
    if samples_per_prompt is not None:
        groups = groups[count >= samples_per_prompt]
    groups = groups.astype(np.int64)
    if shuffle_seed is not None:
        groups = np.random.default_rng(shuffle_seed).permutation(groups)
    steps = len(groups) // prompts_per_step
    return list(groups[: steps * prompts_per_step].reshape(steps, prompts_per_step))


def _check_ids(ids: Int64s, known: npt.NDArray[np.int32]) -> None:
    unknown = ids[~np.isin(ids, known)]
    if len(unknown):
        raise ValueError(
            f"The batch names group {int(unknown[0])}, but the dataset has no rows of it "
            f"({len(known)} groups). Choose groups of this dataset."
        )
    values, count = np.unique(ids, return_counts=True)
    if (count > 1).any():
        raise ValueError(
            f"The batch names group {int(values[count > 1][0])} twice. Name each group once."
        )
