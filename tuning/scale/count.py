"""What AReaL does with every batch of a training set, at many caps.

Notable:
- packing is per batch: nothing is shuffled between workers, each is told which rows its batches
  have and opens the arrays itself, mapped from the files where they lie
- batches follow one another as AReaL's loader draws them without shuffling; a last one that is not
  full is dropped, as its sampler drops it
- with a time budget batches are sampled, the same ones at every cap, until the caps can be told
  apart or the time is over
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.batch.dispatch import batches
from packing.batch.refusal import BatchRefused
from packing.batch.simulation import BatchSimulation
from packing.prefixes import PrefixOrder
from packing.rows import Rows, offsets_of
from tuning.plan.batch import Batch, batch_rows
from tuning.plan.plan import TuningPlan
from tuning.scale import sample
from tuning.scale.launchers import launched

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

TASK_TOKENS = 1 << 22
"""Tokens of a task: some tenths of a second a cap, so that a worker that is lost loses little."""

_TASKS_A_WORKER = 2
_QUANTILES = (0.5, 0.95, 0.99)


def _worst_rank(simulation: BatchSimulation) -> float:
    """Tokens in the trees of the rank that has the most, over all minibatches of an update."""
    ranks = zip(*(update.ranks for update in simulation.ppo_update), strict=True)
    return float(max(sum(one.tree_tokens for one in rank) for rank in ranks))


FIGURES: Mapping[str, Callable[[BatchSimulation], float]] = {
    "n_trees": lambda one: float(one.n_trees),
    "tree_tokens": lambda one: float(one.tree_tokens),
    "paid_tokens": lambda one: float(one.paid_tokens),
    "padded_token_ratio": lambda one: one.padded_token_ratio,
    "worst_rank_tokens": _worst_rank,
}
"""What is counted of a batch at a cap, by name."""


def _step(name: str, cap: int) -> float:
    """What two batches differ by at least in a figure, where they differ; 0: not known."""
    return {"n_trees": 1.0, "paid_tokens": float(cap)}.get(name, 0.0)


@dataclass(frozen=True)
class Figure:
    """A figure over all batches: mean with its 95 % interval, spread, quantiles, worst seen.

    quantiles:   (share, value, low, high); an end that the sample cannot tell is None
    worst_batch: the number of that batch, from 0
    """

    mean: float
    low: float
    high: float
    std: float
    quantiles: tuple[tuple[float, float, float | None, float | None], ...]
    worst: float
    worst_batch: int


@dataclass(frozen=True)
class CapCount:
    """One cap over the batches; without figures where AReaL refuses one of them.

    refused: how many of the counted batches; words, mend: of the first of them, ``refused_batch``
    equal:   no other cap pays less by more than the sample can tell
    """

    max_tokens_per_mb: int
    figures: Mapping[str, Figure]
    refused: int = 0
    refused_batch: int | None = None
    words: str = ""
    mend: str = ""
    equal: bool = False


@dataclass(frozen=True)
class Count:
    """All caps over the batches that were counted.

    n_batches:     of the set; n_counted: of these
    n_groups:      prompt groups of the set; those of a last batch that is not full do not count
    longest_row:   of all batches, whether counted or not; ``longest_batch`` has it
    groups_a_batch: prompts in each batch
    """

    n_batches: int
    n_counted: int
    n_groups: int
    groups_a_batch: int
    longest_row: int
    longest_batch: int
    seconds: float
    caps: tuple[CapCount, ...]

    @property
    def exact(self) -> bool:
        """Whether every batch was counted."""
        return self.n_counted == self.n_batches

    @property
    def pick(self) -> int | None:
        """The least of the caps that pay least, as far as can be told; None where all refuse."""
        return next((one.max_tokens_per_mb for one in self.caps if one.equal), None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"exact": self.exact, "pick": self.pick}


def count(
    rows: Rows,
    plan: TuningPlan,
    caps: Sequence[int],
    *,
    budget_s: float | None = None,
    seed: int = 0,
    on: str = "local",
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> Count:
    """Count the batches that ``plan`` draws from ``rows``, at each of ``caps``.

    budget_s: sample batches for about so long; None: all of them
    on:       where the batches are counted, see ``launchers``
    tell:     told after every task how many batches are counted, and of how many

    Raises ValueError where there is no full batch or no cap, LauncherError where ``on`` cannot
    work.
    """
    started = time.monotonic()
    if not caps:
        raise ValueError("name at least one cap")
    drawn = _Drawn.of(rows, plan)
    stratum = sample.strata_of(drawn.tokens)
    sampled = budget_s is not None
    order = sample.drawing_order(drawn.tokens, stratum, seed) if sampled else np.arange(len(drawn))
    least = sample.LEAST_IN_A_STRATUM * (int(stratum.max()) + 1) if sampled else len(drawn)
    found = _Found(tuple(sorted(set(caps))), stratum)
    with launched(on, rows) as workers:
        tasks = _tasks(drawn, order, least)
        under_way: set[Future[_Answer]] = set()
        asked = 0
        while True:
            late = sampled and time.monotonic() - started > (budget_s or 0.0)
            over = asked >= least and (late or found.told_apart())
            while not over and len(under_way) < _TASKS_A_WORKER * workers.size:
                if (task := next(tasks, None)) is None:
                    break
                under_way.add(workers.submit(_answer, plan.to_json(), found.caps, task))
                asked += len(task)
            if not under_way:
                break
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for one in done:
                found.add(one.result())
            tell(len(found.batches), len(drawn))
    longest = drawn.longest(np.minimum(rows.lengths, plan.max_new_tokens or rows.longest))
    at = int(np.argmax(longest))
    return Count(
        n_batches=len(drawn),
        n_counted=len(found.batches),
        n_groups=rows.n_groups,
        groups_a_batch=drawn.groups,
        longest_row=int(longest[at]),
        longest_batch=at,
        seconds=time.monotonic() - started,
        caps=found.summed(),
    )


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The batches of a set: which rows each has. B batches, R rows in them.

    members: int64 ``(R,)``, row numbers, batch after batch, in file order inside each
    offsets: int64 ``(B + 1,)``; tokens: int64 ``(B,)``; groups: prompts in each batch
    """

    members: Int64s
    offsets: Int64s
    tokens: Int64s
    groups: int

    @classmethod
    def of(cls, rows: Rows, plan: TuningPlan) -> _Drawn:
        groups = plan.prompts_per_step or rows.n_groups
        steps = batches(rows, groups) if groups else []
        if not steps:
            raise ValueError(
                f"{rows.n_groups:,} prompts are less than one batch of {groups:,}: ask for fewer "
                "prompts a step"
            )
        # Steps are ascending: what is dropped at the end comes after the last of them.
        batch = np.searchsorted(np.concatenate(steps), rows.group) // groups
        members = np.argsort(batch, kind="stable")
        offsets = offsets_of(np.bincount(batch)[: len(steps)])
        members = members[: offsets[-1]]
        tokens = np.add.reduceat(rows.lengths[members], offsets[:-1])
        return cls(members, offsets, tokens, groups)

    def __len__(self) -> int:
        return len(self.tokens)

    def rows_of(self, batch: int) -> Int64s:
        return self.members[self.offsets[batch] : self.offsets[batch + 1]]

    def longest(self, lengths: Int64s) -> Int64s:
        """int64 ``(B,)``: tokens of each batch's longest row; lengths: of every row."""
        return np.maximum.reduceat(lengths[self.members], self.offsets[:-1])


