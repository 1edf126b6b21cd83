"""Before and after as SVG: the bars of ``figures.before_after``, for a page without script."""

from __future__ import annotations

from collections.abc import Mapping

from tuning.plan.picture import BatchPicture
from tuning.plan.plan import Layout
from tuning.report import svg
from tuning.report.figures.before_after import Bar, bars

_PARTS = {
    "first": ("blue flat", "computed once"),
    "again": ("orange flat", "the same prefix, computed again"),
    "padding": ("pad", "padding and waiting"),
}
_WORDS, _HEIGHT, _GAP = 40, 64, 22
_SEAM = 0.6  # between slices, where there is room for it


def before_after_svg(picture: BatchPicture, steps: Mapping[Layout, str]) -> str:
    """A bar a mode, one below the other, to one scale: equal areas are equal tokens."""
    body: list[str] = []
    top = 0.0
    for bar in bars(picture):
        body += _bar(bar, top, picture.original_tokens, steps)
        top += _WORDS + _HEIGHT + _GAP
    foot = top + 10
    x = 0.0
    for css, label in _PARTS.values():
        body += [svg.rect(x, foot - 10, 12, 12, css), svg.text(x + 18, foot, label, "dim")]
        x += 34 + 7 * len(label)
    described = "; ".join(f"{p.title}, {p.tokens:,} tokens computed" for p in picture.panels)
    return svg.figure(body, foot + 8, f"The same batch, to scale. {described}")


def _bar(bar: Bar, top: float, original_tokens: int, steps: Mapping[Layout, str]) -> list[str]:
    panel = bar.panel
    ratio = panel.tokens / max(original_tokens, 1)
    said = f"{panel.tokens:,} tokens computed ({ratio:.2f} ×)"
    step = f"step: {steps.get(panel.mode, 'not measured')}"
    body = [
        svg.text(0, top + 14, panel.title),
        svg.text(0, top + 32, f"{said} · {step}", "dim"),
    ]
    for mark in bar.marks:
        css, label = _PARTS[mark.part]
        title = f"{mark.tokens:,.0f} tokens a line, {label} ({mark.lines:,} lines)"
        width = mark.width * svg.WIDTH
        seam = _SEAM if width > 4 * _SEAM else 0.0
        at = top + _WORDS + mark.top * _HEIGHT
        body.append(
            svg.rect(mark.left * svg.WIDTH, at, width - seam, mark.height * _HEIGHT, css, title)
        )
    return body
