"""The Compare page by hand: two bundled sets set side by side, and the link that opens it again."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from packing.prefixes import PrefixOrder
from packing.sources.load import load
from packing.sources.spec import SourceSpec
from tests.app import Server
from tests.browser.accessibility import faults
from tests.browser.drive import rested, to_page
from tuning.plan.batch import Batch, batch_rows
from tuning.plan.plan import TuningPlan
from tuning.plan.summary import BatchSummary, Packed
from tuning.workspace.compare import Compared, compare, percent, written
from tuning.workspace.compare_side import side_of
from tuning.workspace.workspace import Workspace

pytestmark = pytest.mark.browser

A = TuningPlan(source=SourceSpec("sample", "math-grpo"), max_tokens_per_mb=4096, prompts_per_step=4)
B = TuningPlan(
    source=SourceSpec("sample", "agent-turns", expand="turn"),
    max_tokens_per_mb=4096,
    prompts_per_step=4,
)


def bench(plan: TuningPlan) -> Batch:
    rows = batch_rows(load(plan.source).rows, plan)
    return Batch(rows, PrefixOrder.of(rows))


def library() -> Compared:
    a, b = (side_of(Workspace(p), "", BatchSummary.of(bench(p), p, detail=False)) for p in (A, B))
    return compare(a, b)


def shown(page: Any) -> list[list[str]]:
    """The table, cell by cell."""
    rows = page.locator(".compared tbody tr").all()
    return [[c.inner_text() for c in row.locator("th, td").all()] for row in rows]


def plotted(page: Any, key: str) -> list[dict[str, Any]]:
    """Names, modes and points of a chart as the browser has decoded them."""
    chart = page.locator(f".st-key-{key} .js-plotly-plot")
    chart.wait_for()
    found: list[dict[str, Any]] = chart.evaluate(
        "c => c._fullData.map(t => ({name: t.name, mode: t.mode, x: [...t.x], y: [...t.y]}))"
    )
    return found


def test_two_bundled_sets_and_their_link_in_a_fresh_profile(
    page: Any, browser: Any, server: Server
) -> None:
    page.goto(f"{server.url}/?cap=4096&prompts=4")
    page.locator(".summary .paid b").wait_for()
    to_page(page, "Compare")
    page.get_by_text("B is the same plan as A").wait_for()
    page.get_by_text("Another dataset", exact=True).first.click()
    page.get_by_text("Choose the rows of B").wait_for()
    page.get_by_test_id("stMain").get_by_text("agent-turns", exact=True).first.click()
    page.locator(".compared").wait_for()
    rested(page)

    told = library()
    page.get_by_role("heading", name=told.sentence).wait_for()
    first = shown(page)
    differing = [one for one in told.lines if one.difference != 0]
    assert len(differing) > 10
    for cells, line in zip(first, differing, strict=True):
        difference = written(line.difference, signed=True)
        assert cells[:5] == [line.name, written(line.a), written(line.b), difference, percent(line)]
    verdicts = {line.name: line.winner for line in told.lines}
    assert {"a", "b", ""} >= set(verdicts.values()) and "b" in verdicts.values()
    for cells in first:
        wanted = {"b": "B better", "a": "B worse", "": ""}[verdicts[cells[0]]]
        assert wanted in cells[5]
    curves = [t for t in plotted(page, "compare_caps") if t["mode"] == "lines"]
    assert len(curves) == 7, "three panels of A and B, and where paid tokens are the original"
    for plan, (trees, ratio, paid) in zip((A, B), (curves[0:6:2], curves[1:6:2]), strict=True):
        own = bench(plan)
        # Steps hold a cap twice: before it, and at it.
        at, level, teeth = (
            len(one["x"]) - 1 - one["x"][::-1].index(4096) for one in (trees, ratio, paid)
        )
        one = Packed.of(own.simulation(plan, 4096))
        assert trees["y"][at] == one.paid_tokens // 4096
        assert ratio["y"][level] == pytest.approx(one.tree_token_ratio)
        assert paid["y"][teeth] == pytest.approx(one.padded_token_ratio)
    lengths = plotted(page, "compare_lengths")
    assert [t["name"] for t in lengths] == ["A: math-grpo", "B: agent-turns"]
    assert lengths[0]["x"] == lengths[1]["x"]
    assert not faults(page, "Compare, two sets")

    query = parse_qs(urlsplit(page.url).query)
    assert query["vs"] == ["data"] and "agent-turns" in query["b.data"][0]
    fresh = browser.new_context()
    again = fresh.new_page()
    again.goto(page.url)
    again.get_by_role("heading", name=told.sentence).wait_for()
    rested(again)
    assert shown(again) == first
    assert "math-grpo" in again.locator(".summary .name b").inner_text()
    fresh.close()


def test_another_plan_by_hand_undone_and_kept_over_pages(page: Any, server: Server) -> None:
    page.goto(f"{server.url}/compare?cap=4096&prompts=4")
    page.get_by_role("button", name="Twice the cap, 8,192").click()
    page.wait_for_url("**b.cap=8192**")
    page.get_by_role("heading", name=re.compile("^(B computes|A and B compute)")).wait_for()
    field = page.get_by_role("spinbutton", name="data-parallel ranks of B")
    field.fill("2")
    field.press("Enter")
    page.wait_for_url("**b.dp=2**")
    rested(page)
    table = shown(page)
    to_page(page, "Packing")
    page.locator(".summary .cap b", has_text="4,096").wait_for()
    to_page(page, "Compare")
    page.locator(".compared").wait_for()
    rested(page)
    assert shown(page) == table, "both sides outlive a visit to another page"
    page.get_by_role("button", name="Undo").click()
    page.wait_for_url(lambda url: "b.dp" not in url and "b.cap=8192" in url)
    page.reload()
    page.locator(".compared").wait_for()
    page.get_by_role("button", name="Go on with B as the plan").click()
    page.locator(".summary .cap b", has_text="8,192").wait_for()
    page.get_by_text("B is the same plan as A").wait_for()
