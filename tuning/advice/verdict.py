"""Are trees worth it on these rows, at this cap: one sentence, from what is counted.

Notable:
- no cap and no packer computes less than one trie of all rows: where even that is hardly less than
  the rows themselves, or than flat packing, nothing is to be gained
- where AReaL refuses flat packing, trees are set beside padded rows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from packing.batch.simulation import BatchSimulation
from tuning.plan.numbers import about, compared, number, percent, rounded

Answer = Literal["worth it", "hardly worth it", "not worth it", "nothing to gain", "refused"]

WORTH = 0.9
"""Trees must compute less than so much: masks, branches and what they rule out cost the rest."""


@dataclass(frozen=True)
class Verdict:
    """answer: in a word; headline: the figures that it rests on; sentence: all of it."""

    answer: Answer
    headline: str
    sentence: str


def verdict_of(simulation: BatchSimulation) -> Verdict:
    """Trees beside flat packing, of one update of the plan."""
    paid, cap = simulation.comparison, number(simulation.spec.max_tokens_per_mb)
    base = paid.padded if paid.flat is None else paid.flat
    other = "padded rows" if paid.flat is None else "flat packing"
    share = paid.tree / max(base, 1)
    headline = f"{about(base)} → {about(paid.tree)} tokens, {_times(share)}"
    least = simulation.ideal_tokens
    if least >= WORTH * min(base, simulation.original_tokens):
        why = sharing(least, simulation.original_tokens)
        sentence = f"Nothing to gain here: {why}. Leave tree training off."
        return Verdict("nothing to gain", headline, sentence)
    much = (
        f"{compared(share, 'tokens', other)} at max_tokens_per_mb {cap} "
        f"({number(paid.tree)} instead of {number(base)}, exact)"
    )
    if share < WORTH:
        return Verdict("worth it", headline, f"Worth it: trees compute {much}.")
    if share <= 1:
        sentence = f"Hardly worth it: trees compute {much}, and their masks and branches cost more."
        return Verdict("hardly worth it", headline, sentence)
    return Verdict(
        "not worth it",
        headline,
        f"Trees lose here: they compute {much}. The cap leaves too much padding, or ranks and "
        "minibatches part what is shared.",
    )


def sharing(unique: int, tokens: int) -> str:
    """How much of ``tokens`` is there more than once, where one trie of all rows holds ``unique``.

    What is too little to pay for trees is called so.
    """
    if unique >= tokens:
        return "no row repeats the beginning of another one"
    shared = (
        f"{percent(1 - unique / tokens)} of the rows' tokens repeat the beginning of another row"
    )
    little = unique >= WORTH * tokens
    return f"only {shared}, less than masks and branches of trees cost" if little else shared


def _times(share: float) -> str:
    """``12×`` where trees do with so many times less, else ``25% fewer``."""
    return f"{rounded(1 / share, 2)}×" if 0 < share <= 0.5 else compared(share)
