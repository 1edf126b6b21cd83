"""A chart as data: panels over one axis of caps, what is drawn in them, and in which colours.

``plotly_figure`` draws it for a page, ``svg_figure`` for a report or a slide; neither adds a fact.

Notable:
- no library is needed, so that a report is made where no page runs
- one colour for one thing: a packer, flat and padded rows, memory, a limit; each as it is on a
  light page and on a dark one (Okabe and Ito's, told apart by dash and symbol too)
- a curve of counted figures is joined only where it is known (``true_path``)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tuning.plan.numbers import number, rounded

PALETTE = {
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#e69f00", "#e69f00"),
    "green": ("#009e73", "#2fc79c"),
    "pink": ("#cc79a7", "#cc79a7"),
    "sky": ("#56b4e9", "#f0e442"),
    "red": ("#d55e00", "#ff8a3c"),
    "grey": ("#8a8f98", "#98a0a8"),
    "page": ("#fbfaf6", "#11161a"),
    "box": ("#f1efe6", "#1b2227"),
    "ink": ("#1f2623", "#e4e9e6"),
    "dim": ("#5a625d", "#a3ada8"),
    "edge": ("#d8d4c6", "#354048"),
}
"""Each colour on a light page and on a dark one."""

CAP_TITLE = "max_tokens_per_mb (log scale)"

COLORS = ("blue", "orange", "green", "pink", "sky", "red", "grey")
"""The colours of what is drawn; the others are the page's."""

Dash = Literal["solid", "dash", "dot", "dashdot"]
Dots = Literal[
    "full", "hollow", "square", "square-hollow", "small", "small-hollow", "small-square", "ring"
]

SERIES: dict[str, tuple[str, Dash, str]] = {
    "areal": ("blue", "solid", "AReaL's packer"),
    "prefix-aware": ("green", "dash", "Espalier's packer"),
    "flat": ("orange", "dot", "flat, as today"),
    "padded": ("grey", "dashdot", "padded rows"),
}
"""Colour, dash and name of each way to make micro-batches."""


_BEND = 0.1
"""A line that is straight over the cap is bent over its logarithm: points so near show it."""


class Point(NamedTuple):
    """y: None breaks a line; said: when pointed at; low, high: its spread; label: beside it"""

    x: float
    y: float | None
    said: str = ""
    low: float | None = None
    high: float | None = None
    label: str = ""


@dataclass(frozen=True)
class Series:
    """Points as a line, as dots, or the stretch between two of them in the whole panel.

    Without a name they are not in the legend.
    """

    name: str
    color: str
    points: tuple[Point, ...]
    line: Dash | None = None
    dots: Dots | None = None
    width: float = 2.0
    stretch: Literal["tinted", "hatched"] | None = None


@dataclass(frozen=True)
class Area:
    """A rectangle in shares of its panel, from the top left."""

    left: float
    top: float
    width: float
    height: float
    color: str
    said: str


@dataclass(frozen=True)
class Panel:
    """One of the drawings above each other, ``height`` pixels high.

    low, high: ends of its axis, which is logarithmic where ``low`` is above 0
    """

    title: str
    height: float
    high: float = 1.0
    series: tuple[Series, ...] = ()
    areas: tuple[Area, ...] = ()
    low: float = 0.0
    subtitle: str = ""

    @property
    def axis_title(self) -> str:
        """The title, which says where the axis is logarithmic."""
        return f"{self.title} (log scale)" if self.low > 0 else self.title

    @property
    def ticks(self) -> dict[float, str]:
        """Round values of the axis, and how they are written."""
        values = wide_ticks(self.low, self.high) if self.low > 0 else even_ticks(self.high)
        return {value: rounded(value, 6) for value in values}


@dataclass(frozen=True)
class Chart:
    """Panels from the top down, over one logarithmic axis of caps where there is ``caps``.

    described: for those who do not see it; caps: the ends of the axis
    parts:     colours of areas, and what they are
    """

    panels: tuple[Panel, ...]
    described: str
    caps: tuple[float, float] | None = None
    parts: tuple[tuple[str, str], ...] = ()

    @property
    def cap_ticks(self) -> dict[float, str]:
        return {cap: number(cap) for cap in cap_ticks(*self.caps)} if self.caps else {}


def true_path(
    points: Sequence[Point], keys: Sequence[Hashable], step: float, rising: bool = False
) -> tuple[Point, ...]:
    """A line through counted points that says nothing of what lies between and was not counted.

    points: by ascending x; keys: one each. Neighbours of equal keys are joined: what is paid rises
    with the cap in proportion while the trees are as many, which is no straight line over a
    logarithmic axis. Of others, those at most ``step`` apart have no cap between them, and there
    is an upright jump, up to which the value stays or (``rising``) goes on rising; else a gap.
    """
    path: list[Point] = []
    for at, point in enumerate(points):
        before = points[at - 1]
        if at and before.y is not None and point.y is not None:
            if keys[at - 1] == keys[at]:
                pieces = math.ceil(math.log(point.x / before.x) / _BEND)
                for k in range(1, pieces):
                    x = before.x + (point.x - before.x) * k / pieces
                    path.append(Point(x, before.y + (point.y - before.y) * k / pieces))
            elif point.x - before.x <= step:
                path.append(Point(point.x, before.y * (point.x / before.x if rising else 1)))
            else:
                path.append(Point(point.x, None))
        path.append(Point(point.x, point.y))
    return tuple(path)


def counted_curve(
    look: Series,
    keys: Sequence[Hashable],
    step: float,
    rising: bool = False,
    now: float | None = None,
) -> tuple[Series, ...]:
    """Counted points as dots, joined as ``true_path`` does; the label at ``now`` is written out.

    look: the points with their labels, as dots and line are to look
    """
    path = true_path(look.points, keys, step, rising)
    marked = tuple(point for point in look.points if point.x == now and point.label)
    dots = tuple(point._replace(label="") for point in look.points)
    return (
        replace(look, name="", points=path, dots=None),
        replace(look, points=dots, line=None),
        *([Series("", look.color, marked, dots="ring")] if marked else []),
    )


def even_ticks(high: float) -> list[float]:
    """About four round values from 0 to ``high``."""
    rough = high / 4
    unit = 10 ** math.floor(math.log10(rough))
    step = next(f * unit for f in (1, 2, 2.5, 5, 10) if f * unit >= rough * (1 - 1e-9))
    return [round(k * step, 10) for k in range(int(high / step * (1 + 1e-9)) + 1)]


def wide_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, … from ``low`` to ``high``; powers of ten alone where there are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [digit * 10.0**k for k in decades for digit in (1, 2, 5)]
    inside = [tick for tick in every if low <= tick * (1 + 1e-9) and tick <= high * (1 + 1e-9)]
    tens = [tick for tick in inside if tick in every[::3]]
    return inside if len(inside) <= 7 else tens


def cap_ticks(first: float, last: float) -> list[int]:
    """Powers of two, with the halves between where there are few."""
    powers = [2**k for k in range(5, 26)]
    for choice in (powers, sorted(powers + [3 * p // 2 for p in powers])):
        inside = [cap for cap in choice if first <= cap <= last]
        if len(inside) >= 3:
            return inside[:: max(-(-len(inside) // 9), 1)]
    return [math.ceil(first), math.floor(last)]
