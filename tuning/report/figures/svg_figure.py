"""A chart as SVG: sharp in print, without a script, in the reader's light or dark."""

import math
import re
from collections.abc import Callable

from tuning.report.escape import esc
from tuning.report.figures.chart import COLORS, PALETTE, Chart, Panel, Region, Series

WIDTH = 920
"""Units across a figure; it scales to the page."""

_LEFT, _RIGHT, _GAP = 58.0, WIDTH - 12.0, 30.0
_LETTER = 6.1  # the width of a letter of the legend, about
_SEAM = 0.6  # between areas, where there is room for it
_DASHES = {"solid": "", "dash": "8 5", "dot": "2 4", "dashdot": "8 4 2 4"}

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
    if chart.uprights:
        top += 16
    for panel in chart.panels:
        body += _areas(panel, top) if panel.areas or panel.subtitle else _panel(chart, panel, top)
        top += panel.height + (_GAP if chart.caps else 62)
    if chart.caps:
        x = _across(chart.caps)
        body += [
            _text(x(cap), top - 12, text, "dim middle") for cap, text in chart.cap_ticks.items()
        ]
        body.append(_text((_LEFT + _RIGHT) / 2, top + 8, "max_tokens_per_mb", "middle"))
        top += 14
    hatch = (
        '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="7" height="7" class="grey area" opacity=".2"/>'
        '<path d="M0 0V7" class="grey" opacity=".6"/>'
        "</pattern></defs>"
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {top:.0f}" role="img" aria-label="{esc(chart.described)}" '
        f'xmlns="http://www.w3.org/2000/svg">{hatch}{"".join(body)}</svg>'
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


def _across(caps: tuple[float, float]) -> Callable[[float], float]:
    low, span = caps[0], math.log(caps[1] / caps[0])
    return lambda cap: _LEFT + (_RIGHT - _LEFT) * math.log(cap / low) / span


def _up(panel: Panel, top: float) -> Callable[[float], float]:
    scale: Callable[[float], float] = math.log if panel.low > 0 else float
    low, high = scale(panel.low), scale(panel.high)

    def y(value: float) -> float:
        share = (scale(max(value, panel.low)) - low) / (high - low)
        return top + panel.height * (1 - min(share, 1.0))

    return y


def _legend(chart: Chart) -> tuple[list[str], float]:
    """Its entries in as many lines as they need, and where the drawing begins."""
    entries: list[tuple[str, Series | Region | str]] = [
        (series.name, series) for panel in chart.panels for series in panel.series if series.name
    ]
    entries += [(region.name, region) for region in chart.regions]
    entries += [(words, color) for color, words in chart.parts]
    body, x, y = [], 2.0, 14.0
    for name, entry in entries:
        width = 54 + _LETTER * len(name)
        if x > 2 and x + width > WIDTH:
            x, y = 2.0, y + 19
        body += [_key(entry, x, y - 4), _text(x + 34, y, name, "dim")]
        x += width
    return body, y + 16


def _key(entry: Series | Region | str, x: float, y: float) -> str:
    if isinstance(entry, str):
        return _area(x + 14, y - 6, 12, 12, entry)
    if isinstance(entry, Region):
        return _region(entry, x, y - 6, 26, 12)
    if entry.dots:
        return _dot(entry, x + 13, y)
    return _line(entry, f"M{x:.1f} {y:.1f}h26")


def _panel(chart: Chart, panel: Panel, top: float) -> list[str]:
    assert chart.caps is not None
    x, y, bottom = _across(chart.caps), _up(panel, top), top + panel.height
    body = [_text(2, top - 8, panel.title, "dim")]
    for region in chart.regions:
        left, right = x(region.left), x(region.right)
        body.append(_region(region, left, top, right - left, panel.height))
    for value, text in panel.ticks.items():
        body.append(f'<path d="M{_LEFT:.0f} {y(value):.1f}H{_RIGHT:.0f}" class="grid"/>')
        body.append(_text(_LEFT - 8, y(value) + 4, text, "dim end"))
    for cap, words, color in chart.uprights:
        body.append(f'<path d="M{x(cap):.1f} {top:.1f}V{bottom:.1f}" class="{color}"/>')
        if panel is chart.panels[0]:
            body.append(_text(x(cap), top - 8, words, "middle"))
    for series in panel.series:
        body += _drawn(series, x, y)
    body.append(f'<path d="M{_LEFT:.0f} {bottom:.1f}H{_RIGHT:.0f}" class="axis"/>')
    return body


def _drawn(series: Series, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    if series.line:
        pen, steps = "M", ""
        for point in series.points:
            if point.y is not None:
                steps += f"{pen}{x(point.x):.1f} {y(point.y):.1f}"
            pen = "M" if point.y is None else "L"
        return [_line(series, steps)] if "L" in steps else []
    body = []
    for point in series.points:
        if point.y is None:
            continue
        at, height = x(point.x), y(point.y)
        if point.low is not None and point.high is not None:
            ends = f"M{at:.1f} {y(point.low):.1f}V{y(point.high):.1f}"
            body.append(f'<path d="{ends}" class="{series.color}" stroke-width="1.4"/>')
        body.append(_dot(series, at, height, point.said))
        if point.label:
            side = "end" if at > _RIGHT - 60 else ""
            body.append(_text(at + (-12 if side else 12), height - 6, point.label, side))
    return body


def _areas(panel: Panel, top: float) -> list[str]:
    body = [_text(2, top + 4, panel.title), _text(2, top + 22, panel.subtitle, "dim")]
    for area in panel.areas:
        width = area.width * WIDTH
        seam = _SEAM if width > 4 * _SEAM else 0.0
        at = top + 30 + area.top * panel.height
        size = (width - seam, area.height * panel.height)
        body.append(_area(area.left * WIDTH, at, *size, area.color, area.said))
    return body


def _area(x: float, y: float, width: float, height: float, color: str, said: str = "") -> str:
    """Grey is waste, and hatched."""
    return _rect(x, y, width, height, f'class="{color} area"', said, color == "grey")


def _region(region: Region, x: float, y: float, width: float, height: float) -> str:
    css = f'class="{region.color} tint"'
    return _rect(x, y, width, height, css, region.name, region.hatched)


def _rect(
    x: float, y: float, width: float, height: float, look: str, said: str, hatched: bool
) -> str:
    look = 'fill="url(#hatch)"' if hatched else look
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.2f}"'
    return f"<rect {size} {look}>{_title(said)}</rect>"


def _title(said: str) -> str:
    return f"<title>{esc(said)}</title>" if said else ""


def _dot(series: Series, x: float, y: float, said: str = "") -> str:
    kind = series.dots or "full"
    size = 8.0 if kind == "ring" else 2.6 if kind.startswith("small") else 4.2
    css = "hollow" if kind.endswith("hollow") else kind
    look = f'class="{series.color} {css}" stroke-width="{2.5 if kind == "ring" else 1.4}"'
    if "square" in kind:
        corner = f'x="{x - size:.1f}" y="{y - size:.1f}"'
        return f'<rect {corner} width="{2 * size}" height="{2 * size}" {look}>{_title(said)}</rect>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {look}>{_title(said)}</circle>'


def _line(series: Series, steps: str) -> str:
    dash = _DASHES[series.line or "solid"]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    look = f'class="{series.color} line" stroke-width="{series.width:g}"'
    return f'<path d="{steps}" {look}{dashed}/>'


def _text(x: float, y: float, content: str, css: str = "") -> str:
    named = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{esc(content)}</text>'
