"""Workbench: one batch of rows, sorted once, and everything that is asked of it again and again.

Pages and the command line ask for packings at many caps; each is worked out once and kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from packing.batch.divergence import Divergence, find_divergences
from packing.batch.pipeline import simulate
from packing.batch.simulation import BatchSimulation, BatchSpec, Comparison
from packing.metrics import PackingMetrics
from packing.packers.areal import pack_areal
from packing.packers.bounds import Bounds, bounds
from packing.packers.prefix_aware import arrival_order, pack_prefix_aware
from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.spec import MicroBatchSpec
from packing.trie import Forest, Trie, build_forest, whole_trie
from tuning.plan.plan import TuningPlan

T = TypeVar("T")
_KEPT = 512
_CURVE_POINTS = 48


@dataclass(frozen=True)
class CurvePoint:
    """One cap of a curve, per packer: trees, tree tokens and paid tokens of the batch."""

    max_tokens_per_mb: int
    n_trees: int
    tree_tokens: int
    paid_tokens: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one global batch with their order; safe to share between threads."""

    rows: Rows
    order: PrefixOrder
    _kept: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict, repr=False)
    _lock: RLock = field(default_factory=RLock, repr=False)

    @classmethod
    def of(cls, rows: Rows, plan: TuningPlan) -> Batch:
        """The batch that ``plan`` draws from ``rows``: its first prompts, their first samples."""
        batch = batch_rows(rows, plan)
        return cls(batch, PrefixOrder.of(batch))

    @cached_property
    def trie(self) -> Trie:
        """The trie of all rows, as if one tree could hold them."""
        return whole_trie(self.order)

    @property
    def smallest_cap(self) -> int:
        """Tokens of the longest row: no cap below it can be packed."""
        return self.rows.longest

    def packing(self, max_tokens_per_mb: int, packer: str = "areal") -> Packing:
        """Raises RowTooLong below the longest row."""
        return self._once(
            ("packing", max_tokens_per_mb, packer), lambda: self._pack(max_tokens_per_mb, packer)
        )

    def _pack(self, cap: int, packer: str) -> Packing:
        if packer == "areal":
            return pack_areal(self.order, cap, trie=self.trie)
        return pack_prefix_aware(self.order, cap)

    def replayed(self, max_tokens_per_mb: int) -> Packing:
        """AReaL's own first fit on the row order that our packing suggests."""

        def replay() -> Packing:
            ours = self.packing(max_tokens_per_mb, "prefix-aware")
            suggested = arrival_order(ours, self.order)
            return pack_areal(self.order, max_tokens_per_mb, suggested, self.trie)

        return self._once(("replayed", max_tokens_per_mb), replay)

    def shuffled(self, max_tokens_per_mb: int, seed: int) -> Packing:
        """AReaL's first fit where rows arrive in random order."""

        def shuffle() -> Packing:
            arrival = np.random.default_rng(seed).permutation(len(self.rows))
            return pack_areal(self.order, max_tokens_per_mb, arrival, self.trie)

        return self._once(("shuffled", max_tokens_per_mb, seed), shuffle)

    def forest(self, max_tokens_per_mb: int, packer: str = "areal") -> Forest:
        return self._once(
            ("forest", max_tokens_per_mb, packer),
            lambda: build_forest(self.order, self.packing(max_tokens_per_mb, packer)),
        )

    def metrics(self, max_tokens_per_mb: int, packer: str = "areal") -> PackingMetrics:
        return self._once(
            ("metrics", max_tokens_per_mb, packer),
            lambda: PackingMetrics.of(
                self.packing(max_tokens_per_mb, packer), self.rows, self.order
            ),
        )

    def row_tokens_per_tree(
        self, max_tokens_per_mb: int, packer: str = "areal"
    ) -> npt.NDArray[np.int64]:
        """int64 ``(trees,)``: tokens of the rows in each tree, shared ones counted per row."""
        tree = self.packing(max_tokens_per_mb, packer).tree_of_row
        inside = tree >= 0
        n_trees = self.packing(max_tokens_per_mb, packer).n_trees
        return np.bincount(tree[inside], self.rows.lengths[inside], n_trees).astype(np.int64)

    def bounds(self, max_tokens_per_mb: int) -> Bounds:
        return self._once(
            ("bounds", max_tokens_per_mb), lambda: bounds(self.order, max_tokens_per_mb)
        )

    def divergences(self, max_tokens_per_mb: int) -> list[Divergence]:
        """Where rows almost share, the most tokens to gain first."""
        return self._once(
            ("divergences", max_tokens_per_mb),
            lambda: find_divergences(self.rows, self.order, max_tokens_per_mb),
        )

    def comparison(self, max_tokens_per_mb: int, packer: str = "areal") -> Comparison:
        """Tokens paid as trees, as AReaL's flat micro-batches, and padded."""
        return self._once(
            ("comparison", max_tokens_per_mb, packer),
            lambda: Comparison.of(
                self.packing(max_tokens_per_mb, packer),
                self.rows,
                MicroBatchSpec(max_tokens_per_mb),
            ),
        )

    def chain(self, plan: BatchSpec) -> BatchSimulation:
        """AReaL's way of this batch: ranks, minibatches, trees, dummies."""
        return self._once(("chain", plan), lambda: simulate(self.rows, plan, order=self.order))

    def curve(self, packer: str, alignment: int) -> list[CurvePoint]:
        """Points of ``packer`` (or "flat") over the whole range of caps."""
        return [self.curve_point(cap, packer) for cap in self.caps(alignment)]

    def curve_point(self, cap: int, packer: str) -> CurvePoint:
        if packer == "flat":
            flat = self.comparison(cap).flat or 0
            return CurvePoint(cap, 0, self.rows.n_tokens, flat)
        m = self.metrics(cap, packer)
        return CurvePoint(cap, m.n_trees, m.tree_tokens, m.paid_tokens)

    def caps(self, alignment: int) -> list[int]:
        """Caps from the longest row to one tree for all, evenly spread on a logarithmic scale."""
        first = aligned(max(self.smallest_cap, 1), alignment)
        last = max(aligned(self.trie.n_tokens, alignment), first)
        spread = np.geomspace(first, last, _CURVE_POINTS)
        return sorted({aligned(int(c), alignment) for c in spread} | {first, last})

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                found: T = self._kept[key]
                return found
            value = make()
            self._kept[key] = value
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return value


