"""The main chart as SVG: a step's time, what is paid and memory over ``max_tokens_per_mb``.

Filled dots are measured, hollow ones estimated; the band is the cost model's own error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuning.report import svg
from tuning.report.steps import seconds
from tuning.sweep.result import Candidate, Pick

_LEFT, _RIGHT = 64.0, svg.WIDTH - 130.0
_GIB = 2**30
_OFF_THE_CHART = 3.0


@dataclass(frozen=True)
class _Plot:
    """One panel: where it lies, and its scales."""

    top: float
    height: float
    low: float
    high: float
    first: float
    last: float

    def x(self, cap: float) -> float:
        share = math.log(cap / self.first) / math.log(self.last / self.first)
        return _LEFT + share * (_RIGHT - _LEFT)

    def y(self, value: float) -> float:
        inside = min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        return self.top + self.height * (1 - inside)


def sweep_svg(
    points: Sequence[Candidate],
    baselines: Mapping[str, Candidate | None],
    pick: Pick | None,
    longest_row: int = 0,
    budget_bytes: int | None = None,
) -> str:
    """Panels over one logarithmic axis of caps; a panel that has no figure is left out."""
    caps = [p.max_tokens_per_mb for p in points]
    if not caps:
        return ""
    first = min([min(caps), *([longest_row] if longest_row else [])]) / 1.12
    last = max(caps) * 1.12
    rivals = _rivals(points, baselines)
    body: list[str] = []
    top = 26.0
    panels: list[tuple[float, float, Callable[[_Plot], list[str]], str]] = []
    times = [p.step_s for p in points if p.step_s]
    times += [p.high_s for p in points if p.high_s and p.step_kind == "measured"]
    if times:
        # A wide band may leave the panel: it must not press the points together.
        high = max(times + [c.step_s or 0.0 for _, c, _ in rivals]) * 1.15
        draw: Callable[[_Plot], list[str]] = lambda plot: _steps(plot, points, rivals)  # noqa: E731
        panels.append((230.0, high, draw, "step, s"))
        body += _off_the_chart(baselines, rivals)
    ratios = [v for p in points for v in (p.padded_token_ratio, p.tree_token_ratio) if v]
    panels.append((110.0, max([*ratios, 0.1]) * 1.1, lambda plot: _paid(plot, points), "tokens ÷"))
    memory = [p.memory_bytes / _GIB for p in points if p.memory_bytes]
    if memory:
        budget = budget_bytes / _GIB if budget_bytes else None
        near = budget is not None and budget < _OFF_THE_CHART * max(memory)
        high = max([*memory, *([budget] if near and budget else [])]) * 1.1
        shown = budget if near else None
        panels.append((100.0, high, lambda plot: _memory(plot, points, shown), "GiB"))
    for height, high, draw, unit in panels:
        plot = _Plot(top, height, 0.0, high, first, last)
        body += _frame(plot, points, longest_row, unit)
        body += draw(plot)
        if pick is not None and pick.mode == "tree":
            x = plot.x(pick.max_tokens_per_mb)
            body.append(svg.line(x, top, x, top + height, "red"))
        top += height + 34
    plot = _Plot(26.0, top - 60, 0.0, 1.0, first, last)
    body += _caps_axis(plot, top - 20)
    if pick is not None and pick.mode == "tree":
        label = f"pick {pick.max_tokens_per_mb:,}"
        body.append(svg.text(plot.x(pick.max_tokens_per_mb), 16, label, "red", "middle"))
    return svg.figure(body, top + 30, _described(points, pick))


def _off_the_chart(
    baselines: Mapping[str, Candidate | None], rivals: Sequence[tuple[str, Candidate, str]]
) -> list[str]:
    """Baselines too slow to be drawn, by name and time beside the panel."""
    shown = {name for name, _, _ in rivals}
    far = [
        f"↑ {name} {seconds(one.step_s)}"
        for name, one in baselines.items()
        if one is not None and one.step_s and name not in shown
    ]
    return [svg.text(_RIGHT + 8, 36 + 16 * at, said, "dim") for at, said in enumerate(far)]


def _rivals(
    points: Sequence[Candidate], baselines: Mapping[str, Candidate | None]
) -> list[tuple[str, Candidate, str]]:
    """Baselines with a time that the chart has room for: name, candidate, colour."""
    longest = max((p.step_s for p in points if p.step_s), default=0.0)
    found = []
    for name, css in (("flat", "orange"), ("padded", "grey")):
        one = baselines.get(name)
        if one is not None and one.step_s and one.step_s <= _OFF_THE_CHART * longest:
            found.append((name, one, css))
    return found


def _frame(plot: _Plot, points: Sequence[Candidate], longest_row: int, unit: str) -> list[str]:
    bottom = plot.top + plot.height
    body = []
    for value in nice_ticks(plot.high):
        y = plot.y(value)
        body.append(svg.line(_LEFT, y, _RIGHT, y, "grid"))
        body.append(svg.text(_LEFT - 8, y + 4, f"{value:g}", "dim", "end"))
    body.append(svg.text(_LEFT - 56, plot.top - 8, unit, "dim"))
    body.append(svg.line(_LEFT, bottom, _RIGHT, bottom, "axis"))
    if longest_row > plot.first:
        x = plot.x(longest_row)
        title = f"below {longest_row:,} tokens, the longest row, AReaL refuses"
        body.append(svg.hatched(_LEFT, plot.top, x - _LEFT, plot.height, title))
    too_big = [p.max_tokens_per_mb for p in points if p.fits is False and not p.refused]
    if too_big:
        smaller = [p.max_tokens_per_mb for p in points if p.max_tokens_per_mb < min(too_big)]
        edge = math.sqrt(min(too_big) * max(smaller, default=min(too_big)))
        x = plot.x(edge)
        body.append(svg.rect(x, plot.top, _RIGHT - x, plot.height, "no", "does not fit"))
        body.append(svg.text(x + 6, plot.top + 14, "does not fit", "red"))
    return body


def _steps(
    plot: _Plot, points: Sequence[Candidate], rivals: Sequence[tuple[str, Candidate, str]]
) -> list[str]:
    body = []
    model = [p for p in points if p.predicted_s and p.predicted_high_s]
    over = [(plot.x(p.max_tokens_per_mb), plot.y(p.predicted_high_s or 0)) for p in model]
    under = [(plot.x(p.max_tokens_per_mb), plot.y(p.predicted_low_s or 0)) for p in model]
    body.append(svg.path([*over, *reversed(under)], "band blue", closed=True))
    modelled = [(plot.x(p.max_tokens_per_mb), plot.y(p.predicted_s or 0)) for p in model]
    body.append(svg.path(modelled, "blue line"))
    for name, one, css in rivals:
        y = plot.y(one.step_s or 0)
        body.append(svg.line(_LEFT, y, _RIGHT, y, css, "6 4"))
        body.append(svg.text(_RIGHT + 8, y + 4, f"{name} {seconds(one.step_s or 0)}", css))
    for p in points:
        if p.step_s is None:
            continue
        x = plot.x(p.max_tokens_per_mb)
        if p.low_s and p.high_s and p.step_kind == "measured":
            body.append(svg.line(x, plot.y(p.low_s), x, plot.y(p.high_s), "blue"))
        title = f"{p.max_tokens_per_mb:,}: {seconds(p.step_s)} ({p.step_kind}), {p.n_trees:,} trees"
        css = "blue" if p.step_kind == "measured" else "blue hollow"
        body.append(svg.dot(x, plot.y(p.step_s), css, title))
    return body


def _paid(plot: _Plot, points: Sequence[Candidate]) -> list[str]:
    paid = [p for p in points if p.padded_token_ratio]
    held = [p for p in points if p.n_trees]
    curve = [(plot.x(p.max_tokens_per_mb), plot.y(p.padded_token_ratio or 0)) for p in paid]
    inner = [(plot.x(p.max_tokens_per_mb), plot.y(p.tree_token_ratio or 0.0)) for p in held]
    body = [svg.path(curve, "blue line"), svg.path(inner, "green line")]
    if curve:
        body.append(svg.text(_RIGHT + 8, curve[-1][1] - 2, "paid", "blue"))
    if inner:
        body.append(svg.text(_RIGHT + 8, inner[-1][1] + 12, "tree_token_ratio", "green"))
    for p, (x, y) in zip(paid, curve, strict=True):
        title = f"{p.max_tokens_per_mb:,}: {p.padded_token_ratio:.3f} paid, {p.n_trees:,} trees"
        body.append(svg.dot(x, y, "blue", title))
    return body


def _memory(plot: _Plot, points: Sequence[Candidate], budget: float | None) -> list[str]:
    known = [p for p in points if p.memory_bytes]
    curve = [(plot.x(p.max_tokens_per_mb), plot.y((p.memory_bytes or 0) / _GIB)) for p in known]
    body = [svg.path(curve, "green line")]
    for p, (x, y) in zip(known, curve, strict=True):
        title = f"{p.max_tokens_per_mb:,}: {(p.memory_bytes or 0) / _GIB:.2f} GiB ({p.memory_kind})"
        css = "green" if p.memory_kind == "measured" else "green hollow"
        body.append(svg.dot(x, y, css, title))
    if budget is not None:
        y = plot.y(budget)
        body.append(svg.line(_LEFT, y, _RIGHT, y, "red", "6 4"))
        body.append(svg.text(_RIGHT + 8, y + 4, f"budget {budget:.1f}", "red"))
    return body


def _caps_axis(plot: _Plot, y: float) -> list[str]:
    ticks = cap_ticks(plot.first, plot.last)
    body = [svg.text(plot.x(cap), y + 18, f"{cap:,}", "dim", "middle") for cap in ticks]
    body.append(svg.text((_LEFT + _RIGHT) / 2, y + 38, "max_tokens_per_mb", "", "middle"))
    return body


def cap_ticks(first: float, last: float) -> list[int]:
    """Powers of two, with the halves between where there are few."""
    powers = [2**k for k in range(5, 26)]
    halves = sorted(powers + [3 * p // 2 for p in powers])
    for choice in (powers, halves):
        inside = [cap for cap in choice if first <= cap <= last]
        if len(inside) >= 3:
            return inside[:: max(-(-len(inside) // 9), 1)]
    return [math.ceil(first), math.floor(last)]


def nice_ticks(high: float) -> list[float]:
    """About four round values from 0 to ``high``."""
    rough = high / 4
    unit = 10 ** math.floor(math.log10(rough))
    step = next(f * unit for f in (1, 2, 2.5, 5, 10) if f * unit >= rough)
    return [round(k * step, 10) for k in range(int(high / step) + 1)]


def _described(points: Sequence[Candidate], pick: Pick | None) -> str:
    timed = [p for p in points if p.step_s]
    said = f"Step time, paid tokens and memory at {len(points)} values of max_tokens_per_mb, "
    said += f"{sum(p.step_kind == 'measured' for p in timed)} of them measured."
    return said + (f" {pick.reason}" if pick else "")
