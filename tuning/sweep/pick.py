"""The pick: which ``max_tokens_per_mb``, why, and whether trees pay at all.

Notable:
- the fastest step that fits with a margin; caps that differ by less than what is not known of their
  difference are equal, and the smallest of equals is picked, for it needs less memory
- of estimates only what differs between caps counts there: a wrong utilisation makes all of them
  slower alike, wrong masks, kernels or networks do not
- measured steps go before estimated ones: an estimate is picked only where nothing was measured
- steps are ``ppo_update``: ``compute_logp`` runs before it only where a config recomputes
  log-probabilities (``recompute_logprob``, or a decoupled loss with ``prox_logp_method:
  recompute``), both off by default, and no plan says so; its time stands beside the step's
- where flat packing or padding is as fast, or trees gain less than 10 %, tree training is better
  left off, and that is said
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuning.plan.batch import Batch
from tuning.plan.plan import STEP_NAMES, Layout, TuningPlan
from tuning.sweep.result import Candidate, Pick

MARGIN = 0.9
"""Part of the memory budget that the pick may use: fragmentation and other batches take more."""

WORTH = 1.10
"""Trees must be so many times as fast as doing without: they rule out context parallelism and
critics, and bind the cap to the longest row."""

_LEAST_NOISE = 0.005
_MOST_NOISE = {"measured": 0.01, "estimated": 0.1}
_LEAST_BETWEEN = 0.03
"""Estimates of two caps that differ by less are equal, whatever the scenarios say."""

_WORTH_SAYING = 0.97


def recommend(
    points: Sequence[Candidate],
    baselines: Mapping[str, Candidate | None],
    budget_bytes: int | None = None,
    advice: Sequence[str] = (),
) -> Pick | None:
    """The pick among candidates that have a time; None where none has."""
    usable = [p for p in points if p.step_s and p.fits is not False]
    measured = [p for p in usable if p.step_kind == "measured"]
    usable = measured or usable
    roomy = [p for p in usable if _within(p, budget_bytes)]
    best = _fastest(roomy or usable)
    if best is None:
        return None
    rival = _rival(baselines, best)
    flat = baselines.get("flat")
    flat_s = flat.step_s if flat else None
    if rival is not None:
        return _against_trees(best, *rival, flat_s, advice)
    assert best.step_s is not None and best.step_kind is not None
    fastest = min(map(_seconds, roomy or usable))
    alike = "" if fastest == best.step_s else " within what is known of their difference"
    why = (
        f"max_tokens_per_mb {best.max_tokens_per_mb:,} has the fastest step of "
        f"{STEP_NAMES[best.step_of]} that fits{alike}: {best.step_s:,.2f} s ({_kind(best)})"
    )
    if flat_s and flat is not None:
        why += f", {flat_s / best.step_s:.2f} times as fast as flat packing ({_kind(flat)})"
    second = _memory_sentence(best, budget_bytes, bool(roomy))
    return Pick(
        "tree",
        best.max_tokens_per_mb,
        f"{why}. {second}",
        flat_s / best.step_s if flat_s else None,
        best.step_s,
        best.step_kind,
        _runner_up(best, usable),
        tuple(advice),
        best.step_of,
    )


def _within(candidate: Candidate, budget_bytes: int | None) -> bool:
    needed = _memory(candidate)
    return budget_bytes is None or needed is None or needed <= MARGIN * budget_bytes


def _memory(candidate: Candidate) -> int | None:
    """Peak bytes of the batch that needs the most."""
    return candidate.worst_memory_bytes or candidate.memory_bytes


def noise_of(candidate: Candidate) -> float:
    """Half the relative spread of a step, 0.5 % at least: less cannot be told apart.

    1 % at most of a measured step, 10 % of an estimated one.
    """
    if not candidate.step_s or candidate.low_s is None or candidate.high_s is None:
        return _LEAST_NOISE
    spread = (candidate.high_s - candidate.low_s) / 2 / candidate.step_s
    return min(max(spread, _LEAST_NOISE), _MOST_NOISE[_kind(candidate)])


def equal(one: Candidate, fastest: Candidate) -> bool:
    """Whether ``one`` may be as fast as ``fastest``, for all that is known of their difference."""
    scenarios = list(zip(one.scenarios_s, fastest.scenarios_s, strict=False))
    if scenarios:
        return min(a / b for a, b in scenarios) <= 1 + _LEAST_BETWEEN
    return _seconds(one) <= _seconds(fastest) * (1 + noise_of(fastest))


def _fastest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The smallest cap that may be as fast as the fastest."""
    if not candidates:
        return None
    fastest = min(candidates, key=_seconds)
    return min((c for c in candidates if equal(c, fastest)), key=lambda c: c.max_tokens_per_mb)


