"""One batch three ways, to scale: a bar a mode, as long as its tokens, made of areas of tokens.

Notable:
- lengths compare modes, areas compare anything: equal areas are equal tokens in all three bars
- a bar is sliced into its lines (rows, micro-batches, trees), or runs of lines, in their order; a
  slice is as wide as what it computes, and its heights are the parts of that
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tuning.plan.picture import BatchPicture, Panel

Part = Literal["first", "again", "padding"]


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
        for part in reversed(get_args(Part)):
            tokens: float = getattr(band, part)
            if tokens:
                height = tokens / line
                marks.append(Mark(part, tokens, band.lines, left, top, width, height))
                top += height
        left += width
    return tuple(marks)
