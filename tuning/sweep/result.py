"""What a sweep shows: candidates, baselines, the pick; one JSON for pages, report and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pydantic import TypeAdapter

from tuning.jobs.points import Point
from tuning.plan.numbers import gib
from tuning.plan.plan import Layout, StepOf, TuningPlan

Kind = Literal["measured", "estimated"]


@dataclass(frozen=True)
class Candidate:
    """A cap, or a baseline at a cap: counted figures, and a time of a stated kind.

    n_trees, …:  of one update over all ranks; None where AReaL refuses the cap, or of a baseline
    fits:        None where nobody knows; False has no step_s
    step_kind:   "measured": whole steps; "estimated": by the cost model, or from a part of a step
    low_s, high_s: spread of a measured step (p20, p80), band of an estimated one
    predicted_s: the cost model's own figure, beside a measured one too
    message:     why there is no time, or what an estimate rests on
    known_from:  date, where the history knew the answer
    logp_s:      measured seconds of the ``compute_logp`` pass, which is no part of the step
    mean_…, worst_…: over all batches of the data that were counted, where there are several; the
                 other figures are of the batch that is measured
    worst_memory_bytes: peak of the batch that needs the most
    step_of:     whose step the time and the memory are of
    scenarios_s: an estimated step where what may differ between caps (kernels, masks, network) is
                 all at its best, as estimated, all at its worst; what caps share is as estimated
    """

    max_tokens_per_mb: int
    n_trees: int | None = None
    tree_token_ratio: float | None = None
    padded_token_ratio: float | None = None
    paid_tokens: int | None = None
    fits: bool | None = None
    step_s: float | None = None
    step_kind: Kind | None = None
    low_s: float | None = None
    high_s: float | None = None
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    repeats: int = 0
    tokens_per_s: float | None = None
    memory_bytes: int | None = None
    memory_kind: Kind | None = None
    refused: bool = False
    message: str = ""
    known_from: str = ""
    logp_s: float | None = None
    logp_low_s: float | None = None
    logp_high_s: float | None = None
    mean_n_trees: float | None = None
    worst_n_trees: int | None = None
    mean_tree_token_ratio: float | None = None
    worst_tree_token_ratio: float | None = None
    mean_padded_token_ratio: float | None = None
    worst_padded_token_ratio: float | None = None
    mean_predicted_s: float | None = None
    worst_predicted_s: float | None = None
    worst_memory_bytes: int | None = None
    step_of: StepOf = "espalier"
    scenarios_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Headroom:
    """The pick where every row is ``factor`` times as long.

    max_tokens_per_mb: the picked cap, or the smallest that holds the longest row then
    padded_token_ratio: paid over original tokens there; None where AReaL refuses it
    memory_bytes: at that cap; fits: within the budget; None where nobody knows
    """

    factor: float
    longest_row: int
    max_tokens_per_mb: int
    padded_token_ratio: float | None
    memory_bytes: int | None
    fits: bool | None


@dataclass(frozen=True)
class Pick:
    """The choice.

    mode:      "tree", or "flat" or "padded": then tree training is better left off
    reason:    two sentences
    speedup_vs_flat: flat step over the picked one; None where flat has no time
    step_kind: whether the picked step was measured
    runner_up: the next best, in one sentence; advice: what would help more than the cap
    step_of:   whose step was timed
    holds_up_to: tokens of the longest row that the cap takes; AReaL stops at the first longer one
    headroom:  what longer rollouts do
    """

    mode: Layout
    max_tokens_per_mb: int
    reason: str
    speedup_vs_flat: float | None
    step_s: float
    step_kind: Kind
    runner_up: str = ""
    advice: tuple[str, ...] = ()
    step_of: StepOf = "espalier"
    holds_up_to: int = 0
    headroom: tuple[Headroom, ...] = ()


@dataclass(frozen=True)
class SweepResult:
    """A sweep, finished or under way.

    holdout_error: median relative error of the cost model on points left out of its fit
    budget_bytes:  memory that a step may use; None where it is not known
    longest_row:   AReaL refuses caps below it
    memory_note:   what the memory figures count; notes: sentences for all figures
    n_batches:     batches of the data that were counted; measured_batch: which of them is measured
    step_of:       whose step all times and memory are of
    """

    points: tuple[Candidate, ...]
    baselines: Mapping[str, Candidate | None]
    pick: Pick | None
    holdout_error: float | None
    model: str
    machine: str
    original_tokens: int
    longest_row: int
    budget_bytes: int | None = None
    memory_note: str = ""
    notes: tuple[str, ...] = ()
    finished: bool = False
    n_batches: int = 1
    measured_batch: str = ""
    step_of: StepOf = "espalier"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SweepResult:
        return TypeAdapter(cls).validate_python(value)


def question_of(plan: TuningPlan) -> str:
    """What a sweep asks: the plan, whatever its cap now is, and wherever its rows come from."""
    default = TuningPlan()
    blank = replace(
        plan,
        source=default.source,
        max_tokens_per_mb=default.max_tokens_per_mb,
        engine=default.engine if plan.step_of == "espalier" else plan.engine,
    )
    return blank.key


def timed(candidate: Candidate, point: Point, known: bool, budget_bytes: int | None) -> Candidate:
    """A candidate with what a point says of it; counted figures stay."""
    candidate = replace(
        candidate,
        step_of=point.question.step_of,
        message=point.message,
        known_from=point.measured_at[:10] if known else "",
        fits=False,
        refused=point.outcome == "refused",
    )
    if point.outcome in ("refused", "out-of-memory", "crashed"):
        return candidate
    size = point.memory_bytes
    kind: Kind | None = None if size is None else "measured"
    candidate = replace(candidate, memory_bytes=size, memory_kind=kind)
    if size is not None and budget_bytes is not None and size > budget_bytes:
        return replace(candidate, message=f"needs {gib(size)}")
    return replace(
        candidate,
        fits=True,
        step_s=point.step_s,
        step_kind="measured" if point.outcome == "measured" else "estimated",
        low_s=point.p20_s,
        high_s=point.p80_s,
        repeats=point.repeats,
        tokens_per_s=point.tokens_per_s,
        logp_s=point.logp_s,
        logp_low_s=point.logp_p20_s,
        logp_high_s=point.logp_p80_s,
    )