def _rival(
    baselines: Mapping[str, Candidate | None], best: Candidate
) -> tuple[Layout, Candidate] | None:
    """The way without trees that is as fast, or nearly so, if there is one."""
    modes: tuple[Layout, ...] = ("flat", "padded")
    rivals = [
        (mode, found)
        for mode in modes
        if (found := baselines.get(mode)) is not None and found.step_s and found.fits is not False
    ]
    if not rivals:
        return None
    mode, fastest = min(rivals, key=lambda pair: _seconds(pair[1]))
    return (mode, fastest) if _seconds(fastest) < _seconds(best) * WORTH else None


def _against_trees(
    best: Candidate, mode: Layout, rival: Candidate, flat_s: float | None, advice: Sequence[str]
) -> Pick:
    assert rival.step_s is not None and rival.step_kind is not None
    name = "flat packing" if mode == "flat" else "padded rows"
    times = _seconds(best) / rival.step_s
    if times > 1:
        why = f"trees take {times:.2f} times as long"
        cause = "The rows share too little to pay for what trees cost."
    else:
        why = f"trees gain only {1 - times:.0%}"
        cause = "That is not worth what tree training rules out."
    return Pick(
        mode,
        rival.max_tokens_per_mb,
        f"Do not enable tree training on these rows: {name} takes {rival.step_s:,.2f} s a step "
        f"of {STEP_NAMES[best.step_of]} ({_kind(rival)}), the best tree packing "
        f"{_seconds(best):,.2f} s ({_kind(best)}): {why}. {cause}",
        flat_s / rival.step_s if flat_s else None,
        rival.step_s,
        rival.step_kind,
        f"With trees, max_tokens_per_mb {best.max_tokens_per_mb:,} is the best.",
        tuple(advice),
        best.step_of,
    )


def _memory_sentence(best: Candidate, budget_bytes: int | None, roomy: bool) -> str:
    needed = _memory(best)
    if needed is None:
        return "Its memory has not been measured."
    used = f"{needed / 2**30:,.2f} GiB"
    where = " on the worst batch" if best.worst_memory_bytes is not None else ""
    if budget_bytes is None:
        return f"It needs {used}{where}."
    margin = "" if roomy else ": hardly any margin is left"
    return f"It uses {used} of {budget_bytes / 2**30:,.2f} GiB{where}{margin}."


def _runner_up(best: Candidate, usable: Sequence[Candidate]) -> str:
    others = [c for c in usable if c is not best]
    if not others:
        return ""
    second = min(others, key=_seconds)
    share = _seconds(second) / _seconds(best) - 1
    size = "smaller" if second.max_tokens_per_mb < best.max_tokens_per_mb else "larger"
    how = f"takes {share:.0%} longer" if share > 0 else f"is {-share:.0%} faster"
    if share <= 0 or abs(share) <= noise_of(best):
        how = f"is as fast for all that is known ({share:+.1%})".replace("-", "−")
    return f"Runner-up: the {size} {second.max_tokens_per_mb:,} {how} ({_kind(second)})."


def advice_for(batch: Batch, plan: TuningPlan, points: Sequence[Candidate]) -> list[str]:
    """What would help more than another cap, counted on these rows; a sentence each."""
    timed = [p for p in points if p.step_s and p.fits is not False]
    if not timed:
        return []
    cap = min(timed, key=_seconds).max_tokens_per_mb
    found = []
    if plan.ppo_n_minibatches > 1:
        now = batch.simulation(plan, cap).paid_tokens
        whole = batch.simulation(replace(plan, ppo_n_minibatches=1), cap).paid_tokens
        if whole < _WORTH_SAYING * now:
            found.append(
                f"ppo_n_minibatches 1 instead of {plan.ppo_n_minibatches} would pay "
                f"{1 - whole / now:.0%} fewer tokens: minibatches part samples of one prompt."
            )
    if plan.packer == "areal":
        now = batch.simulation(plan, cap).paid_tokens
        ours = batch.simulation(replace(plan, packer="prefix-aware"), cap).paid_tokens
        if ours < _WORTH_SAYING * now:
            found.append(
                f"Espalier's packer inside AReaL would pay {1 - ours / now:.0%} fewer tokens at "
                "this cap."
            )
    largest = max(timed, key=lambda c: c.max_tokens_per_mb)
    blocked = any(p.fits is False and not p.refused for p in points)
    if blocked and largest.max_tokens_per_mb == cap and not plan.gradient_checkpointing:
        found.append(
            "Memory ends the sweep at its fastest point: gradient checkpointing would let larger "
            "caps fit."
        )
    return found


def _seconds(candidate: Candidate) -> float:
    assert candidate.step_s is not None
    return candidate.step_s


def _kind(candidate: Candidate) -> str:
    """How the time is known."""
    assert candidate.step_kind is not None
    return candidate.step_kind
