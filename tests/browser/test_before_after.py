"""Before and after on the Overview page: its figures are the chain's, the fold can be played."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from packing.sources.load import load
from tests.app import Server
from tests.browser.drive import rested
from tuning.jobs.points import Point, Question
from tuning.jobs.store import Store
from tuning.plan.batch import Batch
from tuning.plan.numbers import about
from tuning.plan.plan import Layout, TuningPlan
from tuning.report.figures.fold import Fold, choose_fold

pytestmark = pytest.mark.browser

PLAN = TuningPlan(prompts_per_step=24, max_tokens_per_mb=3072, ppo_n_minibatches=2, model="small")
ORANGE = (230, 159, 0)
COUNT_PIXELS = """(canvas, color) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let i = 0; i < data.length; i += 4) {
    found += color.every((value, n) => data[i + n] === value) && data[i + 3] === 255;
  }
  return found;
}"""

AREA_OF_EACH_BAR = """marks => Object.values(marks
  .map(mark => mark.getBBox()).filter(box => box.width !== 12 || box.height !== 12)
  .reduce((bars, box) => {
    const bar = Math.floor((box.y - 60) / 126);
    const seam = box.width > 1.8 ? 0.6 : 0;  // wide slices give so much of their width to it
    bars[bar] = (bars[bar] || 0) + (box.width + seam) * box.height;
    return bars;
  }, {}))"""


@pytest.fixture(scope="module")
def bench() -> Batch:
    return Batch.of(load(PLAN.source).rows, PLAN)


@pytest.fixture(scope="module")
def fold(bench: Batch) -> Fold:
    cap = PLAN.max_tokens_per_mb
    found = choose_fold(bench.order, bench.simulation(PLAN).forest, cap)
    assert found is not None and found.row_tokens > found.tokens, "something merges"
    return found


@pytest.fixture
def shown(page: Any, server: Server) -> Iterator[Any]:
    page.goto(f"{server.url}/?{urlencode(PLAN.to_query())}")
    page.locator(".fold[data-draw-ms]").wait_for()
    rested(page)
    yield page


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_figures_are_the_chains_own(shown: Any, bench: Batch) -> None:
    paid = bench.simulation(PLAN).comparison
    expected: dict[Layout, int] = {"padded": paid.padded, "flat": paid.flat or 0, "tree": paid.tree}
    lines = shown.locator(".ways svg > text.dim").filter(has_text="tokens computed")
    drawn = shown.locator(".ways svg > rect").evaluate_all(AREA_OF_EACH_BAR)
    # The picture's legend has a patch for each part; equal areas are equal tokens.
    for line, area, (mode, tokens) in zip(
        lines.all_text_contents(), drawn, expected.items(), strict=True
    ):
        assert line.startswith(f"{tokens:,} tokens computed ")
        assert area / drawn[0] == pytest.approx(tokens / paid.padded, abs=2e-3), "to scale"
        assert mode == "padded" or f"{tokens / paid.padded:.1%} of padded" in line
    assert shown.locator(".ways svg > rect").count() <= 300
    said = shown.get_by_role("heading", level=1).inner_text()
    assert said.startswith(f"{about(expected['flat'])} → {about(expected['tree'])} tokens, ")
    assert f"Tokens of {len(bench.rows):,} rows" in shown.locator(".stMain").inner_text()


def test_a_step_has_a_time_only_where_it_was_measured(
    shown: Any, server: Server, bench: Batch
) -> None:
    assert shown.locator(".ways svg > text", has_text="step: not measured").count() == 3
    question = Question.of(
        PLAN, "tree", PLAN.max_tokens_per_mb, bench.rows.fingerprint, "cpu of a test", "2"
    )
    point = Point(
        question,
        "measured",
        step_s=1.25,
        p20_s=1.2,
        p80_s=1.5,
        repeats=3,
        measured_at="2026-01-02T03:04:05+00:00",
    )
    Store(server.home / "data" / "history.sqlite").add("test", PLAN, point)
    shown.reload()
    told = shown.locator(".ways svg > text", has_text="step: 1.25 s, measured")
    told.wait_for()
    assert "1.20 s to 1.50 s over 3 repeats, 2026-01-02 03:04 UTC" in told.text_content()
    flat = bench.simulation(PLAN).comparison.flat
    others = shown.locator(".ways svg > text", has_text="step: not measured")
    assert f"{flat:,} tokens computed" in others.last.text_content()
    shown.get_by_role("button", name="Measure more on the Tune page").click()
    shown.get_by_role("heading", name="Tune", level=1).wait_for()


def test_play_then_skip_reaches_the_end(shown: Any, fold: Fold) -> None:
    root, canvas = shown.locator(".fold"), shown.locator(".fold canvas")
    shown.wait_for_timeout(400)
    assert root.get_attribute("data-phase") == "before", "nothing moves until it is asked to"
    assert number(root.get_attribute("data-tokens")) == fold.row_tokens
    assert f"{fold.row_tokens:,} tokens" in canvas.get_attribute("aria-label")
    assert canvas.evaluate(COUNT_PIXELS, ORANGE) > 0, "repeated prefixes are marked"
    shown.locator(".fold .play").focus()
    shown.keyboard.press("Enter")
    assert root.get_attribute("data-phase") == "playing"
    shown.keyboard.press("Tab")
    shown.keyboard.press("Enter")
    at_the_end(shown, fold)


def at_the_end(page: Any, fold: Fold) -> None:
    root, canvas = page.locator(".fold"), page.locator(".fold canvas")
    assert root.get_attribute("data-phase") == "after"
    assert number(root.get_attribute("data-tokens")) == fold.tokens
    assert root.locator(".count b").inner_text() == f"{fold.tokens:,}"
    assert f"{fold.tokens:,} tokens" in canvas.get_attribute("aria-label")
    assert f"{fold.tokens:,} tokens" in root.locator(".live").text_content(), "it is read out"
    assert not canvas.evaluate(COUNT_PIXELS, ORANGE), "nothing is there twice"


def test_left_alone_it_counts_down_to_the_end(shown: Any, fold: Fold) -> None:
    root = shown.locator(".fold")
    seen = root.evaluate(
        """root => new Promise(done => {
          const seen = [];
          root.querySelector('.play').click();
          const look = () => {
            seen.push(Number(root.dataset.tokens));
            if (root.dataset.phase === 'playing') requestAnimationFrame(look);
            else done(seen);
          };
          look();
        })"""
    )
    assert seen == sorted(seen, reverse=True), "the counter only falls"
    assert seen[0] == fold.row_tokens and len(set(seen)) > 2
    at_the_end(shown, fold)
    shown.locator(".fold .play", has_text="Replay").click()
    assert root.get_attribute("data-phase") == "playing"


def test_who_wants_less_motion_is_at_the_end_at_once(shown: Any, fold: Fold) -> None:
    shown.emulate_media(reduced_motion="reduce")
    phase = shown.locator(".fold").evaluate(
        "root => { root.querySelector('.play').click(); return root.dataset.phase; }"
    )
    assert phase == "after"
    at_the_end(shown, fold)
