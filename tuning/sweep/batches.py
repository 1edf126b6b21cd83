"""Which caps a sweep looks at, and what is counted of each before anything runs, in all batches.

Notable:
- the batches after the measured one are the next steps of training: counted, not measured
- batches follow one another as AReaL's loader draws them without shuffling: the next prompts by
  group number, a last batch that is not full dropped
- where a plan takes all prompts there is one batch, and nothing is added
- memory: every tree is padded to the cap, so that batches differ in little but the gradients, which
  exist from the second micro-batch of an update on
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from packing.batch.dispatch import batches
from packing.batch.refusal import BatchRefused
from packing.packers.areal import RowTooLong
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.spec import aligned
from tuning.plan.batch import Batch, batch_rows
from tuning.plan.numbers import gib
from tuning.plan.plan import TuningPlan
from tuning.sweep.costmodel import CostModel
from tuning.sweep.result import Candidate, SweepResult

CANDIDATES = 12
LEAST_CANDIDATES = 8
_TRIED_EACH = 3


def candidate_caps(
    batch: Batch, plan: TuningPlan, longest_row: int = 0, most: int | None = None
) -> list[int]:
    """Multiples of the alignment from the longest row to one tree for all; ascending.

    Caps are spread evenly on a logarithmic scale; around each the one that pays the fewest tokens
    is taken, for between two counts of trees the smallest cap pays the least.
    longest_row: of all the data, where the batch is a part of it
    most:        the largest that fits into memory, where that is known
    Raises BatchRefused where no cap can work.
    """
    if plan.caps:
        return sorted(set(plan.caps))
    step = plan.alignment
    low = aligned(max(batch.rows.longest, longest_row, 1), step)
    high = max(
        aligned(_largest_tree(batch, plan, aligned(max(batch.trie.n_tokens, low), step)), step), low
    )
    if most is not None:
        high = max(min(high, most // step * step), low)
    elif high - low < LEAST_CANDIDATES * step:
        high = low + (LEAST_CANDIDATES - 1) * step
    edges = np.geomspace(low, high + step, CANDIDATES + 1)
    caps = {low, high}
    for left, right in itertools.pairwise(edges):
        tried = {aligned(int(x), step) for x in np.geomspace(left, right, _TRIED_EACH + 1)[:-1]}
        inside = [cap for cap in tried if low <= cap <= high]
        if inside:
            caps.add(min(inside, key=lambda cap: (_paid(batch, plan, cap), cap)))
    now = plan.max_tokens_per_mb
    if low <= now <= high and now % step == 0:
        caps.add(now)
    for cap in range(low, high + 1, step):
        if len(caps) >= LEAST_CANDIDATES:
            break
        caps.add(cap)
    return sorted(caps)


def counted(batch: Batch, plan: TuningPlan, cap: int) -> Candidate:
    """Trees and ratios of one update of the model at a cap; refused where AReaL would stop."""
    try:
        simulation = batch.simulation(plan, cap)
    except BatchRefused as refused:
        return _refused(plan, cap, str(refused))
    return Candidate(
        cap,
        step_of=plan.step_of,
        n_trees=simulation.n_trees,
        tree_token_ratio=simulation.tree_token_ratio,
        padded_token_ratio=simulation.padded_token_ratio,
        paid_tokens=simulation.paid_tokens,
    )


def _refused(plan: TuningPlan, cap: int, message: str) -> Candidate:
    return Candidate(cap, fits=False, refused=True, message=message, step_of=plan.step_of)


def _paid(batch: Batch, plan: TuningPlan, cap: int) -> int:
    """Of AReaL's packing, which is quick; ours needs its candidates at much the same places."""
    return batch.simulation(replace(plan, packer="areal"), cap).paid_tokens


def _largest_tree(batch: Batch, plan: TuningPlan, cap: int) -> int:
    """Tokens of the largest tree where the cap is no limit."""
    simulation = batch.simulation(replace(plan, packer="areal"), cap)
    return int(simulation.packing.tokens_per_tree.max(initial=1))


MOST_BATCHES = 8
_MOST_TOKENS = 2**23

Features = Mapping[str, float]

_TIMES = (
    "step_s", "step_kind", "low_s", "high_s", "repeats", "tokens_per_s", "logp_s", "logp_low_s",
    "logp_high_s",
)  # fmt: skip
_UNTIMED: dict[str, Any] = {name: getattr(Candidate, name) for name in _TIMES}


def other_batches(rows: Rows, plan: TuningPlan) -> list[Rows]:
    """The batches after the plan's first one: seven at most, and 8 million tokens of them."""
    if not plan.prompts_per_step:
        return []
    found: list[Rows] = []
    whole = replace(plan, prompts_per_step=0)
    for groups in batches(rows, plan.prompts_per_step)[1:MOST_BATCHES]:
        one = batch_rows(rows.take(np.flatnonzero(np.isin(rows.group, groups))), whole)
        if sum(r.n_tokens for r in found) + one.n_tokens > _MOST_TOKENS:
            break
        found.append(one)
    return found


