"""One batch three ways, to scale: a bar a mode, as long as its tokens, made of areas of tokens.

Notable:
- lengths compare modes, areas compare anything: equal areas are equal tokens in all three bars
- a bar is sliced into its lines (rows, micro-batches, trees), or runs of lines, in their order; a
  slice is as wide as what it computes, and its heights are the parts of that
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuning.plan.numbers import many, number, percent
from tuning.plan.picture import BatchPicture, Panel
from tuning.plan.plan import Layout
from tuning.report.figures import chart

Part = Literal["first", "again", "padding"]

PARTS: dict[Part, tuple[str, str]] = {
    "first": ("blue", "computed once"),
    "again": ("orange", "the same prefix, computed again"),
    "padding": ("grey", "padding and waiting"),
}
"""Colour and name of each part of a bar, from the bottom up."""


@dataclass(frozen=True)
class Mark:
    """One part of ``lines`` neighbouring lines, so many tokens of each on average.

    left, width: shares of the longest bar; top, height: shares of the bar's height; from the top
    down padding, again, first
    """

    part: Part
    tokens: float
    lines: int
    left: float
    top: float
    width: float
    height: float

    @property
    def said(self) -> str:
        words = f"{number(self.tokens, ',.0f')} tokens a line, {PARTS[self.part][1]}"
        return f"{words} ({many(self.lines, 'line')})"


@dataclass(frozen=True)
class Bar:
    """A mode; length: share of the longest bar."""

    panel: Panel
    length: float
    marks: tuple[Mark, ...]


def bars(picture: BatchPicture) -> tuple[Bar, ...]:
    """A bar of each panel, at most 90 marks each."""
    longest = max((panel.tokens for panel in picture.panels), default=0) or 1
    return tuple(
        Bar(panel, panel.tokens / longest, _marks(panel, longest)) for panel in picture.panels
    )


def _marks(panel: Panel, longest: int) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    left = 0.0
    for band in panel.bands:
        line = band.first + band.again + band.padding
        width = line * band.lines / longest
        top = 0.0
        for part in reversed(PARTS):
            tokens: float = getattr(band, part)
            if tokens:
                height = tokens / line
                marks.append(Mark(part, tokens, band.lines, left, top, width, height))
                top += height
        left += width
    return tuple(marks)


def before_after_chart(picture: BatchPicture, steps: Mapping[Layout, str]) -> chart.Chart:
    """A bar a mode, one below the other; steps: how long a step takes, in words."""
    panels = []
    padded = sum(panel.tokens for panel in picture.panels if panel.mode == "padded")
    for bar in bars(picture):
        panel = bar.panel
        share = number(panel.tokens / max(picture.original_tokens, 1), ".2f")
        words = f"{number(panel.tokens)} tokens computed ({share} × those of the rows"
        if panel.mode != "padded":
            words += f", {percent(panel.tokens / max(padded, 1))} of padded"
        areas = [
            chart.Area(m.left, m.top, m.width, m.height, PARTS[m.part][0], m.said)
            for m in bar.marks
        ]
        step = steps.get(panel.mode, "not measured")
        subtitle = f"{words}) · step: {step}"
        panels.append(chart.Panel(panel.title, 64, areas=tuple(areas), subtitle=subtitle))
    told = "; ".join(f"{p.title}, {number(p.tokens)} tokens computed" for p in picture.panels)
    described = f"The same batch, to scale. {told}"
    return chart.Chart(tuple(panels), described, parts=tuple(PARTS.values()))
