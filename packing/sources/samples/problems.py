"""Word problems whose answers are computed: gaps filled by dice, steps run as a small program.

Notable:
- an answer is never written down, it is what the steps give
- numbers are drawn again until every step gives a whole number above zero
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from packing.sources.samples.dice import Dice
from packing.sources.samples.families import FAMILIES, NAMES, PLACES, Family, Operand, Step


@dataclass(frozen=True)
class Problem:
    """A problem with its gaps filled: text, known facts, givens, steps and the right answer."""

    text: str
    facts: tuple[str, ...]
    givens: Mapping[str, int]
    steps: tuple[Step, ...]
    answer: int


def apply(op: str, left: Fraction, right: Fraction) -> Fraction:
    """``left op right`` for one of ``+ - * /``; a division by zero gives zero."""
    if op == "+":
        return left + right
    if op == "-":
        return left - right
    if op == "*":
        return left * right
    return left / right if right else Fraction(0)


def operand(known: Mapping[str, Fraction], value: Operand) -> Fraction:
    return Fraction(value) if isinstance(value, int) else known[value]


def make_problem(dice: Dice, number: int) -> Problem:
    """Problem ``number``: families take turns, names and numbers are drawn from ``dice``."""
    family = FAMILIES[number % len(FAMILIES)]
    givens, answer = _draw_givens(dice, family)
    name, friend = dice.some(NAMES, 2)
    gaps = {"name": name, "friend": friend, "place": dice.pick(PLACES)}
    filled = {**{key: str(value) for key, value in givens.items()}, **gaps}
    steps = tuple(
        Step(s.name, s.left, s.op, s.right, s.what.format(**filled), s.unit) for s in family.steps
    )
    return Problem(
        dice.pick(family.texts).format(**filled),
        tuple(fact.format(**filled) for fact in family.facts),
        givens,
        steps,
        answer,
    )


def _draw_givens(dice: Dice, family: Family) -> tuple[dict[str, int], int]:
    while True:
        givens = {key: dice.between(low, high) for key, (low, high) in family.givens.items()}
        known = {key: Fraction(value) for key, value in givens.items()}
        for step in family.steps:
            value = apply(step.op, operand(known, step.left), operand(known, step.right))
            known[step.name] = value
            if value <= 0 or value.denominator != 1:
                break
        else:
            return givens, int(known[family.steps[-1].name])
