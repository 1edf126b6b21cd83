"""Two datasets, plans or runs side by side: the same measures, and their differences as numbers.

Notable:
- a figure that one side lacks is listed without a difference, never guessed
- neither side is called better where the figures do not compare: other rows, another model, a
  measured time against an estimated one, spreads that overlap
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuning.plan.numbers import UNKNOWN, compared, number, rounded
from tuning.plan.plan import Layout
from tuning.workspace.compare_side import (
    MODES,
    PAID,
    PAID_RATIO,
    SPEED,
    STEP,
    TOKENS,
    Measure,
    Side,
    StepAt,
)

_MANY_TIMES = 10.0
_SAME = 5e-4


@dataclass(frozen=True)
class ComparedFigure:
    """A measure of both sides. difference: b − a; ratio: b / a; None where a side lacks it.

    winner: "a", "b", or nothing where neither is better; note: why neither is, though they differ
    """

    name: str
    a: float | int | None
    b: float | int | None
    kind_a: str
    kind_b: str
    difference: float | int | None
    ratio: float | None
    winner: str
    note: str = ""

    @property
    def kinds(self) -> str:
        """``measured``, or ``A measured, B estimated``."""
        if self.kind_a == self.kind_b:
            return self.kind_a
        return f"A {self.kind_a}, B {self.kind_b}"


@dataclass(frozen=True)
class CapLine:
    """Steps of both sides in a mode at a cap; a kind says why there are no seconds, too."""

    mode: Layout
    max_tokens_per_mb: int
    a_s: float | None
    a_kind: str
    b_s: float | None
    b_kind: str
    ratio: float | None


@dataclass(frozen=True)
class Compared:
    """The comparison as plain values.

    sentence: what matters; lines: the measures; caps: every step of either side
    changed:  settings that differ: name, a's, b's; notes: what to keep in mind while reading it
    """

    a: str
    b: str
    sentence: str
    lines: tuple[ComparedFigure, ...]
    caps: tuple[CapLine, ...]
    changed: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(a: Side, b: Side) -> Compared:
    """Measures in the order of ``a``, then those that only ``b`` has."""
    mine = {one.name: one for one in a.measures}
    theirs = {one.name: one for one in b.measures}
    names = [*mine, *(name for name in theirs if name not in mine)]
    lines = {name: _line(a, b, mine.get(name), theirs.get(name), name) for name in names}
    keys = [*a.settings, *(key for key in b.settings if key not in a.settings)]
    changed = tuple(
        (key, a.settings.get(key, "–"), b.settings.get(key, "–"))
        for key in keys
        if a.settings.get(key) != b.settings.get(key)
    )
    return Compared(
        a.title,
        b.title,
        _sentence(a, b, lines),
        tuple(lines.values()),
        _caps(a.steps, b.steps),
        changed,
        tuple(_notes(a, b, lines)),
    )


def same_rows(a: Side, b: Side) -> bool:
    """Whether both sides are of the same rows, as far as their fingerprints are known."""
    return bool(a.data) and a.data == b.data


def _line(
    a: Side, b: Side, one: Measure | None, other: Measure | None, name: str
) -> ComparedFigure:
    values = [None if m is None else m.value for m in (one, other)]
    kinds = ["" if m is None or m.value is None else m.kind for m in (one, other)]
    first, second = values
    if one is None or other is None or first is None or second is None:
        return ComparedFigure(name, first, second, kinds[0], kinds[1], None, None, "")
    difference = second - first
    winner, note = "", ""
    if one.better and difference:
        note = _why_not(a, b, one, other)
        if not note:
            winner = "b" if (difference < 0) == (one.better == "less") else "a"
    ratio = second / first if first else None
    return ComparedFigure(name, first, second, kinds[0], kinds[1], difference, ratio, winner, note)


def _why_not(a: Side, b: Side, one: Measure, other: Measure) -> str:
    """What keeps two figures from saying which side is better; empty where nothing does."""
    if one.same_rows and not same_rows(a, b):
        return "other rows"
    if one.kind == other.kind == "exact":
        return ""
    if one.kind != other.kind:
        return f"{one.kind} against {other.kind}"
    if a.settings.get("model") != b.settings.get("model"):
        return "another model"
    if None in (one.low, one.high, other.low, other.high):
        return ""
    apart = one.high < other.low or other.high < one.low  # type: ignore[operator]
    return "" if apart else "spreads overlap" if one.kind == "measured" else "bands overlap"


def _caps(a: tuple[StepAt, ...], b: tuple[StepAt, ...]) -> tuple[CapLine, ...]:
    sides = [{(one.mode, one.max_tokens_per_mb): one for one in steps} for steps in (a, b)]
    lines = []
    for key in sorted(sides[0].keys() | sides[1].keys(), key=lambda k: (MODES.index(k[0]), k[1])):
        one, other = (side.get(key) for side in sides)
        a_s, b_s = (None if step is None else step.seconds for step in (one, other))
        a_kind, b_kind = ("not timed" if step is None else step.kind for step in (one, other))
        ratio = b_s / a_s if a_s and b_s else None
        lines.append(CapLine(*key, a_s, a_kind, b_s, b_kind, ratio))
    return tuple(lines)


def _sentence(a: Side, b: Side, lines: Mapping[str, ComparedFigure]) -> str:
    """What matters, in one sentence or two."""
    stopped = [f"{name} cannot run: {side.refused}" for name, side in _named(a, b) if side.refused]
    if stopped:
        return " ".join(one if one.endswith(("!", ".")) else f"{one}." for one in stopped)
    same = same_rows(a, b)
    tokens, fewer = _tokens_clause(lines.get(PAID if same else PAID_RATIO), same)
    named = not fewer
    speed, faster = _speed_clause(a, b, lines.get(STEP if same else SPEED), same, named)
    if not tokens:
        return speed[:1].upper() + speed[1:] + "."
    joint = "; " if faster is None or not fewer else ", and " if faster == (fewer < 0) else ", but "
    return f"{tokens}{joint}{speed}."


def _tokens_clause(line: ComparedFigure | None, same: bool) -> tuple[str, int]:
    """The clause, and whether B computes fewer (-1), as many (0) or more (1) tokens."""
    if line is None or line.ratio is None or line.a is None or line.b is None:
        return "", 0
    ratio = line.ratio
    if abs(ratio - 1) < _SAME:
        per = "" if same else " for each of its own"
        return f"A and B compute the same number of tokens{per} (exact)", 0
    sign = 1 if ratio > 1 else -1
    amount = compared(ratio, "tokens", "A")
    if same:
        return f"B computes {amount} (exact)", sign
    return (
        f"B computes {amount} for each of its own ({line.b:.2f} instead of {line.a:.2f}, exact)",
        sign,
    )


def _speed_clause(
    a: Side, b: Side, line: ComparedFigure | None, same: bool, named: bool
) -> tuple[str, bool | None]:
    """The clause, and whether B is faster; None where that is not known.

    named: B is called by its name, as nothing before has spoken of it
    """
    timed = [] if line is None else [line.a is not None, line.b is not None]
    if line is None or not any(timed):
        return "no step of either has been timed at its cap", None
    if line.ratio is None:
        return f"no step of {'B' if timed[0] else 'A'} has been timed at its cap", None
    kinds = line.kinds
    if line.note in ("spreads overlap", "bands overlap"):
        return f"their steps take about as long ({kinds}, {line.note})", None
    speed = 1 / line.ratio if same else line.ratio
    also = [f" on another machine ({b.where})"] if a.where != b.where else []
    if a.settings.get("model") != b.settings.get("model"):
        also.append(" with another model")
    if same:
        told = f"is {speed:,.2f}× as fast" if speed >= 1 else f"takes {1 / speed:,.2f}× as long"
        step = "B's step" if named else "its step"
        return f"{step} {told}{' and'.join(also)} ({kinds})", speed > 1
    told = f"{speed:,.2f}×" if speed >= 1 else f"{speed:.0%}"
    who = "B" if named else "it"
    there = " and".join(also)
    return f"{who} trains {told} as many tokens a second{there} ({kinds})", speed > 1


def _named(a: Side, b: Side) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("A", a), ("B", b)


def _notes(a: Side, b: Side, lines: Mapping[str, ComparedFigure]) -> list[str]:
    notes = []
    timed = [line for name, line in lines.items() if name.startswith("step") and line.ratio]
    if timed and a.where != b.where:
        notes.append(f"The times are of different machines ({a.where}; {b.where}).")
    if timed and a.settings.get("model") != b.settings.get("model"):
        notes.append("The times are of different models.")
    if any(line.kind_a != line.kind_b for line in timed):
        notes.append("A measured time stands against an estimated one; see the kinds.")
    tokens = lines.get(TOKENS)
    if timed and tokens is not None and tokens.difference:
        notes.append("The batches differ in tokens: compare tokens/s, not the seconds of a step.")
    return notes


def written(value: float | int | None, signed: bool = False) -> str:
    """A figure as people read it: four digits, or all of a count."""
    plus = "+" if signed and value is not None and value > 0 else ""
    return plus + (number(value) if isinstance(value, int) else rounded(value, 4))


def percent(line: ComparedFigure) -> str:
    """The difference in percent of A, or how many times A."""
    if line.ratio is None or line.difference is None:
        return UNKNOWN
    if line.ratio >= _MANY_TIMES:
        return f"× {number(line.ratio, ',.0f')}"
    return number(line.ratio - 1, "+.1%") if line.difference else "0%"
