"""What is lost on the way from the rows' tokens to paid ones: one step for each cause.

Notable:
- the steps add up to the paid tokens of ``Batch.simulation``, exactly, whatever the plan
- what ranks and minibatches cost is the difference to the same rows on one rank, and in one
  minibatch: it holds the copies and the padding that come of parting what is shared, and the
  waiting for the slowest rank
- a step may be below zero: first fit has luck, too
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from packing.batch.refusal import BatchRefused
from tuning.plan.batch import Batch
from tuning.plan.numbers import many, number, percent
from tuning.plan.plan import TuningPlan


@dataclass(frozen=True)
class Loss:
    """One step of the way.

    tokens: what it adds to those before; total: what is there after it
    why:    what it is; changes: what its lever changes beside the figure
    lever:  fields of the plan that take it away; none where nothing but other rows would
    """

    name: str
    tokens: int
    total: int
    why: str
    changes: str = ""
    lever: Mapping[str, int] = field(default_factory=dict)


def losses(batch: Batch, plan: TuningPlan) -> tuple[Loss, ...]:
    """All tokens, then each step to what one update pays. Raises BatchRefused."""
    paid = batch.simulation(plan)
    whole = _or(batch, replace(plan, ppo_n_minibatches=1), plan)
    alone = _or(batch, replace(whole, dp_size=1), whole)
    one, ranks = batch.simulation(alone), batch.simulation(whole)
    shared = one.original_tokens - one.ideal_tokens
    least = many(one.n_trees, "tree")
    worst = max(paid.ppo_update, key=lambda update: update.dummies)
    ranked = "one rank: none waits for another"
    if plan.dp_size > 1:
        ranked = f"{many(plan.dp_size, 'rank')}, each with prompts of its own"
    if worst.dummies:
        ranked += f"; {many(worst.dummies, 'empty tree')} beside the most trees of one"
    parted = "one minibatch: no sample of a prompt parts from the others"
    if plan.ppo_n_minibatches > 1:
        parted = f"ppo_n_minibatches {number(plan.ppo_n_minibatches)}: samples of a prompt part"
    told: list[tuple[str, int, str, str, dict[str, int]]] = [
        ("all tokens", one.original_tokens, "of the rows, each by itself", "", {}),
        (
            "shared beginnings",
            -shared,
            "computed once in one trie of all rows: nobody can compute less than what is left",
            "",
            {},
        ),
        (
            "copies over trees",
            one.tree_tokens - one.ideal_tokens,
            f"{least} of at most {number(plan.max_tokens_per_mb)} tokens repeat what they share",
            "A larger max_tokens_per_mb holds more rows in a tree, and needs more memory; "
            "Espalier's packer keeps siblings together.",
            {},
        ),
        (
            "padding",
            one.paid_tokens - one.tree_tokens,
            f"every tree is padded to max_tokens_per_mb; {percent(one.fill)} of it is filled",
            "Another max_tokens_per_mb fills the last trees better.",
            {},
        ),
        (
            "ranks",
            ranks.paid_tokens - one.paid_tokens,
            ranked,
            "Fewer ranks change no result; a step takes longer.",
            {"dp_size": 1} if whole.dp_size > 1 else {},
        ),
        (
            "minibatches",
            paid.paid_tokens - ranks.paid_tokens,
            parted,
            "One minibatch is one optimizer step on all rows instead of several: another training "
            "run, not only a faster one.",
            {"ppo_n_minibatches": 1} if plan.ppo_n_minibatches > 1 else {},
        ),
    ]
    steps, total = [], 0
    for name, tokens, why, changes, lever in told:
        total += tokens
        steps.append(Loss(name, tokens, total, why, changes, lever))
    return tuple(steps)


def _or(batch: Batch, plan: TuningPlan, other: TuningPlan) -> TuningPlan:
    """``plan`` where AReaL takes the batch so, else ``other``: trees may get too deep."""
    try:
        batch.simulation(plan)
    except BatchRefused:
        return other
    return plan