_Task = list[tuple[int, Int64s]]
"""Batches by number, with their row numbers."""


def _tasks(drawn: _Drawn, order: Int64s, most: int) -> Iterator[_Task]:
    """The batches in ``order``, some at a time, at most ``most``."""
    task: _Task = []
    tokens = 0
    for batch in order.tolist():
        task.append((batch, drawn.rows_of(batch)))
        tokens += int(drawn.tokens[batch])
        if tokens >= TASK_TOKENS or len(task) == most:
            yield task
            task, tokens = [], 0
    if task:
        yield task


@dataclass(frozen=True, eq=False)
class _Answer:
    """What a worker says of its batches.

    figures: float64 ``(batches, caps, len(FIGURES))``, NaN where AReaL refuses
    refused: words and mend by batch and cap
    """

    batches: list[int]
    figures: Floats
    refused: dict[tuple[int, int], tuple[str, str]]


def _answer(rows: Rows, plan_json: dict[str, Any], caps: Sequence[int], task: _Task) -> _Answer:
    """Runs in a worker. rows: all of the set, on no account touched as a whole."""
    plan = replace(TuningPlan.from_json(plan_json), prompts_per_step=0)
    answer = _Answer(
        [number for number, _ in task], np.full((len(task), len(caps), len(FIGURES)), np.nan), {}
    )
    for i, (number, members) in enumerate(task):
        own = batch_rows(rows.take(members), plan)
        batch = Batch(own, PrefixOrder.of(own))
        for j, cap in enumerate(caps):
            try:
                simulation = batch.simulation(plan, cap)
            except BatchRefused as refused:
                answer.refused[number, cap] = (refused.words, refused.mend)
            else:
                answer.figures[i, j] = [figure(simulation) for figure in FIGURES.values()]
    return answer