@dataclass(frozen=True, eq=False)
class OtherBatches:
    """Batches that are counted and not measured."""

    plan: TuningPlan
    batches: tuple[Batch, ...]

    @classmethod
    def of(cls, plan: TuningPlan, others: Sequence[Rows]) -> OtherBatches:
        return cls(plan, tuple(Batch(rows, PrefixOrder.of(rows)) for rows in others))

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def total(self) -> int:
        """All batches, the measured one among them."""
        return 1 + len(self)

    def blank(
        self,
        batch: Batch,
        longest_row: int,
        *,
        model: str,
        machine: str,
        budget_bytes: int,
        notes: tuple[str, ...] = (),
    ) -> SweepResult:
        """The result of a sweep of the measured ``batch`` before anything is known of it."""
        rows = batch.rows
        return SweepResult(
            points=(),
            baselines={},
            pick=None,
            holdout_error=None,
            model=model,
            machine=machine,
            original_tokens=rows.n_tokens,
            longest_row=max(rows.longest, longest_row),
            budget_bytes=budget_bytes,
            notes=(*notes, *self.note(rows)),
            n_batches=self.total,
            measured_batch=self.measured_name(rows),
            step_of=self.plan.step_of,
        )

    def measured_name(self, rows: Rows) -> str:
        """The measured batch for people; nothing where it is the only one."""
        if not self.batches:
            return ""
        return (
            f"the first of {self.total} batches "
            f"(groups {int(rows.group.min())} to {int(rows.group.max())})"
        )

    def note(self, rows: Rows) -> tuple[str, ...]:
        """A sentence on what is measured and what is counted."""
        if not self.batches:
            return ()
        return (
            f"Steps are measured on {self.measured_name(rows)}; whether a cap fits, and the mean "
            "and worst counts and predicted steps, are those of all of them.",
        )

    def candidate(self, batch: Batch, cap: int, longest_row: int) -> Candidate:
        """A cap of the measured ``batch``, counted; ``longest_row`` is that of all the data."""
        one = counted(batch, self.plan, cap)
        if self.plan.prompts_per_step and not one.refused and cap < longest_row:
            words = str(RowTooLong(0, longest_row, cap))
            mend = f"Choose {aligned(longest_row):,} or more"
            message = f"in another batch AReaL stops: “{words}” {mend}."
            return _refused(self.plan, cap, message)
        return self.counted(one)

    def counted(self, measured: Candidate) -> Candidate:
        """``measured`` with mean and worst counts; refused where AReaL refuses any batch."""
        if not self.batches or measured.refused:
            return measured
        cap = measured.max_tokens_per_mb
        all_of_them = [measured, *(counted(one, self.plan, cap) for one in self.batches)]
        for number, one in enumerate(all_of_them, 1):
            if one.refused:
                message = f"batch {number} of {self.total}: {one.message}"
                return _refused(self.plan, cap, message)
        paid = [one.padded_token_ratio or 0.0 for one in all_of_them]
        ratios = [one.tree_token_ratio or 0.0 for one in all_of_them]
        trees = [one.n_trees or 0 for one in all_of_them]
        return replace(
            measured,
            mean_n_trees=float(np.mean(trees)),
            worst_n_trees=max(trees),
            mean_tree_token_ratio=float(np.mean(ratios)),
            worst_tree_token_ratio=max(ratios),
            mean_padded_token_ratio=float(np.mean(paid)),
            worst_padded_token_ratio=max(paid),
        )

    def features(self, cap: int) -> tuple[Features, ...]:
        """What the cost model reads, of each batch."""
        from tuning.measure.shares import share_of

        return tuple(
            share_of(one.rows, one.simulation(self.plan, cap), "tree").features
            for one in self.batches
        )


def predicted(
    candidate: Candidate, model: CostModel, measured: Features, others: Sequence[Features]
) -> Candidate:
    """``candidate`` with the mean and worst predicted step, where the model reaches all batches."""
    all_of_them = [measured, *others]
    if any(model.outside(one) is not None for one in all_of_them):
        return candidate
    return over_batches(candidate, [model.predict(one).seconds for one in all_of_them])


def over_batches(candidate: Candidate, seconds: Sequence[float]) -> Candidate:
    """``candidate`` with the mean and the worst step, where there are several batches."""
    if len(seconds) < 2:
        return candidate
    mean = float(np.mean(seconds))
    return replace(candidate, mean_predicted_s=mean, worst_predicted_s=max(seconds))


def judged(
    candidate: Candidate,
    measured: Features,
    others: Sequence[Features],
    gradient_bytes: int,
    budget_bytes: int,
) -> Candidate:
    """``candidate`` as the batch that needs the most memory has it.

    A measured batch whose updates are one micro-batch each never holds gradients beside
    activations; one with more does, ``gradient_bytes`` of them at most.
    """
    if not others or candidate.memory_bytes is None or candidate.fits is False:
        return candidate
    grows = not _accumulates(measured) and any(map(_accumulates, others))
    worst = candidate.memory_bytes + (gradient_bytes if grows else 0)
    candidate = replace(candidate, worst_memory_bytes=worst)
    if worst <= budget_bytes:
        return candidate
    return replace(
        candidate,
        fits=False,
        message=f"the worst batch needs {gib(worst)}",
        **_UNTIMED,
    )


def _accumulates(features: Features) -> bool:
    """Whether some update has more than one micro-batch."""
    return features["micro_batches"] > features["steps"]
