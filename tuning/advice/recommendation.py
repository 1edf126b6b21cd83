"""The one cap, or doing without trees: what is measured, estimated or counted, and how surely.

Notable:
- a time goes before a count, and comes from the newest sweep, as the Tune page's pick does
- counting says nothing of memory: a cap that is only counted is no larger than the one in use
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from packing.spec import aligned
from tuning.jobs.points import Point, answers
from tuning.plan.batch import Batch, smallest_cap
from tuning.plan.numbers import compared, many, number, percent, seconds
from tuning.plan.plan import Layout, TuningPlan
from tuning.sweep.pick import recommend
from tuning.sweep.result import Candidate, SweepResult, timed

Kind = Literal["counted", "estimated", "measured"]

LEAST_MEASURED, MOST_SPREAD, MOST_MISSED = 3, 0.1, 0.15
"""A measured cap is taken for certain from so many measured caps on, where the picked step's spread
is at most so much to either side, and the cost model misses left-out points by no more."""

_AN_OCTAVE = 24
_AS_GOOD = 0.01


@dataclass(frozen=True)
class Recommendation:
    """The one cap, or doing without trees.

    layout:   "tree", or "flat" or "padded": then trees are better left off
    kind:     what it rests on; rests_on: the same as sentences; sure: by the limits above
    step_s, flat_s: of the cap and of flat packing, where a step is known
    measured_caps:  so many caps were timed with trees
    """

    layout: Layout
    max_tokens_per_mb: int
    kind: Kind
    rests_on: str
    sure: bool = True
    paid_tokens: int | None = None
    step_s: float | None = None
    flat_s: float | None = None
    measured_caps: int = 0


def known_sweep(
    batch: Batch, plan: TuningPlan, sweep: SweepResult | None, points: Iterable[Point]
) -> SweepResult | None:
    """The newest sweep of the plan; without one, what its measured points say; None where none is.

    points: newest first; those of another plan, batch or machine than the newest are passed over
    """
    if sweep is not None and sweep.pick is not None:
        return sweep
    rows, budget = batch.rows, int(plan.memory_budget_gib * 2**30) or None
    mine = [p for p in points if p.question.data == rows.fingerprint and answers(p, plan)]
    found: dict[str, dict[int, Candidate]] = {"tree": {}, "flat": {}, "padded": {}}
    for question, point in ((point.question, point) for point in mine):
        cap = question.max_tokens_per_mb
        if question.machine == mine[0].question.machine and cap not in found[question.mode]:
            found[question.mode][cap] = timed(Candidate(cap), point, False, budget)
    trees, *others = ([*candidates.values()] for candidates in found.values())
    baselines = {way: next(iter(others[at]), None) for at, way in enumerate(("flat", "padded"))}
    pick = recommend(trees, baselines, budget)
    if pick is None:
        return None
    machine, tokens = mine[0].question.machine, rows.n_tokens
    return SweepResult(
        tuple(trees), baselines, pick, None, plan.model, machine, tokens, rows.longest, budget
    )


def recommended_cap(batch: Batch, plan: TuningPlan, sweep: SweepResult | None) -> Recommendation:
    """The pick of the sweep; without one, the cap that pays the least."""
    counted = _least_counted(batch, plan)
    if sweep is None or sweep.pick is None:
        return counted
    pick = sweep.pick
    measured = sum(p.step_kind == "measured" for p in sweep.points)
    cap, flat = pick.max_tokens_per_mb, sweep.baselines.get("flat")
    at_cap = (one for one in sweep.points if one.max_tokens_per_mb == cap)
    step = next(at_cap, None) if pick.mode == "tree" else sweep.baselines.get(pick.mode)
    spread = _spread(step)
    doubts = []
    if pick.step_kind == "measured":
        if measured < LEAST_MEASURED:
            doubts.append(f"only {many(measured, 'cap')} of {number(len(sweep.points))} timed")
        if spread > MOST_SPREAD:
            doubts.append(f"the step varies by ±{number(spread, '.0%')}")
        if (sweep.holdout_error or 0.0) > MOST_MISSED:
            doubts.append(f"the cost model misses by {percent(sweep.holdout_error)}")
    band = ""
    if step is not None and step.low_s and step.high_s:
        band = f" ({seconds(step.low_s)} to {seconds(step.high_s)})"
    of = f"; {number(measured)} of {many(len(sweep.points), 'cap')} timed" * bool(measured)
    said = f"{seconds(pick.step_s)} a step{band} on {sweep.machine}, model {sweep.model}{of}."
    if pick.mode != "tree":
        said = f"{pick.reason} {said}"
    if doubts:
        said += f" Measure more: {', '.join(doubts)}."
    elif pick.step_kind == "estimated":
        said += " Nothing was measured there: measure to be sure."
    paid = None
    if pick.mode == "tree":
        paid = batch.simulation(plan, cap).paid_tokens
    return Recommendation(
        layout=pick.mode,
        max_tokens_per_mb=cap,
        kind=pick.step_kind,
        rests_on=said,
        sure=pick.step_kind == "measured" and not doubts,
        paid_tokens=paid,
        step_s=pick.step_s,
        flat_s=flat.step_s if flat else None,
        measured_caps=measured,
    )


def _spread(step: Candidate | None) -> float:
    """Half of the spread over the step."""
    if step is None or not step.step_s or step.low_s is None or step.high_s is None:
        return 0.0
    return (step.high_s - step.low_s) / 2 / step.step_s


def _least_counted(batch: Batch, plan: TuningPlan) -> Recommendation:
    """The largest of the caps up to the one in use that pay the least, or nearly so.

    The largest, for a longer row that comes later still fits.
    """
    now, step = plan.max_tokens_per_mb, plan.alignment
    low, quick = min(smallest_cap(batch.rows, plan), now), replace(plan, packer="areal")
    # The same places whatever the cap in use: the cap advised is advised again once it is in use.
    octaves = math.ceil(_AN_OCTAVE * math.log2(now / low)) if low < now else 0
    every = {aligned(int(low * 2 ** (k / _AN_OCTAVE)), step) for k in range(octaves)} | {now}
    # Our packer takes a hundred times as long, and its best caps are at much the same places.
    tried = {cap: batch.simulation(quick, cap).paid_tokens for cap in every if cap <= now}
    least = min(tried.values()) * (1 + _AS_GOOD)
    best = max(cap for cap, tokens in tried.items() if tokens <= least)
    paid = {cap: batch.simulation(plan, cap).paid_tokens for cap in (best, now)}
    best = now if paid[now] <= paid[best] * (1 + _AS_GOOD) else best
    said = f"Pays the least of {many(len(tried), 'cap')} up to the {number(now)} in use"
    if best != now:
        said += f", {compared(paid[best] / paid[now], 'tokens')} than that"
    said += ". Nothing was timed: a larger cap may be faster, and needs more memory."
    return Recommendation("tree", best, "counted", said, True, paid[best])
