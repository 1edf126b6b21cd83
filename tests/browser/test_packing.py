"""The Packing page in a real browser: every way to choose a cap, and one step back."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.app import Server

pytestmark = pytest.mark.browser

CAP = ".summary .cap b"


def shown_cap(page: Any) -> int:
    return int(page.locator(CAP).inner_text().replace(",", ""))


def wait_for_cap(page: Any, cap: int) -> None:
    page.locator(CAP, has_text=re.compile(f"^{cap:,}$")).wait_for()


@pytest.fixture
def packing(page: Any, server: Server) -> Any:
    page.goto(f"{server.url}/packing?data=sample:math-grpo&cap=4096")
    page.get_by_role("slider").wait_for()
    wait_for_cap(page, 4096)
    return page


def test_keys_on_the_slider_move_by_one_block_and_are_undone(packing: Any) -> None:
    slider = packing.get_by_role("slider")
    slider.focus()
    for _ in range(5):
        slider.press("ArrowRight")
    wait_for_cap(packing, 4096 + 5 * 128)
    assert slider.input_value() == str(4096 + 5 * 128)
    assert f"cap={4096 + 5 * 128}" in packing.url
    for _ in range(5):  # as one on a machine that keeps up with the keys: tests/pages/test_state.py
        before = packing.locator(CAP).inner_text()
        packing.get_by_role("button", name="Undo").click()
        packing.locator(CAP, has_text=re.compile(f"^(?!{before}$)")).wait_for()
        if packing.locator(CAP).inner_text() == "4,096":
            break
    wait_for_cap(packing, 4096)
    packing.wait_for_function(
        "() => document.querySelector('.summary .cap b').textContent === '4,096'"
    )
    assert slider.input_value() == "4096"


def test_a_typed_cap_is_taken_as_it_is_and_a_refusal_offers_the_nearest(packing: Any) -> None:
    typed = packing.get_by_role("spinbutton", name="max_tokens_per_mb, typed")
    for text, mend in (("5000", "4,992"), ("1", "1,664"), ("300000", "299,904")):
        typed.fill(text)
        typed.press("Enter")
        wait_for_cap(packing, int(text))
        assert typed.input_value() == text, "what was typed is what the figures are of"
        packing.get_by_role("button", name=f"Use max_tokens_per_mb {mend}").click()
        wait_for_cap(packing, int(mend.replace(",", "")))
    typed.fill("")
    typed.press("Enter")
    packing.get_by_text("write a whole number of tokens").wait_for()
    assert typed.input_value() == "299904"


def test_a_click_on_the_chart_chooses_a_cap_that_the_table_has_too(packing: Any) -> None:
    packing.get_by_text("Still working").wait_for(state="detached", timeout=120_000)
    chart = packing.get_by_role("img", name=re.compile("^Paid tokens and tree tokens"))
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] * 0.6, "y": 60})
    tip = packing.get_by_text(re.compile(r"^[\d,]+: click to choose it"))
    cap = int(tip.inner_text().split(":")[0].replace(",", ""))
    assert cap != 4096 and cap % 128 == 0
    chart.click(position={"x": box["width"] * 0.6, "y": 60})
    wait_for_cap(packing, cap)
    packing.get_by_text("The whole range as a table").click()
    packing.get_by_test_id("stDataFrame").first.wait_for()


def test_a_bar_opens_its_tree(packing: Any) -> None:
    forest = packing.get_by_role("application", name=re.compile("^Forest of"))
    box = forest.bounding_box()
    forest.click(position={"x": box["width"] - 20, "y": 8})
    packing.get_by_role("heading", name="Trie", exact=True, level=1).wait_for()
    assert re.search(r"tree=[1-9]\d*", packing.url)
