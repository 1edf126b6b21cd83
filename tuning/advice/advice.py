"""Advice on a plan: worth it, which cap, resting on what, how much room, what to change, what next.

Notable:
- every count is of ``Batch.simulation``; a measured or estimated step comes from the newest sweep
- sentences are made here alone: a page, a command and a report show the same words
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from packing.batch.refusal import BatchRefused
from packing.batch.simulation import BatchSimulation
from tuning.advice.recommendation import Recommendation, recommended_cap
from tuning.advice.verdict import Answer, Verdict, verdict_of
from tuning.areal.config import ArealConfig
from tuning.doctor import Case, longest_possible
from tuning.export.export import override_lines
from tuning.export.tune import tune_config
from tuning.plan.batch import Batch, plan_fields
from tuning.plan.losses import Loss, losses
from tuning.plan.numbers import many, number, rounded, seconds
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import SweepResult

Step = Literal["mend", "leave off", "use", "measure", "measure more", "export"]

_STEPS = 1000
_COUNTED_OUT = "No cap and no packer changes it on these rows."


@dataclass(frozen=True)
class Advice:
    """The first screen as values.

    answer:    in a word; headline: what the plan pays, flat → trees; sentence: the verdict
    figures:   by the names that a gate may ask for; None where AReaL stops or nobody has looked
    recommended: None where AReaL stops at the plan
    headroom, saved: sentences; empty where there is nothing to say
    changes:   a diff of the user's file, or overrides of a config
    next_step: the one button; next_says: the same as a sentence; fixes: fields that mend a refusal
    losses:    the way from all tokens to paid ones
    """

    answer: Answer
    headline: str
    sentence: str
    figures: Mapping[str, float | int | None]
    recommended: Recommendation | None
    headroom: str
    saved: str
    changes: str
    next_step: Step
    next_says: str
    fixes: tuple[Mapping[str, int], ...] = ()
    losses: tuple[Loss, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """The same for a terminal."""
        best = self.recommended
        cap = "" if best is None else f"max_tokens_per_mb {number(best.max_tokens_per_mb)}"
        if best is not None and best.layout != "tree":
            cap = "No trees"
        parts = [
            self.headline,
            self.sentence,
            f"{cap} ({best.kind}): {best.rests_on}" if best else "",
            self.headroom,
            self.saved,
            "".join(
                f"{step.name:<20}{number(step.tokens, '+,d' if at else ',d'):>15}   {step.why}\n"
                for at, step in enumerate(self.losses)
            )
            + f"{'paid':<20}{number(self.losses[-1].total):>15}"
            if self.losses
            else "",
            f"What to change:\n{self.changes}" if self.changes else "",
            f"Next: {self.next_says}",
        ]
        return "\n\n".join(part for part in parts if part)


def advise(
    batch: Batch,
    plan: TuningPlan,
    sweep: SweepResult | None = None,
    config: ArealConfig | None = None,
    price: float = 0.0,
) -> Advice:
    """What is known of ``plan`` on ``batch``, in one place.

    sweep:  of the plan, measured or estimated, as ``known_sweep`` finds it
    config: the user's own, for what it allows and for the diff
    price:  of an hour of one GPU, for what is saved
    """
    figures = dict.fromkeys(FIGURES) | _of_rows(batch, plan)
    try:
        simulation = batch.simulation(plan)
    except BatchRefused as refused:
        return _refused(refused, figures)
    best = recommended_cap(batch, plan, sweep)
    verdict, best = _judged(batch, plan, simulation, best)
    trees = best.layout == "tree"
    hours, saved = _saved(plan, sweep, best, price)
    figures |= _counted(simulation) | {
        "recommended_cap": best.max_tokens_per_mb if trees else None,
        "recommended_paid_tokens": best.paid_tokens if trees else None,
        "measured_caps": best.measured_caps,
        "step_s": best.step_s,
        "flat_step_s": best.flat_s,
        "saved_hours": hours,
    }
    step, says = _next(plan, best, verdict)
    return Advice(
        answer=verdict.answer,
        headline=verdict_of(simulation).headline,
        sentence=verdict.sentence,
        figures=figures,
        recommended=best,
        headroom=_headroom(batch, plan, best, config),
        saved=saved,
        changes=config_change(batch, plan, best, config),
        next_step=step,
        next_says=says,
        losses=losses(batch, plan),
    )


def _judged(
    batch: Batch, plan: TuningPlan, simulation: BatchSimulation, best: Recommendation
) -> tuple[Verdict, Recommendation]:
    """The verdict, and the recommendation that it leaves: a time goes before a count."""
    own = verdict_of(simulation)
    without = replace(best, layout="flat", max_tokens_per_mb=plan.max_tokens_per_mb)
    if own.answer == "nothing to gain":
        return own, replace(without, kind="counted", rests_on=_COUNTED_OUT, sure=True)
    if best.layout != "tree":
        return replace(own, answer="not worth it", sentence=best.rests_on), best
    there = verdict_of(batch.simulation(plan, best.max_tokens_per_mb))
    if there.answer == own.answer:
        there = own  # the figures that are on screen
    else:
        now = f"At the {number(plan.max_tokens_per_mb)} in use: {own.headline}."
        there = replace(there, sentence=f"{there.sentence} {now}")
    if best.kind == "counted":
        return there, without if there.answer == "not worth it" else best
    if there.answer != "worth it":
        faster = f"Worth it for its time, if not for its tokens. {there.sentence}"
        there = replace(there, answer="worth it", sentence=faster)
    return there, best


FIGURES = (
    "rows", "tokens", "longest", "cap", "headroom", "unique_tokens", "trees", "dummy_trees",
    "tree_tokens", "paid_tokens", "flat_tokens", "padded_tokens", "paid", "flat", "padded",
    "of_flat", "tree_token_ratio", "reuse", "fill", "recommended_cap", "recommended_paid_tokens",
    "measured_caps", "step_s", "flat_step_s", "saved_hours",
)  # fmt: skip
"""What a gate may name. ``paid``, ``flat``, ``padded``: over the rows' tokens; ``of_flat``: paid
over flat; seconds and hours: where a step was measured or estimated."""


def _of_rows(batch: Batch, plan: TuningPlan) -> dict[str, float | int | None]:
    rows = batch.rows
    return {
        "rows": len(rows),
        "tokens": rows.n_tokens,
        "longest": rows.longest,
        "cap": plan.max_tokens_per_mb,
        "headroom": plan.max_tokens_per_mb - rows.longest,
    }


def _counted(simulation: BatchSimulation) -> dict[str, float | int | None]:
    paid, tokens = simulation.comparison, max(simulation.original_tokens, 1)
    return {
        "unique_tokens": simulation.ideal_tokens,
        "trees": simulation.n_trees,
        "dummy_trees": simulation.n_dummy_trees,
        "tree_tokens": simulation.tree_tokens,
        "paid_tokens": paid.tree,
        "flat_tokens": paid.flat,
        "padded_tokens": paid.padded,
        "paid": simulation.padded_token_ratio,
        "flat": None if paid.flat is None else paid.flat / tokens,
        "padded": paid.padded / tokens,
        "of_flat": paid.tree_over_flat,
        "tree_token_ratio": simulation.tree_token_ratio,
        "reuse": simulation.prefix_reuse,
        "fill": simulation.fill,
    }


def _refused(refused: BatchRefused, figures: Mapping[str, float | int | None]) -> Advice:
    return Advice(
        answer="refused",
        headline="AReaL stops at this plan",
        sentence=str(refused),
        figures=figures,
        recommended=None,
        headroom="",
        saved="",
        changes="",
        next_step="mend",
        next_says=refused.mend,
        fixes=tuple(plan_fields(fix) for fix in refused.fixes),
    )


def _headroom(
    batch: Batch, plan: TuningPlan, best: Recommendation, config: ArealConfig | None
) -> str:
    """How long a row may be, beside the longest, and what the config allows."""
    if best.layout != "tree":
        return ""
    cap, longest = best.max_tokens_per_mb, batch.rows.longest
    said = f"Holds rows of up to {number(cap)} tokens; the longest has {number(longest)}."
    bound = None if config is None else longest_possible(Case(config))
    if bound is None:
        return f"{said} A longer one stops the run: bound them with gconfig.max_tokens."
    tokens, why = bound
    if tokens <= cap:
        return f"{said} Your config allows {number(tokens)} ({why})."
    return (
        f"{said} Your config allows {number(tokens)} ({why}): the first longer row stops the run."
    )


def _saved(
    plan: TuningPlan, sweep: SweepResult | None, best: Recommendation, price: float
) -> tuple[float | None, str]:
    """Hours of all devices that 1,000 steps save beside flat packing, and a sentence."""
    if sweep is None or best.layout != "tree" or not best.step_s or not best.flat_s:
        return None, ""
    devices = plan.dp_size * plan.tp_size
    hours = (best.flat_s - best.step_s) * devices * _STEPS / 3600
    flat = sweep.baselines.get("flat")
    kinds = {best.kind, flat.step_kind if flat else None}
    kind = "measured" if kinds == {"measured"} else "estimated"
    unit = "CPU-hours" if sweep.machine.startswith("cpu") else "GPU-hours"
    amount = f"{rounded(abs(hours))} {unit}"
    if price:
        amount += f", {rounded(abs(hours) * price)} at {rounded(price)} an hour,"
    verb = "save" if hours >= 0 else "cost"
    return hours, (
        f"{number(_STEPS)} steps on {many(devices, 'device')} {verb} {amount} beside flat packing "
        f"({kind}: {seconds(best.step_s)} instead of {seconds(best.flat_s)} a step)."
    )


def config_change(
    batch: Batch, plan: TuningPlan, best: Recommendation, config: ArealConfig | None
) -> str:
    """A diff of the user's file; without one, overrides for AReaL's command line."""
    trees, tuned = best.layout == "tree", replace(plan, max_tokens_per_mb=best.max_tokens_per_mb)
    if config is None:
        return "" if not trees else "\n".join(override_lines(tuned))
    after = tune_config(config, tuned, rows=batch.rows, trees=trees)
    return config.diff(after.config, config.file.name if config.file else "config.yaml")


def _next(plan: TuningPlan, best: Recommendation, verdict: Verdict) -> tuple[Step, str]:
    if best.layout != "tree":
        return "leave off", "leave tree training off, or try other rows."
    cap = number(best.max_tokens_per_mb)
    if best.max_tokens_per_mb != plan.max_tokens_per_mb:
        return "use", f"use max_tokens_per_mb {cap}."
    if best.kind != "measured":
        return "measure", "measure steps, which says how fast it is and whether it fits."
    if not best.sure:
        return "measure more", "measure more before you rely on it."
    return "export", f"export the config with max_tokens_per_mb {cap}."
