"""A chart as SVG: sharp in print, without a script, in the reader's light or dark."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from tuning.report.escape import esc
from tuning.report.figures.chart import CAP_TITLE, COLORS, PALETTE, Chart, Panel, Series

WIDTH = 920
"""Units across a figure; it scales to the page."""

_LEFT, _RIGHT, _GAP = 58.0, WIDTH - 12.0, 30.0
_LETTER = 6.1  # the width of a letter of the legend, about
_SEAM = 0.6  # between areas, where there is room for it
_DASHES = {"solid": "none", "dash": "8 5", "dot": "2 4", "dashdot": "8 4 2 4"}
_HATCH = (
    '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="7" height="7" class="grey area" opacity=".2"/>'
    '<path d="M0 0V7" class="grey" opacity=".6"/></pattern></defs>'
)
Scale = Callable[[float], float]

STYLE = (
    "svg text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:var(--ink)}"
    "svg .dim{fill:var(--dim)}svg .end{text-anchor:end}svg .middle{text-anchor:middle}"
    ".grid{stroke:var(--edge)}.axis{stroke:var(--grey)}svg .line,svg .ring{fill:none}"
    "svg .hollow{fill:var(--page)}svg .tint{opacity:.14;stroke:none}svg .area{stroke:none}"
    + "".join(f".{name}{{fill:var(--{name});stroke:var(--{name})}}" for name in COLORS)
)
"""Rules of all charts; ``variables`` has the colours."""


def variables(dark: bool) -> str:
    """The palette as CSS variables."""
    return "".join(f"--{name}:{pair[dark]};" for name, pair in PALETTE.items())


def svg_figure(chart: Chart) -> str:
    """A whole figure without its colours, for a page that has ``STYLE`` and ``variables``."""
    body, top = _legend(chart)
    top += 16 if chart.caps else 0
    for panel in chart.panels:
        body += _panel(chart, panel, top) if chart.caps else _areas(panel, top)
        top += panel.height + (_GAP if chart.caps else 62)
    if chart.caps:
        x = _scale(chart.caps, _LEFT, _RIGHT)
        ticks = chart.cap_ticks.items()
        body += [_text(x(cap), top - 12, text, "dim middle") for cap, text in ticks]
        body.append(_text((_LEFT + _RIGHT) / 2, top + 8, CAP_TITLE, "middle"))
        top += 14
    return (
        f'<svg viewBox="0 0 {WIDTH} {top:.0f}" role="img" aria-label="{esc(chart.described)}" '
        f'xmlns="http://www.w3.org/2000/svg">{_HATCH}{"".join(body)}</svg>'
    )


def standalone(svg: str, caption: str) -> str:
    """The same as a file of its own: its size, light colours, and where its figures are from."""
    found = re.search(rf'viewBox="0 0 {WIDTH} (\d+)"', svg)
    assert found is not None
    height = int(found[1]) + 24
    style = re.sub(r"var\(--(\w+)\)", lambda name: PALETTE[name[1]][0], STYLE)
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head, body = svg.replace(found[0], size, 1).split(">", 1)
    page = f'<rect width="{WIDTH}" height="{height}" fill="{PALETTE["page"][0]}"/>'
    foot = _text(2, height - 8, caption, "dim")
    return f"{head}>{page}<style>{style}</style>{body.removesuffix('</svg>')}{foot}</svg>"


def _scale(ends: tuple[float, float], first: float, last: float, logarithmic: bool = True) -> Scale:
    """Where a value lies between ``first`` and ``last``; what is beyond an end lies there."""
    form: Scale = math.log if logarithmic else float
    low, high = map(form, ends)

    def place(value: float) -> float:
        share = (form(max(value, ends[0])) - low) / (high - low)
        return first + (last - first) * min(share, 1.0)

    return place


def _legend(chart: Chart) -> tuple[list[str], float]:
    """Its entries in as many lines as they need, and where the drawing begins."""
    series = sorted((s for p in chart.panels for s in p.series), key=lambda s: bool(s.stretch))
    entries: dict[str, Series | str] = {one.name: one for one in series if one.name}
    entries |= {words: color for color, words in chart.parts}
    body, x, y = [], 2.0, 14.0
    for name, entry in entries.items():
        width = 54 + _LETTER * len(name)
        if x > 2 and x + width > WIDTH:
            x, y = 2.0, y + 19
        if isinstance(entry, str):
            body.append(_rect(x + 14, y - 10, 12, 12, f"{entry} area", entry == "grey"))
        elif entry.stretch:
            body.append(_stretch(entry, x, x + 26, y - 10, 12))
        elif entry.dots:
            body.append(_dot(entry, x + 13, y - 4))
        else:
            body.append(_line(entry, f"M{x:.1f} {y - 4:.1f}h26"))
        body.append(_text(x + 34, y, name, "dim"))
        x += width
    return body, y + 16


def _panel(chart: Chart, panel: Panel, top: float) -> list[str]:
    bottom = top + panel.height
    x = _scale(chart.caps or (1, 2), _LEFT, _RIGHT)
    y = _scale((panel.low, panel.high), bottom, top, panel.low > 0)
    body = [_text(2, top - 8, panel.axis_title, "dim")]
    for value, text in panel.ticks.items():
        body.append(f'<path d="M{_LEFT:.0f} {y(value):.1f}H{_RIGHT:.0f}" class="grid"/>')
        body.append(_text(_LEFT - 8, y(value) + 4, text, "dim end"))
    for series in panel.series:
        if series.stretch:
            left, right = (x(point.x) for point in series.points)
            body.append(_stretch(series, left, right, top, panel.height))
        body += _drawn(series, x, y)
    return [*body, f'<path d="M{_LEFT:.0f} {bottom:.1f}H{_RIGHT:.0f}" class="axis"/>']


def _drawn(series: Series, x: Scale, y: Scale) -> list[str]:
    """The line with its dots and words."""
    body, pen, steps = [], "M", ""
    for point in series.points:
        at, height = x(point.x), y(point.y or 0.0)
        steps += f"{pen}{at:.1f} {height:.1f}" if point.y is not None else ""
        pen = "M" if point.y is None else "L"
        if point.low is not None and point.high is not None:
            ends = f"M{at:.1f} {y(point.low):.1f}V{y(point.high):.1f}"
            body.append(f'<path d="{ends}" class="{series.color}" stroke-width="1.4"/>')
        if series.dots:
            body.append(_dot(series, at, height, point.said))
        if point.label:
            css = "middle" if series.line else "end" if at > _RIGHT - 60 else ""
            aside = {"middle": 0, "end": -12, "": 12}[css]
            body.append(_text(at + aside, height - 6, point.label, css))
    return [_line(series, steps), *body] if series.line and "L" in steps else body


def _stretch(series: Series, left: float, right: float, top: float, height: float) -> str:
    css = f"{series.color} tint"
    hatched = series.stretch == "hatched"
    return _rect(left, top, right - left, height, css, hatched, series.name)


def _areas(panel: Panel, top: float) -> list[str]:
    """Areas without axes, below what is said of them; grey is waste, and hatched."""
    body = [_text(2, top + 4, panel.title), _text(2, top + 22, panel.subtitle, "dim")]
    for area in panel.areas:
        width, height = area.width * WIDTH, area.height * panel.height
        place = area.left * WIDTH, top + 30 + area.top * panel.height
        width -= _SEAM if width > 4 * _SEAM else 0.0
        css = f"{area.color} area"
        body.append(_rect(*place, width, height, css, area.color == "grey", area.said))
    return body


def _rect(
    x: float, y: float, width: float, height: float, css: str, hatched: bool, said: str = ""
) -> str:
    look = 'fill="url(#hatch)"' if hatched else f'class="{css}"'
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.2f}"'
    return f"<rect {size} {look}>{_title(said)}</rect>"


def _dot(series: Series, x: float, y: float, said: str = "") -> str:
    kind = series.dots or "full"
    size = 8.0 if kind == "ring" else 2.6 if kind.startswith("small") else 4.2
    css = "hollow" if kind.endswith("hollow") else kind
    look = f'class="{series.color} {css}" stroke-width="{2.5 if kind == "ring" else 1.4}"'
    if "square" in kind:
        corner = f'x="{x - size:.1f}" y="{y - size:.1f}"'
        return f'<rect {corner} width="{2 * size}" height="{2 * size}" {look}>{_title(said)}</rect>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {look}>{_title(said)}</circle>'


def _title(said: str) -> str:
    return f"<title>{esc(said)}</title>" if said else ""


def _line(series: Series, steps: str) -> str:
    dash = _DASHES[series.line or "solid"]
    look = f'class="{series.color} line" stroke-width="{series.width:g}"'
    return f'<path d="{steps}" {look} stroke-dasharray="{dash}"/>'


def _text(x: float, y: float, content: str, css: str = "") -> str:
    named = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{esc(content)}</text>'
