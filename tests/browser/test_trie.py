"""The Trie page by hand: from the forest through strip and icicle to a token; rows and links."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from packing.sources.load import load
from tests.app import Server
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan

pytestmark = pytest.mark.browser

LINK = "cap=4096"


def view(page: Any) -> dict[str, str]:
    return {k: v[0] for k, v in parse_qs(urlsplit(page.url).query).items()}


def until(page: Any, holds: Callable[[], bool], what: str) -> None:
    for _ in range(2400):  # two minutes
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{what}: {page.url}")


def attribute(page: Any, part: str, name: str) -> str:
    found = page.locator(part)
    return found.first.get_attribute(f"data-{name}") or ""


def opened(page: Any, server: Server, query: str = LINK) -> None:
    page.goto(f"{server.url}/trie?{query}")
    settled(page)


def settled(page: Any) -> None:
    """All three drawings are there, once, and the page does not run."""
    for part in (".forest", ".strip", ".icicle"):
        page.locator(f"{part}[data-draw-ms]").first.wait_for()
    until(
        page,
        lambda: (
            all(page.locator(part).count() == 1 for part in (".forest", ".strip", ".icicle"))
            and not page.locator("[data-testid=stStatusWidget]").count()
        ),
        "the page comes to rest",
    )


def paint(page: Any, part: str) -> str:
    """What is on a canvas, to the pixel."""
    return str(page.locator(f"{part} canvas").evaluate("canvas => canvas.toDataURL()"))


def click_strip(page: Any, share: float, y: int) -> None:
    """At a share of the token axis, which begins 58 pixels from the left."""
    width = page.locator(".strip canvas").bounding_box()["width"]
    page.locator(".strip canvas").click(position={"x": 58 + share * (width - 58), "y": y})


def test_from_the_forest_through_strip_and_icicle_to_a_token(page: Any, server: Server) -> None:
    opened(page, server)
    width = page.locator(".forest canvas").bounding_box()["width"]
    page.locator(".forest .view").click(position={"x": width / 2, "y": 8})
    until(page, lambda: view(page).get("tree") == "1", "a click on the second column opens tree 1")
    # A click on a lane without own tokens there chooses the ancestor that reaches over it.
    click_strip(page, 0.3, 24)
    until(page, lambda: view(page).get("node") == "0", "the root's lane chooses the root")
    until(page, lambda: attribute(page, ".icicle", "chosen") == "0", "the icicle follows")
    settled(page)
    page.locator(".icicle .mark[aria-level='2']").first.click(position={"x": 9, "y": 4})
    until(page, lambda: view(page).get("node") not in ("0", None), "a click drills down")
    node = view(page)["node"]
    until(page, lambda: attribute(page, ".icicle", "chosen") == node, "the icicle is drawn anew")
    settled(page)
    page.get_by_role("button", name=re.compile("^tree 1$")).click()
    until(page, lambda: "node" not in view(page), "the breadcrumb leads back up")
    settled(page)
    # Zoom in until tokens can be read, and choose one.
    box = page.locator(".strip canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.wait_for_timeout(350)
    for _ in range(24):
        page.mouse.wheel(0, -100)
    until(page, lambda: "x0" in view(page), "the window is in the URL")
    settled(page)
    page.locator(".strip canvas").click(position={"x": 400, "y": int(box["height"]) - 8})
    until(page, lambda: "token" in view(page), "a token is chosen")
    token = int(view(page)["token"])
    assert int(view(page)["x0"]) <= token < int(view(page)["x1"])
    page.get_by_text(f"Token {token:,} of the tree").wait_for()


def test_the_keyboard_does_what_the_mouse_does(page: Any, server: Server) -> None:
    opened(page, server)
    page.locator(".forest .view").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".forest .live").text_content().startswith("tree 1:")
    page.keyboard.press("Enter")
    until(page, lambda: view(page).get("tree") == "1", "Enter opens the tree")
    settled(page)
    page.locator(".strip canvas").focus()
    for key in ("+", "+", "ArrowRight"):
        page.keyboard.press(key)
    first, last = map(int, attribute(page, ".strip", "window").split(","))
    assert 0 < first < last < 4096 and last - first < 3000
    until(page, lambda: "x0" in view(page), "the window is in the URL")
    page.keyboard.press("0")
    until(page, lambda: "x0" not in view(page), "0 shows all")
    page.keyboard.press("Enter")
    until(page, lambda: "node" in view(page), "Enter chooses the node in the middle")
    settled(page)
    chosen = view(page)["node"]
    until(page, lambda: attribute(page, ".icicle", "chosen") == chosen, "the icicle follows")
    page.locator(".icicle .mark").first.focus()
    page.keyboard.press("Enter")
    until(page, lambda: attribute(page, ".icicle", "chosen") != chosen, "the first mark leads up")
    settled(page)
    page.keyboard.press("ArrowRight")
    focused = page.locator(".icicle .mark:focus")
    assert focused.get_attribute("aria-level") == "2", "focus stays, the arrow walks down"


def test_a_row_is_highlighted_in_every_view_and_on_the_dataset_page(
    page: Any, server: Server
) -> None:
    opened(page, server)
    plain = {part: paint(page, part) for part in (".forest", ".strip")}
    assert not page.locator(".icicle .mark.path").count()
    page.get_by_role("textbox", name="find text").fill("row 3")
    page.keyboard.press("Enter")
    until(page, lambda: view(page).get("row") == "3", "the row is in the URL")
    settled(page)
    until(page, lambda: page.locator(".icicle .mark.path").count() > 1, "the icicle marks the path")
    for part, before in plain.items():
        assert paint(page, part) != before, f"{part} shows the row"
    page.get_by_role("link", name="Dataset").click()
    page.get_by_text("Row 3", exact=True).wait_for()
    page.get_by_role("link", name="Trie").click()
    settled(page)
    until(page, lambda: page.locator(".icicle .mark.path").count() > 1, "a page switch keeps it")
    assert view(page)["row"] == "3"
    page.get_by_role("button", name="Clear").click()
    until(page, lambda: "row" not in view(page), "Clear takes it out of the URL")
    until(page, lambda: not page.locator(".icicle .mark.path").count(), "and off the icicle")


def test_a_link_shows_the_same_in_a_fresh_profile(page: Any, browser: Any, server: Server) -> None:
    link = f"{LINK}&tree=2&node=3&row=25&x0=100&x1=1500"
    opened(page, server, link)
    first = {part: paint(page, part) for part in (".forest", ".strip")}
    assert attribute(page, ".strip", "window") == "100,1500"
    address = page.url
    page.reload()
    settled(page)
    assert attribute(page, ".strip", "window") == "100,1500", "a reload keeps the window"
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    try:
        other = context.new_page()
        other.goto(address)
        settled(other)
        assert attribute(other, ".icicle", "chosen") == "3"
        for part, before in first.items():
            assert paint(other, part) == before, f"{part} is the same to the pixel"
    finally:
        context.close()


def test_hover_tells_text_as_text_and_a_page_at_rest_stays_at_rest(
    page: Any, server: Server
) -> None:
    opened(page, server)
    box = page.locator(".strip canvas").bounding_box()
    page.mouse.move(box["x"] + 61, box["y"] + 24)
    tip = page.locator(".strip .tip")
    tip.wait_for()
    assert "Solve the following problem" in tip.text_content()
    assert tip.evaluate("tip => tip.childElementCount") == 0
    page.locator(".icicle .mark").nth(1).hover()
    assert "tokens saved" in page.locator(".icicle .tip").text_content()
    page.get_by_role("button", name="zoom in").click()
    until(page, lambda: "x0" in view(page), "the button zooms")
    settled(page)
    address = page.url
    runs = page.locator(".strip").get_attribute("data-draw-ms")
    page.wait_for_timeout(1500)
    assert page.url == address
    assert page.locator(".strip").get_attribute("data-draw-ms") == runs, "nothing is drawn again"


MARK_AT_EDGE = """(canvas, [lane, lanes]) => {
  const ratio = canvas.width / canvas.clientWidth;
  const y = 18 + (lane + 0.5) * 150 / lanes;  // below the axis, in the band of nodes
  const g = canvas.getContext('2d');
  const at = x => [...g.getImageData(x * ratio, y * ratio, 1, 1).data];
  return [at(62), at(80)];
}"""


def test_ancestors_stay_at_the_edge_at_any_zoom(page: Any, server: Server) -> None:
    plan = TuningPlan(max_tokens_per_mb=4096)
    forest = Batch.of(load(plan.source).rows, plan).simulation(plan).forest
    trie = forest.tree(0)
    leaf = max(range(len(trie)), key=lambda k: (len(trie.path(k)) > 2) * int(trie.lengths[k]))
    path, lanes = trie.path(leaf), trie.levels
    start, end = int(trie.start[leaf]), int(trie.end[leaf])
    assert len(path) > 2 and end - start > 40
    for part in (1, 2, 4, 8, 16):
        window = f"&x0={end - max((end - start) // part, 2)}&x1={end}"
        opened(page, server, f"{LINK}&tree=0{window}")
        for lane in range(len(path) - 1):
            mark, beside = page.locator(".strip canvas").evaluate(MARK_AT_EDGE, [lane, lanes])
            assert mark[3] == 255 and mark != beside, f"ancestor {lane} of {path} at 1/{part}"
