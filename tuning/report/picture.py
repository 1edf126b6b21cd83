"""Before and after as SVG: the same lines as ``figures.before_after``, without plotly."""

from __future__ import annotations

from collections.abc import Mapping

from tuning.batch_picture import BatchPicture, Panel
from tuning.points import Mode
from tuning.report import svg

_PARTS = (
    ("first", "blue flat", "computed once"),
    ("again", "orange flat", "the same prefix, computed again"),
    ("padding", "pad", "padding and waiting"),
)
_TOP, _HEIGHT, _GAP = 66, 300, 18


def before_after_svg(picture: BatchPicture, steps: Mapping[Mode, str]) -> str:
    """Panels side by side, both axes of one scale: equal areas are equal work."""
    panels = picture.panels
    column = (svg.WIDTH - _GAP * (len(panels) - 1)) / max(len(panels), 1)
    widest = max((_width(panel) for panel in panels), default=1.0) or 1.0
    tallest = max((panel.lines for panel in panels), default=1)
    body: list[str] = []
    for at, panel in enumerate(panels):
        left = at * (column + _GAP)
        ratio = panel.tokens / max(picture.original_tokens, 1)
        body += [
            svg.text(left, 14, panel.title),
            svg.text(left, 32, f"{panel.tokens:,} tokens computed ({ratio:.2f} ×)", "dim"),
            svg.text(left, 50, f"step: {steps.get(panel.mode, 'not measured')}", "dim"),
            svg.line(left, _TOP - 6, left + column, _TOP - 6, "grid"),
        ]
        body += _bands(panel, left, column / widest, _HEIGHT / tallest)
    foot = _TOP + _HEIGHT + 26
    x = 0.0
    for _, css, label in _PARTS:
        body += [svg.rect(x, foot - 10, 12, 12, css), svg.text(x + 18, foot, label, "dim")]
        x += 34 + 7 * len(label)
    described = "; ".join(f"{p.title}, {p.tokens:,} tokens computed" for p in panels)
    return svg.figure(body, foot + 8, f"The same batch, to scale. {described}")


def _bands(panel: Panel, left: float, per_token: float, per_line: float) -> list[str]:
    body, top = [], float(_TOP)
    for band in panel.bands:
        height = band.lines * per_line
        x = left
        for name, css, label in _PARTS:
            tokens = getattr(band, name)
            if tokens:
                title = f"{tokens:,.0f} tokens a line, {label} ({band.lines:,} lines)"
                thick = height * 0.9 if height > 3 else height
                body.append(svg.rect(x, top, tokens * per_token, thick, css, title))
            x += tokens * per_token
        top += height
    return body


def _width(panel: Panel) -> float:
    return max((b.first + b.again + b.padding for b in panel.bands), default=1.0)
