"""Tries at a word problem: right and wrong, short and long, in several styles of writing.

Notable:
- a mistake is made in one step and carried through the later ones, as a model would
- a right solution holds no wrong equation: doubts try a wrong idea, never a wrong sum
- effort decides the length: a few steps, a check, or long checking and solving again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from packing.sources.samples.dice import Dice, Habit
from packing.sources.samples.families import Operand, Step
from packing.sources.samples.problems import Problem, apply, operand

EFFORTS = (0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3)


@dataclass(frozen=True)
class Worked:
    """A step with its numbers: ``left op right = value``; ``slip`` where the sum is wrong."""

    step: Step
    left: Fraction
    right: Fraction
    value: Fraction
    slip: bool = False


def write_solution(problem: Problem, habit: Habit, dice: Dice, skill: float) -> tuple[str, float]:
    """One try: its text, ending in ``Answer: …``, and 1.0 where the answer is right, else 0.0."""
    worked = _work(problem, None, dice)
    if not dice.chance(skill):
        # A mistake that happens to give the right answer would be rewarded: make another one.
        while worked[-1].value == problem.answer:
            worked = _work(problem, dice.pick(("slip", "swap", "misread", "skip")), dice)
    signs = habit.choose(dice, "signs", ({}, {}, {"*": "×", "/": "÷"}))
    writer = _Writer(problem, habit, dice, signs)
    answer = worked[-1].value
    text = writer.write(worked, dice.pick(EFFORTS))
    return text, 1.0 if answer == problem.answer else 0.0


def _work(problem: Problem, mistake: str | None, dice: Dice) -> list[Worked]:
    """Run the steps with one mistake (or none) in a random step."""
    known = {key: Fraction(value) for key, value in problem.givens.items()}
    steps = list(problem.steps)
    at = dice.below(len(steps))
    if mistake == "skip":
        steps.pop()
    elif mistake == "swap":
        steps[at] = replace(steps[at], op=_wrong_op(steps[at].op, dice))
    elif mistake == "misread":
        key = dice.pick(sorted(problem.givens))
        known[key] += dice.pick((-1, 1, 2, 10))
    worked: list[Worked] = []
    for i, step in enumerate(steps):
        left, right = operand(known, step.left), operand(known, step.right)
        value = apply(step.op, left, right)
        slip = mistake == "slip" and i == at
        if slip:
            value += dice.pick((-10, -1, 1, 2, 10, 100))
        known[step.name] = value
        worked.append(Worked(step, left, right, value, slip))
    return worked


def _wrong_op(op: str, dice: Dice) -> str:
    return dice.pick([other for other in "+-*/" if other != op])


class _Writer:
    """Puts worked steps into words; every choice of words is a habit of the problem."""

    def __init__(self, problem: Problem, habit: Habit, dice: Dice, signs: dict[str, str]) -> None:
        self._problem, self._habit, self._dice, self._signs = problem, habit, dice, signs

    def write(self, worked: Sequence[Worked], effort: int) -> str:
        goal = self._problem.steps[-1].what
        style = self._choose("style", tuple(STYLES))
        parts = [self._choose("opening", OPENINGS).format(goal=goal)]
        facts = self._choose("facts", FACTS)
        if facts:
            parts.append(facts.format(self._join_facts(), "\n- ".join(self._problem.facts)))
        parts.append(self._steps(worked, style, doubts=0.35 if effort >= 2 else 0.0))
        if effort == 1:
            parts.append(self._short_check(worked))
        for again in range((0, 0, 1, 3)[effort]):
            parts.append(self._long_check(worked, again))
        result = f"{_number(worked[-1].value)} {worked[-1].step.unit}"
        parts.append(self._choose("closing", CLOSINGS).format(goal=goal, result=result))
        return "\n\n".join(parts) + f"\nAnswer: {_number(worked[-1].value)}"

    def _choose(self, question: str, choices: Sequence[str]) -> str:
        return self._habit.choose(self._dice, question, choices)

    def _join_facts(self) -> str:
        facts = self._problem.facts
        return ", ".join(facts[:-1]) + ", and " + facts[-1]

    def _equation(self, left: Fraction, op: str, right: Fraction, value: Fraction) -> str:
        sign = self._signs.get(op, op)
        return f"{_number(left)} {sign} {_number(right)} = {_number(value)}"

    def _steps(self, worked: Sequence[Worked], style: str, doubts: float) -> str:
        separator, templates = STYLES[style]
        lines = []
        for i, w in enumerate(worked):
            template = self._choose(f"{style} {i}", templates)
            line = template.format(
                n=i + 1,
                connect=CONNECT[min(i, 1)] if i < 2 else self._choose(f"connect {i}", CONNECT),
                what=w.step.what,
                What=w.step.what[0].upper() + w.step.what[1:],
                eq=self._equation(w.left, w.step.op, w.right, w.value),
                unit=w.step.unit,
                verb=VERBS[w.step.op].format(_number(w.left), _number(w.right)),
                letter="xyzuvw"[i],
            )
            if self._dice.chance(doubts):
                line += self._doubt(w)
            lines.append(line)
        return separator.join(lines)

    def _doubt(self, w: Worked) -> str:
        """A wrong idea, worked out rightly and dropped."""
        op = {"+": "*", "-": "+", "*": "+", "/": "-"}[w.step.op]
        if op == "-" and w.left <= w.right:
            op = "+"
        other = apply(op, w.left, w.right)
        idea = self._equation(w.left, op, w.right, other)
        return self._dice.pick(DOUBTS).format(
            verb=VERBS[op].format(_number(w.left), _number(w.right)),
            idea=idea,
            reason=self._dice.pick(REASONS[w.step.op]),
            value=_number(w.value),
            unit=w.step.unit,
        )

    def _short_check(self, worked: Sequence[Worked]) -> str:
        sound = [w for w in worked if not w.slip]
        if not sound:
            return "The numbers look reasonable."
        return self._choose("check", CHECKS).format(self._inverse(sound[-1]))

    def _inverse(self, w: Worked) -> str:
        """The step backwards: ``a + b = c`` is checked by ``c - b = a``."""
        if w.step.op == "*" and not w.right:
            return self._equation(w.left, "*", w.right, w.value)
        op = {"+": "-", "-": "+", "*": "/", "/": "*"}[w.step.op]
        return self._equation(w.value, op, w.right, w.left)

    def _long_check(self, worked: Sequence[Worked], again: int) -> str:
        """Reread the problem, check each step backwards and in parts, then solve it once more."""
        dice = self._dice
        lines = [dice.pick(REREAD).format(self._problem.text)]
        for w in worked:
            if w.slip:
                lines.append(f"For {w.step.what} I had {_number(w.value)}, that looks right.")
                continue
            check = dice.pick(BACKWARDS).format(what=w.step.what, eq=self._inverse(w))
            lines.append(check + self._in_parts(w))
        style = dice.pick(tuple(STYLES))
        lines.append(dice.pick(AGAIN[again > 0]))
        lines.append(self._steps(worked, style, doubts=0.3))
        lines.append(dice.pick(AGREE).format(_number(worked[-1].value)))
        return "\n".join(lines)

    def _in_parts(self, w: Worked) -> str:
        """A product by tens and ones, where it has both: 48 * 7 = 40 * 7 + 8 * 7."""
        if w.step.op != "*" or w.left.denominator != 1 or w.left < 11 or w.left % 10 == 0:
            return ""
        ones = w.left % 10
        tens = w.left - ones
        a, b = tens * w.right, ones * w.right
        return self._dice.pick(PARTS).format(
            self._equation(tens, "*", w.right, a),
            self._equation(ones, "*", w.right, b),
            self._equation(a, "+", b, a + b),
        )


def _number(value: Operand | Fraction) -> str:
    """Whole numbers plainly, others with two decimals."""
    if isinstance(value, Fraction) and value.denominator != 1:
        return f"{float(value):.2f}"
    return str(int(value))


OPENINGS = (
    "Let's work through this step by step.",
    "I will find the answer one step at a time.",
    "Okay, let me think about what the question asks.",
    "We are looking for {goal}.",
    "To find {goal}, I start from what is given.",
    "The question asks for {goal}, so I need a few steps to get there.",
)
FACTS = (
    "",
    "",
    "We know that {0}.",
    "From the text: {0}.",
    "What is given:\n- {1}",
    "Let me write down the numbers first: {0}.",
)
STYLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "steps": (
        "\n",
        (
            "Step {n}: find {what}.\n{eq} {unit}.",
            "Step {n}: {What}. I {verb}: {eq} {unit}.",
            "Step {n}. We {verb} to get {what}: {eq}.",
        ),
    ),
    "prose": (
        " ",
        (
            "{connect}, I need {what}: {eq} {unit}.",
            "{connect}, I {verb}, which gives {what}: {eq} {unit}.",
            "To get {what}, I {verb}, so {eq} {unit}.",
            "For {what} I get {eq}.",
        ),
    ),
    "bullets": (
        "\n",
        ("- {What}: {eq} {unit}", "- {eq} {unit} ({what})", "- {connect} {what}: {eq}"),
    ),
    "algebra": (
        "\n",
        (
            "Let {letter} be {what}. Then {letter} = {eq}.",
            "Call {what} {letter}. We {verb}, so {letter} = {eq} {unit}.",
        ),
    ),
    "numbered": (
        "\n",
        (
            "{n}. {What}: {eq} {unit}.",
            "{n}. {connect} we {verb}. {eq} {unit}.",
            "{n}. We want {what}. {eq}.",
        ),
    ),
}
CONNECT = ("First", "Next", "Then", "After that", "Now", "With this")
VERBS = {
    "+": "add {0} and {1}",
    "-": "take {1} away from {0}",
    "*": "multiply {0} by {1}",
    "/": "divide {0} by {1}",
}
CHECKS = (
    "Check: {0}, which fits.",
    "As a quick check, {0}, so the last step is right.",
    "Going backwards, {0}. Good.",
    "Let me verify the last step: {0}. That matches.",
)
DOUBTS = (
    " Wait, should I {verb} instead? That would give {idea}. No, {reason}, so it stays {value}.",
    " Hmm, one could also {verb} and get {idea}, but {reason}. I keep {value} {unit}.",
    " Hold on. If I {verb}, I get {idea}. But {reason}. So {value} is what I want.",
    " Actually, let me think again. {idea} would be another way to combine them, but {reason}.",
)
REASONS = {
    "+": (
        "these two amounts belong together, they do not repeat each other",
        "the question wants both of them in one total",
    ),
    "-": (
        "this part is taken out, it does not come on top",
        "what is gone cannot be counted twice",
    ),
    "*": (
        "the same amount comes again and again, so a sum of the two would be too small",
        "each one of them counts in full, so I have to multiply",
    ),
    "/": (
        "it is split into equal parts, it does not just get a little smaller",
        "the parts are all the same size, so this is a division",
    ),
}
REREAD = (
    "Let me read the problem once more before I answer. It says: {0}",
    "Before I give the answer I want to be sure that I used every number. The text was: {0}",
    "Let me double-check everything. The problem again: {0}",
)
BACKWARDS = (
    "Check of {what}: {eq}, fine.",
    "For {what} I go backwards: {eq}. That works.",
    "Is {what} right? {eq}. Yes.",
    "{eq}, so {what} is consistent with what was given.",
)
PARTS = (
    " In parts: {0} and {1}, together {2}.",
    " By tens and ones: {0}, {1}, and then {2}. The same number.",
)
AGAIN = (
    (
        "Now let me solve it again in another way, to be safe.",
        "I want to write the whole solution down once more, in a different form.",
    ),
    (
        "One more time, slowly, because a small mistake would change everything.",
        "I am still not fully sure, so I go through all the steps another time.",
        "Let me try yet another way of writing this down.",
    ),
)
AGREE = (
    "Again I get {0}, so both ways agree.",
    "The result is {0} as before.",
    "That gives {0} once more, which makes me more confident.",
)
CLOSINGS = (
    "So the result is {result}.",
    "Therefore, {goal}: {result}.",
    "That means the answer is {result}.",
    "This is what was asked for: {result}.",
)