def batch_plan(plan: TuningPlan, max_tokens_per_mb: int | None = None) -> BatchSpec:
    """How AReaL trains a batch of ``plan``, at its cap or at another."""
    return BatchSpec(
        max_tokens_per_mb or plan.max_tokens_per_mb,
        dp_size=plan.dp_size,
        ppo_n_minibatches=plan.ppo_n_minibatches,
        mode=plan.dispatch,
    )


def aligned(cap: int, alignment: int) -> int:
    """The smallest multiple of ``alignment`` that is at least ``cap``."""
    return -(-cap // alignment) * alignment


def batch_rows(rows: Rows, plan: TuningPlan) -> Rows:
    """The rows of one global batch: first prompts by group number, first samples of each."""
    batch = rows.first_groups(plan.prompts_per_step) if plan.prompts_per_step else rows
    if plan.samples_per_prompt:
        batch = batch.take(np.flatnonzero(sample_index(batch.group) < plan.samples_per_prompt))
    return batch.truncated(plan.max_new_tokens) if plan.max_new_tokens else batch


def sample_index(group: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """int64 ``(rows,)``: how many rows of the same group stand before each row."""
    by_group = np.argsort(group, kind="stable")
    ordered = group[by_group]
    firsts = np.searchsorted(ordered, ordered, side="left")
    index = np.empty(len(group), dtype=np.int64)
    index[by_group] = np.arange(len(group)) - firsts
    return index