class _Found:
    """The answers that have come."""

    def __init__(self, caps: tuple[int, ...], stratum: Int64s) -> None:
        self.caps = caps
        self.batches: list[int] = []
        self._stratum = stratum
        self._sizes = np.bincount(stratum)
        self._figures: list[Floats] = []
        self._refused: dict[tuple[int, int], tuple[str, str]] = {}

    def add(self, answer: _Answer) -> None:
        self.batches += answer.batches
        self._figures.append(answer.figures)
        self._refused |= answer.refused

    def told_apart(self) -> bool:
        """Whether the sample tells the cap that pays least from all others.

        Answers come in any order: not before every stratum has its least.
        """
        answered = np.bincount(self._stratum[self.batches], minlength=len(self._sizes))
        if (answered < np.minimum(self._sizes, sample.LEAST_IN_A_STRATUM)).any():
            return False
        return sum(self._equal(np.concatenate(self._figures))) <= 1

    def summed(self) -> tuple[CapCount, ...]:
        figures = np.concatenate(self._figures)
        in_order = np.argsort(self.batches)  # whichever worker was first
        self.batches = [self.batches[i] for i in in_order]
        figures = figures[in_order]
        equal = self._equal(figures)
        return tuple(self._of_cap(cap, figures[:, j], equal[j]) for j, cap in enumerate(self.caps))

    def _of_cap(self, cap: int, figures: Floats, equal: bool) -> CapCount:
        refused = sorted(batch for batch, at in self._refused if at == cap)
        if refused:
            words, mend = self._refused[refused[0], cap]
            return CapCount(cap, {}, len(refused), refused[0], words, mend)
        named = {
            name: self._figure(figures[:, k], _step(name, cap)) for k, name in enumerate(FIGURES)
        }
        return CapCount(cap, named, equal=equal)

    def _figure(self, values: Floats, step: float) -> Figure:
        mean = self._mean(values, step)
        whole = len(values) == len(self._stratum)
        worst = int(np.argmax(values))
        return Figure(
            mean.value,
            mean.low,
            mean.high,
            float(np.std(values)),
            tuple((q, *sample.quantile_bounds(values, q, whole)) for q in _QUANTILES),
            float(values[worst]),
            self.batches[worst],
        )

    def _mean(self, values: Floats, step: float) -> sample.Mean:
        return sample.Mean.of(values, self._stratum[self.batches], self._sizes, step)

    def _equal(self, figures: Floats) -> list[bool]:
        """Of each cap, whether it pays least or the sample cannot tell it from the one that does.

        The same batches stand at every cap: what is judged is the mean of their differences.
        """
        paid = figures[:, :, list(FIGURES).index("paid_tokens")]
        works = [not np.isnan(of_cap).any() for of_cap in paid.T]
        if not any(works):
            return works
        means = [self._mean(of_cap, 0.0).value for of_cap in paid.T]
        best = int(np.nanargmin(means))
        beyond = [
            self._mean(paid[:, j] - paid[:, best], math.gcd(cap, self.caps[best]))
            for j, cap in enumerate(self.caps)
        ]
        return [can and not one.low > 0 for can, one in zip(works, beyond, strict=True)]
