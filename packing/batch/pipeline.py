"""AReaL's way of a batch: groups, ranks, PPO minibatches, trees, dummy trees, and what is paid.

Notable:
- ``compute_logp`` packs a rank's whole batch, ``ppo_update`` packs each minibatch by itself
- who gets which rows does not depend on the cap: a batch is dealt once and packed at many caps
- one PrefixOrder serves every pass: a rank's order is a selection from it, no token is sorted
  or read again
- our packer, where the spec names it, stands where AReaL's stood: same ranks, same minibatches
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from packing import metrics
from packing.batch import refusal
from packing.batch.dispatch import GroupTable, dispatch, ppo_minibatches
from packing.batch.passes import Pass, RankPass
from packing.batch.simulation import BatchSimulation
from packing.batch.spec import BatchSpec
from packing.packers.areal import pack_areal
from packing.packers.prefix_aware import pack_prefix_aware
from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Trie, build_forest, whole_trie

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


def simulate(
    rows: Rows,
    spec: BatchSpec,
    order: PrefixOrder | None = None,
    groups: npt.ArrayLike | None = None,
) -> BatchSimulation:
    """What AReaL does with one batch.

    order:  ``PrefixOrder.of(rows)`` where it is known
    groups: group numbers of the batch in the order they arrive; all, ascending, by default

    Raises BatchRefused, with AReaL's words and our mend, where AReaL would stop: there are no
    rows, the groups do not divide by the ranks, the cap is none or unaligned, a row is longer than
    it, a rank has fewer rows than minibatches, a path of a tree is too deep for its recursion.
    """
    return deal(rows, spec, order, groups).packed(spec)


def deal(
    rows: Rows,
    spec: BatchSpec,
    order: PrefixOrder | None = None,
    groups: npt.ArrayLike | None = None,
) -> DealtBatch:
    """The batch over ranks and minibatches, whatever the cap. Raises BatchRefused."""
    order = PrefixOrder.of(rows) if order is None else order
    table = GroupTable.of(rows, groups, spec.samples_per_prompt)
    if not len(table.rows):
        raise refusal.no_rows()
    try:
        dealt = dispatch(table, spec.dp_size, spec.dispatch, spec.packing_algorithm)
    except ValueError as error:
        raise refusal.undivided(str(error), len(table), spec.dp_size) from None
    ranks = [_RankRows.of(order, table.rows[table.places(at)]) for at in dealt]
    sample_of = np.full(len(rows), -1, dtype=np.int64)
    sample_of[table.rows] = table.sample
    return DealtBatch(
        order,
        tuple(table.ids[np.asarray(at, dtype=np.int64)] for at in dealt),
        tuple(ranks),
        _minibatches(ranks, spec.ppo_n_minibatches),
        rows.group,
        sample_of,
    )


def as_they_stand(rows: Rows, order: PrefixOrder) -> DealtBatch:
    """All rows on one rank in the order of the file, which AReaL deals otherwise.

    Raises BatchRefused where there are none.
    """
    if not len(rows):
        raise refusal.no_rows()
    every = np.arange(len(rows))
    rank = _RankRows(every, order, whole_trie(order))
    return DealtBatch(order, (np.unique(rows.group),), (rank,), ((every,),), rows.group, every)


@dataclass(frozen=True, eq=False)
class DealtBatch:
    """Who trains what: rank after rank, minibatch after minibatch.

    minibatches: per minibatch and rank, places among the rank's rows; or why AReaL refuses them
    """

    order: PrefixOrder
    parts: tuple[Int64s, ...]
    ranks: tuple[_RankRows, ...]
    minibatches: tuple[tuple[Int64s, ...], ...] | refusal.BatchRefused
    group_of: Int32s
    sample_of: Int64s

    def packed(self, spec: BatchSpec) -> BatchSimulation:
        """The trees under ``spec``, which must be one that this batch was dealt for."""
        for rank in self.ranks:
            rank.check_cap(spec, self.longest)
        if isinstance(self.minibatches, refusal.BatchRefused):
            raise self.minibatches
        whole = [np.arange(len(rank.rows)) for rank in self.ranks]
        compute_logp = self._pass("compute_logp", whole, spec)
        ppo_update: tuple[Pass, ...]
        if len(self.minibatches) == 1:  # the same rows in the same order
            ppo_update = (replace(compute_logp, name="ppo_update"),)
        else:
            ppo_update = tuple(self._pass("ppo_update", fed, spec) for fed in self.minibatches)
        return BatchSimulation(
            spec=spec,
            order=self.order,
            parts=self.parts,
            rank_rows=tuple(rank.rows for rank in self.ranks),
            group_of=self.group_of,
            sample_of=self.sample_of,
            compute_logp=compute_logp,
            ppo_update=ppo_update,
        )

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(int(rank.order.lengths.max(initial=0)) for rank in self.ranks)

    def _pass(self, name: str, members: Sequence[Int64s], spec: BatchSpec) -> Pass:
        packings = [rank.packed(fed, spec) for rank, fed in zip(self.ranks, members, strict=True)]
        # AReaL makes one empty tree of rows that have no token.
        run = [max(packing.n_trees, 1) for packing in packings]
        extra = metrics.dummy_trees(run) + run - [packing.n_trees for packing in packings]
        ranks = tuple(
            RankPass(
                members=rank.rows[fed],
                lengths=rank.order.lengths[fed],
                tree_of_member=packing.tree_of_row[fed],
                tokens_per_tree=packing.tokens_per_tree,
                dummies=dummies,
            )
            for rank, fed, packing, dummies in zip(
                self.ranks, members, packings, extra.tolist(), strict=True
            )
        )
        return Pass(name, spec, ranks)


@dataclass(frozen=True, eq=False)
class _RankRows:
    """A rank's rows, numbered from 0 in the rank's order, with their own order and trie."""

    rows: Int64s
    order: PrefixOrder
    trie: Trie

    @classmethod
    def of(cls, order: PrefixOrder, rows: Int64s) -> _RankRows:
        own = _selected(order, rows)
        return cls(rows, own, whole_trie(own))

    def check_cap(self, spec: BatchSpec, longest: int) -> None:
        refusal.check_cap(spec, self.rows, self.order.lengths, longest)

    @cached_property
    def _may_be_deep(self) -> bool:
        return self.trie.levels > refusal.DEEPEST_PATH

    def packed(self, fed: Int64s, spec: BatchSpec) -> Packing:
        """The rows ``fed`` by the spec's packer. Raises BatchRefused for a tree too deep."""
        cap = spec.max_tokens_per_mb
        if spec.packer == "areal":
            packing = pack_areal(self.order, cap, fed, self.trie)
        else:
            packing = pack_prefix_aware(self.order, cap, fed)
        if self._may_be_deep:
            forest = build_forest(self.order, packing)
            levels = max((forest.tree(t).levels for t in range(len(forest))), default=0)
            if levels > refusal.DEEPEST_PATH:
                raise refusal.too_deep(levels)
        return packing


def _minibatches(
    ranks: Sequence[_RankRows], count: int
) -> tuple[tuple[Int64s, ...], ...] | refusal.BatchRefused:
    try:
        scattered = [ppo_minibatches(rank.order.lengths, count) for rank in ranks]
    except RuntimeError as error:
        return refusal.too_few_rows(str(error), [len(rank.rows) for rank in ranks], count)
    return tuple(tuple(np.array(own[i]) for own in scattered) for i in range(count))


def _selected(order: PrefixOrder, rows: Int64s) -> PrefixOrder:
    """The order of some rows, numbered by their places in ``rows``."""
    by_rank = np.argsort(order.rank[rows])
    rank = np.empty_like(by_rank)
    rank[by_rank] = np.arange(len(rows))
    lcp = order.neighbour_lcps(order.rank[rows[by_rank]])
    return PrefixOrder(by_rank, rank, order.lengths[rows], lcp)
