"""Batch: the rows that a plan trains in one step, sorted once, and what AReaL does with them.

Pages and the command line ask for the same simulation at many caps; each is worked out once and
kept.

Notable:
- ``simulation`` is the one place where a plan becomes trees: every figure on a page, in a file or
  on the command line is read from it
- a batch knows how it was drawn, and refuses a plan that would draw another
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from packing.batch.divergence import Divergence, find_divergences
from packing.batch.pipeline import DealtBatch, deal, simulate
from packing.batch.refusal import BatchRefused, Fix
from packing.batch.simulation import BatchSimulation
from packing.batch.spec import BatchSpec
from packing.packers.flat import PaddingRule
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.spec import aligned
from packing.trie import Trie, whole_trie
from tuning.areal.models import find_model
from tuning.plan.plan import TuningPlan

T = TypeVar("T")
_KEPT = 512
_BYTES = {"float32": 4, "bfloat16": 2}
_DRAWN_BY = ("prompts_per_step", "samples_per_prompt", "max_new_tokens")


@dataclass(frozen=True)
class CurvePoint:
    """One cap of a plan's curve: what one update has there, over all ranks and minibatches.

    n_trees: with tokens in them; n_run: with the dummies, what every rank runs in sum
    flat:    tokens that flat packing pays at this cap; None where AReaL refuses it
    """

    max_tokens_per_mb: int
    n_trees: int
    n_run: int
    tree_tokens: int
    paid_tokens: int
    flat: int | None

    @classmethod
    def of(cls, simulation: BatchSimulation) -> CurvePoint:
        cap = simulation.spec.max_tokens_per_mb
        return cls(
            cap,
            simulation.n_trees,
            simulation.paid_tokens // cap,
            simulation.tree_tokens,
            simulation.paid_tokens,
            simulation.comparison.flat,
        )


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one global batch with their order; safe to share between threads.

    drawn: the fields of the plan that drew the batch; None where the rows came as they are
    """

    rows: Rows
    order: PrefixOrder
    drawn: tuple[int, ...] | None = None
    _kept: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict, repr=False)
    _lock: RLock = field(default_factory=RLock, repr=False)

    @classmethod
    def of(cls, rows: Rows, plan: TuningPlan) -> Batch:
        """The batch that ``plan`` draws from ``rows``: its first prompts, their first samples."""
        batch = batch_rows(rows, plan)
        return cls(batch, PrefixOrder.of(batch), _drawn(plan))

    @cached_property
    def trie(self) -> Trie:
        """The trie of all rows, as if one tree could hold them."""
        return whole_trie(self.order)

    def simulation(self, plan: TuningPlan, max_tokens_per_mb: int | None = None) -> BatchSimulation:
        """What AReaL does with this batch under ``plan``, at its cap or at another.

        Raises BatchRefused, with AReaL's words and the mend, where AReaL would stop; ValueError
        where the plan is of another batch.
        """
        if self.drawn is not None and self.drawn != _drawn(plan):
            raise ValueError("this batch was drawn by another plan; draw it again with Batch.of")
        spec = batch_spec(plan, max_tokens_per_mb)
        return self._once(spec, lambda: self._dealt(spec).packed(spec))

    def refusal(
        self, plan: TuningPlan, max_tokens_per_mb: int | None = None
    ) -> BatchRefused | None:
        """Why AReaL stops under ``plan``; None where it does not."""
        try:
            self.simulation(plan, max_tokens_per_mb)
        except BatchRefused as refused:
            return refused
        return None

    def shuffled(self, plan: TuningPlan, seed: int) -> BatchSimulation:
        """The same where prompts arrive in random order, as AReaL's loader hands them on."""
        spec = batch_spec(plan)

        def simulated() -> BatchSimulation:
            groups = np.random.default_rng(seed).permutation(np.unique(self.rows.group))
            return simulate(self.rows, spec, self.order, groups)

        return self._once(("shuffled", spec, seed), simulated)

    def caps(self, plan: TuningPlan, count: int) -> list[int]:
        """Legal caps from the longest row to one tree for all, spread evenly on a logarithm."""
        first = smallest_cap(self.rows, plan)
        last = max(aligned(self.trie.n_tokens, plan.alignment), first)
        spread = np.geomspace(first, last, count)
        return sorted({aligned(int(c), plan.alignment) for c in spread} | {first, last})

    def divergences(self, plan: TuningPlan) -> list[Divergence]:
        """Where rows almost share: what helps, the most paid tokens first."""
        spec = batch_spec(plan)

        def found() -> list[Divergence]:
            return find_divergences(self.rows, self.order, spec)

        return self._once(("divergences", spec), found)

    def _dealt(self, spec: BatchSpec) -> DealtBatch:
        # Who gets which rows depends on neither cap nor packer.
        key = replace(spec, max_tokens_per_mb=spec.alignment, packer="areal", padding=PaddingRule())
        return self._once(("dealt", key), lambda: deal(self.rows, spec, self.order))

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


def batch_spec(plan: TuningPlan, max_tokens_per_mb: int | None = None) -> BatchSpec:
    """How AReaL trains a batch of ``plan``, at its cap or at another."""
    return BatchSpec(
        plan.max_tokens_per_mb if max_tokens_per_mb is None else max_tokens_per_mb,
        dp_size=plan.dp_size,
        ppo_n_minibatches=plan.ppo_n_minibatches,
        dispatch=plan.dispatch,
        packer=plan.packer,
        parallel_size=plan.tp_size,
        padding=_flat_padding(plan),
    )


def mended(plan: TuningPlan, fix: Fix) -> TuningPlan:
    """The plan with one of a refusal's fixes."""
    return replace(plan, **plan_fields(fix))  # type: ignore[arg-type]


def plan_fields(fix: Fix) -> dict[str, int]:
    """A refusal's fix by the names of the plan's fields."""
    return {"prompts_per_step" if name == "n_groups" else name: n for name, n in fix.items()}


def _flat_padding(plan: TuningPlan) -> PaddingRule:
    """How the plan's engine pads micro-batches without trees."""
    if plan.engine == "megatron":
        return PaddingRule.megatron(plan.tp_size)
    if plan.engine == "archon":
        model = find_model(plan.model)
        if model is not None and model.hidden:
            return PaddingRule.archon(model.hidden, _BYTES[plan.dtype], plan.tp_size)
        return PaddingRule(batch_align_to=2 * plan.tp_size)
    return PaddingRule()


def smallest_cap(rows: Rows, plan: TuningPlan) -> int:
    """The least legal cap that holds the longest row."""
    return aligned(max(rows.longest, 1), plan.alignment)


def _drawn(plan: TuningPlan) -> tuple[int, ...]:
    return tuple(getattr(plan, name) for name in _DRAWN_BY)


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
