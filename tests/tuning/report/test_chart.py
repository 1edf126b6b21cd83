"""One description of a chart: what is joined is known, and both renderings show the same."""

from __future__ import annotations

import math
import re
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app import ROOT
from tests.tuning.workspaces import sweep
from tuning.plan.summary import Packed
from tuning.report.figures.chart import (
    COLORS,
    PALETTE,
    SERIES,
    Chart,
    Panel,
    Point,
    cap_ticks,
    even_ticks,
    true_path,
    wide_ticks,
)
from tuning.report.figures.compare import caps_compared
from tuning.report.figures.plotly_figure import plotly_figure
from tuning.report.figures.style import COLOR
from tuning.report.figures.svg_figure import standalone, svg_figure
from tuning.report.figures.sweep import sweep_chart
from tuning.sweep.result import Candidate, SweepResult

STEP = 128
ORIGINAL = 10_000


def drawn(made: SweepResult, now: int | None = None) -> Chart:
    chart = sweep_chart(made, now=now)
    assert chart is not None
    return chart


def words(chart: Chart) -> str:
    return "".join(ET.fromstring(standalone(svg_figure(chart), "")).itertext())


def counted(trees: dict[int, int]) -> list[Candidate]:
    return [Candidate(cap, n, 0.5, cap * n / ORIGINAL, cap * n) for cap, n in sorted(trees.items())]


@given(
    st.dictionaries(st.integers(1, 60), st.integers(1, 4), min_size=1),
    st.booleans(),
)
def test_a_line_holds_only_where_it_was_counted(trees: dict[int, int], rising: bool) -> None:
    """Every piece of the line is a tooth between equals, or a jump between neighbours."""
    caps = sorted(trees)
    points = [Point(STEP * at, STEP * at * trees[at]) for at in caps]
    path = true_path(points, [trees[at] for at in caps], STEP, rising)
    assert {(p.x, p.y) for p in points} <= {(p.x, p.y) for p in path}
    for left, right in pairwise(path):
        if left.y is None or right.y is None:
            continue
        before = max(at for at in caps if STEP * at <= left.x)
        after = min(at for at in caps if STEP * at >= right.x)
        if left.x == right.x:
            assert trees[after - 1] != trees[after], "upright only between neighbours"
            assert right.y == trees[after] * right.x
            continue
        assert left.x < right.x and left.y == pytest.approx(trees[before] * left.x)
        if trees[before] == trees[after]:
            assert right.y == pytest.approx(trees[before] * right.x)
        else:
            assert after - before == 1, "a line over caps that nobody counted"
            assert right.y == pytest.approx(trees[before] * STEP * (after if rising else before))
    for low, high in pairwise(caps):
        if trees[low] != trees[high] and high - low > 1:
            assert Point(STEP * high, None) in path, "what was not counted is a gap"


def test_paid_over_the_caps_is_a_sawtooth_and_now_is_numbered() -> None:
    """The line of 16 prompts that once read 0.75 where 1.435 is paid: between 18,176 and 36,352."""
    trees = {9216: 4, 12288: 3, 16384: 3, 18176: 2, 36224: 2, 36352: 1}
    made = replace(sweep(), points=tuple(counted(trees)), baselines={}, pick=None, longest_row=0)
    panel = drawn(made, now=36224).panels[0]
    (paid,) = (one for one in panel.series if one.line and len(one.points) > 2 and one.width == 2)
    joined = {
        (left.x, right.x)
        for left, right in pairwise(paid.points)
        if left.y is not None and right.y is not None
    }
    assert not any(left < edge < right for left, right in joined for edge in (10000, 17000))
    at = {p.x: p.y for p in paid.points[:-1]}  # the last is below the jump
    for x, y in at.items():
        if y is not None and x > 18176:
            assert y == pytest.approx(2 * x / ORIGINAL), "in proportion to the cap"
    (ring,) = (one for one in panel.series if one.dots == "ring")
    assert [p.label for p in ring.points] == ["7.245"]
    assert "7.245" in words(drawn(made, now=36224)) and "now 36,224" in words(drawn(made, 36224))
    assert not [one for one in drawn(made, now=20000).panels[0].series if one.dots == "ring"]


def test_the_sweep_marks_kinds_and_leaves_out_what_has_no_time() -> None:
    chart = drawn(sweep())
    steps = {one.dots: len(one.points) for one in chart.panels[0].series if one.dots}
    assert steps == {"full": 2, "hollow": 1}, "the point that does not fit has none"
    root = ET.fromstring(standalone(svg_figure(chart), "where from"))
    dots = [e for e in root.iter() if e.tag.endswith("circle") and " s " in "".join(e.itertext())]
    assert sum("hollow" in e.attrib["class"] for e in dots) == 1 and len(dots) == 3
    for said in ("pick 512", "flat, as today: 1.80 s", "does not fit", "AReaL refuses", "budget"):
        assert said in words(chart), said
    assert sweep_chart(replace(sweep(), points=())) is None


def test_both_renderings_say_the_same() -> None:
    chart = drawn(sweep(), now=640)
    figure = plotly_figure(chart)
    names = [one.name for panel in chart.panels for one in panel.series if one.name]
    assert {unescape(t.name) for t in figure.data if t.showlegend} == set(names)
    assert all(name in words(chart) for name in names)
    drawn_points = sum(len(t.x) for t in figure.data if t.mode.startswith("markers"))
    dots = [one for panel in chart.panels for one in panel.series if one.dots]
    assert drawn_points == sum(len(one.points) for one in dots)
    circles = re.findall("<circle", svg_figure(chart))
    assert len(circles) == drawn_points + sum(bool(one.name) for one in dots), "and its legend"
    title = "seconds a step, Espalier alone"
    for text in (*chart.cap_ticks.values(), title, "now 640", "pick 512"):
        assert text in words(chart) and text in figure.to_json()


