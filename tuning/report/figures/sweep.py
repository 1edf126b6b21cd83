"""The chart of a sweep: what each cap costs in time, tokens and memory, and the pick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from packing.spec import BLOCK_SIZE
from tuning.plan.numbers import gib, many, number, ratio, seconds
from tuning.plan.plan import STEP_NAMES
from tuning.report.figures.chart import (
    SERIES,
    Chart,
    Dash,
    Dots,
    Panel,
    Point,
    Series,
    counted_curve,
)
from tuning.sweep.result import Candidate, SweepResult

_GIB = 2**30
_KINDS: tuple[tuple[str, Dots, str], ...] = (
    ("measured", "full", "p20–p80"),
    ("estimated", "hollow", "the model's error"),
)
_FAR = 3.0
"""What is so many times above all points is said and not drawn: it would press them together."""


def sweep_chart(
    result: SweepResult,
    packer: str = "areal",
    now: int | None = None,
    counted: Sequence[Candidate] = (),
) -> Chart | None:
    """Step time, paid tokens and memory over ``max_tokens_per_mb``; None where no cap is known.

    packer: whose trees these are; now: the cap of the plan; counted: more caps without a time.
    Filled dots are measured, hollow ones estimated, each with its spread or the model's error. A
    cap without a time has no dot; a panel without a figure is left out.
    """
    points = sorted(result.points, key=lambda p: p.max_tokens_per_mb)
    if not points:
        return None
    every = {p.max_tokens_per_mb: p for p in (*counted, *points)}
    caps = [*every, *([now] if now else []), *([result.longest_row] if result.longest_row else [])]
    ends = min(caps) / 1.12, max(caps) * 1.12
    panels = (
        _steps(result, points, ends, packer),
        _paid([every[cap] for cap in sorted(every)], packer, now),
        _memory(result, points, ends),
    )
    pick = result.pick
    marked = {} if now is None else {now: ("now", "grey")}
    if pick is not None and pick.mode == "tree":
        marked[pick.max_tokens_per_mb] = "pick", "red"
    around = _stretches(result, points, ends)
    shown = [panel for panel in panels if panel]
    for nth, panel in enumerate(shown):
        # The topmost panel says what is marked in all of them.
        lines = (
            Series("", color, (Point(cap, 0.0), Point(cap, panel.high, label=label)), "solid")
            for cap, (word, color) in marked.items()
            for label in ["" if nth else f"{word} {number(cap)}"]
        )
        shown[nth] = replace(panel, series=(*around, *lines, *panel.series))
    measured = sum(p.step_kind == "measured" for p in points)
    told = f"Step time, paid tokens and memory at {many(len(points), 'value')} of max_tokens_per_mb"
    described = f"{told}, {number(measured)} of them measured. {pick.reason if pick else ''}"
    return Chart(tuple(shown), described.strip(), ends)


def _steps(
    result: SweepResult, points: Sequence[Candidate], ends: tuple[float, float], packer: str
) -> Panel | None:
    timed = [p for p in points if p.step_s]
    if not timed:
        return None
    most = max(p.step_s or 0.0 for p in timed)
    top = max(most * 1.2, *(p.high_s or 0.0 for p in timed if p.repeats), 0.0)
    color = SERIES[packer][0]
    series = []
    for kind, dots, spread in _KINDS:
        chosen = tuple(_step(p) for p in timed if p.step_kind == kind)
        series.append(Series(f"step, {kind}, {spread}", color, chosen, dots=dots))
    for name in ("flat", "padded"):
        one = result.baselines.get(name)
        if one is not None and one.step_s:
            color, dash, words = SERIES[name]
            label = f"{words}: {seconds(one.step_s)} ({one.step_kind})"
            line, height = _level(label, one.step_s, most, color, dash, ends)
            series.append(line)
            top = max(top, height * 1.1)
    return Panel(
        f"seconds a step, {STEP_NAMES[result.step_of]}",
        230,
        top,
        tuple(s for s in series if s.points),
    )


def _level(
    name: str, value: float, most: float, color: str, dash: Dash, ends: tuple[float, float]
) -> tuple[Series, float]:
    """A line across, and how high it needs the panel to be; far above it is a name alone."""
    far = value > _FAR * most
    points = tuple(Point(end, None if far else value) for end in ends)
    return Series(name + ", above the chart" * far, color, points, dash), 0.0 if far else value


def _step(one: Candidate) -> Point:
    said = f"{number(one.max_tokens_per_mb)}: {seconds(one.step_s)} {one.step_kind}"
    if one.low_s and one.high_s:
        said += f" ({seconds(one.low_s)} to {seconds(one.high_s)})"
    if one.predicted_s and one.step_kind == "measured":
        said += f", predicted {seconds(one.predicted_s)}"
    said += f", {many(one.n_trees or 0, 'tree')}"
    said += f", {many(one.repeats, 'repeat')}" if one.repeats else ""
    said += f", {number(one.tokens_per_s, ',.0f')} original tokens/s" if one.tokens_per_s else ""
    return Point(one.max_tokens_per_mb, one.step_s, said, one.low_s, one.high_s)


def _paid(points: Sequence[Candidate], packer: str, now: int | None) -> Panel | None:
    held = [p for p in points if p.n_trees and p.padded_token_ratio is not None]
    if not held:
        return None
    paid = [_counted(p, "paid", p.padded_token_ratio) for p in held]
    tree = [_counted(p, "tree_token_ratio", p.tree_token_ratio) for p in held]
    # Trees that run, dummies too: what is paid is so many times the cap.
    run = [(p.paid_tokens or 0) // p.max_tokens_per_mb for p in held]
    color, dash, _ = SERIES[packer]
    series = (
        *counted_curve(
            Series("paid (exact)", color, tuple(paid), dash, "small"), run, BLOCK_SIZE, True, now
        ),
        *counted_curve(
            Series("tree_token_ratio (exact)", color, tuple(tree), dash, "small-hollow", 1.0),
            [point.y for point in tree],
            BLOCK_SIZE,
        ),
    )
    top = max(max(p.padded_token_ratio or 0.0, p.tree_token_ratio or 0.0) for p in held)
    return Panel("tokens ÷ original", 120, top * 1.12, series)


def _counted(one: Candidate, name: str, value: float | None) -> Point:
    said = (
        f"{number(one.max_tokens_per_mb)}: {ratio(value)} {name}, {many(one.n_trees or 0, 'tree')}"
    )
    return Point(one.max_tokens_per_mb, value, said, label=ratio(value))


def _memory(
    result: SweepResult, points: Sequence[Candidate], ends: tuple[float, float]
) -> Panel | None:
    known = [p for p in points if p.memory_bytes]
    if not known:
        return None
    most = max(p.memory_bytes or 0 for p in known) / _GIB
    series = []
    for kind, dots, _ in _KINDS:
        chosen = tuple(_peak(p) for p in known if p.memory_kind == kind)
        series.append(Series(f"memory, {kind}", "pink", chosen, dots=dots))
    if result.budget_bytes:
        budget = f"budget {gib(result.budget_bytes)}"
        size = result.budget_bytes / _GIB
        line, height = _level(budget, size, most, "red", "dash", ends)
        series.append(line)
        most = max(most, height)
    return Panel("memory, GiB", 110, most * 1.15, tuple(s for s in series if s.points))


def _peak(one: Candidate) -> Point:
    said = f"{number(one.max_tokens_per_mb)}: {gib(one.memory_bytes)} {one.memory_kind}"
    return Point(one.max_tokens_per_mb, (one.memory_bytes or 0) / _GIB, said)


def _stretches(
    result: SweepResult, points: Sequence[Candidate], ends: tuple[float, float]
) -> list[Series]:
    """Left of the longest row AReaL refuses; right of what fits memory ends."""
    found = []
    longest = result.longest_row
    if longest > ends[0]:
        name = f"AReaL refuses: a row has {many(longest, 'token')}"
        line = (Point(ends[0], 0.0), Point(longest, 0.0))
        found.append(Series(name, "grey", line, stretch="hatched"))
    too_large = [p.max_tokens_per_mb for p in points if p.fits is False and not p.refused]
    if too_large:
        least = min(too_large)
        fitting = [p.max_tokens_per_mb for p in points if p.max_tokens_per_mb < least]
        edge = math.sqrt(least * max(fitting, default=least))
        line = (Point(edge, 0.0), Point(ends[1], 0.0))
        found.append(Series("does not fit", "red", line, stretch="tinted"))
    return found
