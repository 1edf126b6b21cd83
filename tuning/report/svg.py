"""A few SVG elements, and the colours that files of their own need; pages bring theirs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuning.report.escape import esc

WIDTH = 920
"""Units across a figure; it scales to the page."""

STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2623}.dim{fill:#5d655f}.grid{stroke:#d8d4c6}"
    ".axis{stroke:#8a8f98}.blue{fill:#0072b2;stroke:#0072b2}.orange{fill:#e69f00;stroke:#e69f00}"
    ".green{fill:#009e73;stroke:#009e73}.grey{fill:#8a8f98;stroke:#8a8f98}"
    ".red{fill:#d55e00;stroke:#d55e00}.line{fill:none}.pad{fill:#8a8f98;opacity:.3;stroke:none}"
    ".hollow{fill:#fbfaf6}.flat{stroke:none}.band{opacity:.15;stroke:none}"
    ".no{fill:#d55e00;opacity:.1;stroke:none}text.red{fill:#a84a00;stroke:none}"
    "text.blue{fill:#0072b2;stroke:none}text.green{fill:#00734f;stroke:none}"
    "text.orange{fill:#8a5f00;stroke:none}text.grey{fill:#5d655f;stroke:none}"
)


def text(x: float, y: float, content: str, css: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{esc(content)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"{dashed}/>'


def rect(x: float, y: float, width: float, height: float, css: str, title: str = "") -> str:
    inside = f"><title>{esc(title)}</title></rect>" if title else "/>"
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.2f}" '
        f'class="{css}"{inside}'
    )


def hatched(x: float, y: float, width: float, height: float, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" '
        f'fill="url(#hatch)"><title>{esc(title)}</title></rect>'
    )


def dot(x: float, y: float, css: str, title: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="{css}" stroke-width="1.8">'
        f"<title>{esc(title)}</title></circle>"
    )


def path(points: Sequence[tuple[float, float]], css: str, closed: bool = False) -> str:
    if len(points) < 2:
        return ""
    steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{steps}{"Z" if closed else ""}" class="{css}" stroke-width="2"/>'


def figure(body: Sequence[str], height: float, label: str) -> str:
    """A whole figure; ``label`` is read out to those who do not see it."""
    hatch = (
        '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path d="M0 0V7" class="grey" opacity=".45"/>'
        "</pattern></defs>"
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{esc(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{hatch}{"".join(body)}</svg>'
    )


def standalone(svg: str, caption: str = "") -> str:
    """The same as a file of its own: with its size, its colours, and where its figures are from."""
    found = re.search(rf'viewBox="0 0 {WIDTH} (\d+)"', svg)
    assert found is not None
    below = int(found[1]) + (20 if caption else 0)
    foot = text(0, below - 6, caption, "dim") if caption else ""
    size = f'width="{WIDTH}" height="{below}" viewBox="0 0 {WIDTH} {below}"'
    head, body = svg.replace(found[0], size, 1).split(">", 1)
    return f"{head}><style>{STYLE}</style>{body.removesuffix('</svg>')}{foot}</svg>"