def test_a_sweep_without_times_shows_what_is_counted() -> None:
    made = replace(sweep(), points=tuple(counted({128: 3, 256: 3})), baselines={}, pick=None)
    chart = drawn(made)
    assert [panel.title for panel in chart.panels] == ["tokens ÷ original"]
    assert "tree_token_ratio" in words(chart)
    assert not any("seconds a step" in word for word in words(chart))


def test_a_baseline_far_above_is_said_and_does_not_press_the_points_together() -> None:
    slow = Candidate(512, step_s=71.0, step_kind="estimated")
    chart = drawn(replace(sweep(), baselines={"flat": None, "padded": slow}))
    assert chart.panels[0].high < 5
    assert "padded rows: 71.00 s (estimated), above the chart" in words(chart)


@given(
    st.sampled_from([None, 64, 512, 10**6]),
    st.dictionaries(st.sampled_from([128, 4096, 65536]), st.integers(1, 9)),
)
def test_whatever_is_marked_or_counted_lies_within_the_chart(
    now: int | None, more: dict[int, int]
) -> None:
    odd = Candidate(512, step_s=1.5, step_kind="measured")
    made = replace(sweep(), baselines={"of a file from elsewhere": odd})
    chart = sweep_chart(made, now=now, counted=counted(more))
    assert chart is not None and chart.caps is not None
    for panel in chart.panels:
        for point in (p for one in panel.series for p in one.points):
            assert chart.caps[0] <= point.x <= chart.caps[1]
            assert point.y is None or panel.low <= point.y <= panel.high


def test_comparison_joins_only_what_was_counted() -> None:
    def curve(trees: dict[int, int]) -> dict[int, Packed]:
        return {
            cap: Packed("areal", n, 900, n * cap, 0.9, n * cap / 1000, 1.1, 0.9)
            for cap, n in trees.items()
        }

    sides = [curve({256: 4, 1024: 2, 2048: 2, 4096: 1}), curve({512: 3})]
    figure = caps_compared(sides, (1024, 640), ("a", "<b>"), (256, 4096))
    lines = [t for t in figure.data if t.mode == "lines" and t.line.color == COLOR["blue"]]
    assert len(lines) == 3
    for line in (lines[0], lines[2]):
        held = [x for x, y in zip(line.x, line.y, strict=True) if y is None]
        assert held == [1024, 4096], "gaps before other trees"
    assert [t.text for t in figure.data if any(t.text or ())] == [("2",), ("0.900",), ("2.048",)]
    assert "<b>" not in figure.to_json(), "names are not trusted"


def test_one_palette_for_pages_and_report() -> None:
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"]
    for dark, mode in enumerate(("light", "dark")):
        assert theme[mode]["chartCategoricalColors"] == [PALETTE[name][dark] for name in COLORS]
        keys = {"page": "backgroundColor", "ink": "textColor", "edge": "borderColor"}
        keys["box"] = "secondaryBackgroundColor"
        assert {name: theme[mode][key] for name, key in keys.items()} == {
            name: PALETTE[name][dark] for name in keys
        }
    assert {color for color, _, _ in SERIES.values()} <= set(COLORS)
    assert len({one[:2] for one in SERIES.values()}) == len(SERIES), "told apart"


@pytest.mark.parametrize("dark", [False, True])
def test_every_color_stands_out_from_its_page(dark: bool) -> None:
    for name in COLORS:
        least = 4.0 if dark else 2.0  # orange and pink are light; shape and dash tell them too
        assert _contrast(PALETTE[name][dark], PALETTE["page"][dark]) >= least, name
    for name in ("ink", "dim"):
        assert _contrast(PALETTE[name][dark], PALETTE["page"][dark]) >= 4.5


def _contrast(one: str, other: str) -> float:
    """Of WCAG 2: (lighter + 0.05) / (darker + 0.05) in relative luminance."""

    def luminance(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@given(st.floats(1e-6, 1e9))
def test_ticks_cover_the_range(high: float) -> None:
    ticks = even_ticks(high)
    assert 2 <= len(ticks) <= 6 and ticks[0] == 0 and ticks[-1] <= high * (1 + 1e-6)


@given(st.floats(0.1, 1e3), st.floats(5, 1e6))
def test_ticks_of_a_wide_range(low: float, times: float) -> None:
    ticks = wide_ticks(low, low * times)
    assert ticks == sorted(ticks) and 1 <= len(ticks) <= 8
    assert all(low * 0.999 <= tick <= low * times * 1.001 for tick in ticks)
    written = list(Panel("", 0, low * times, low=low).ticks.values())
    assert len(set(written)) == len(written)


@given(st.integers(128, 10**6), st.floats(1.01, 1000))
def test_cap_ticks_lie_within(low: int, times: float) -> None:
    ticks = cap_ticks(low, low * times)
    assert ticks == sorted(ticks) and 2 <= len(ticks) <= 14
    assert all(math.floor(low) <= tick <= math.ceil(low * times) for tick in ticks)
