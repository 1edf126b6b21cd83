"""Gates for a team's CI: ``paid>1`` fails where the figure ``paid`` of an advice is above 1."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping

Figures = Mapping[str, float | int | None]

_FORM = re.compile(r"\s*([a-z_]\w*)\s*(<=|>=|==|!=|<|>)\s*([\w.+-]+)\s*")
_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class GateError(ValueError):
    """A gate cannot be read; the message says how one is written."""


def broken_gates(gates: Iterable[str], figures: Figures) -> list[str]:
    """A sentence for each gate ``FIGURE OP NUMBER_OR_FIGURE`` that holds, or cannot be judged.

    A figure that is not known breaks its gate: nobody has looked. Raises GateError.
    """
    broken = []
    for gate in gates:
        found = _FORM.fullmatch(gate)
        if found is None:
            raise GateError(
                f"--fail-if {gate!r}: write a figure, one of {' '.join(_HOLDS)}, and a number or "
                'another figure, such as "paid>1".'
            )
        name, sign, text = found.groups()
        left, right = _figure(gate, name, figures), _side(gate, text, figures)
        unknown = [n for n, value in ((name, left), (text, right)) if value is None]
        if unknown:
            broken.append(f"{gate}: {' and '.join(unknown)} is not known here.")
        elif left is not None and right is not None and _HOLDS[sign](left, right):
            broken.append(f"{gate}: {name} is {left:.10g}.")
    return broken


def _side(gate: str, text: str, figures: Figures) -> float | int | None:
    try:
        number = float(text)
    except ValueError:
        return _figure(gate, text, figures)
    if not math.isfinite(number):
        raise GateError(f"--fail-if {gate!r}: {text} is no number to compare with.")
    return number


def _figure(gate: str, name: str, figures: Figures) -> float | int | None:
    if name not in figures:
        raise GateError(
            f"--fail-if {gate!r}: {name} is no figure; figures are {', '.join(figures)}."
        )
    return figures[name]
