"""No page shuts anyone out: axe-core finds nothing serious, light or dark, whatever is opened."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.app import Server
from tests.browser.accessibility import faults
from tests.browser.drive import rested

pytestmark = pytest.mark.browser

PLAN = "cap=4096&prompts=4"


def at(page: Any, server: Server, name: str, query: str = PLAN) -> None:
    page.goto(f"{server.url}/{name.lower()}?{query}")
    page.get_by_role("heading", level=1).wait_for()
    rested(page)


def open_all(page: Any) -> None:
    """Every expander of the page, those that appear in an opened one included."""
    closed = page.locator("details:not([open]) > summary:visible")
    while closed.count():
        closed.first.click()
        rested(page)


def test_overview(page: Any, server: Server) -> None:
    found = []
    for what, query in (
        ("trees pay", "data=sample:agent-turns&dp=2&mb=2&prompts=2"),
        ("nothing to gain", "data=sample:preference-pairs"),
        ("refused", "cap=128"),
    ):
        at(page, server, "", query)
        open_all(page)
        found += faults(page, f"Overview, {what}")
    assert not found, "\n".join(found)


def test_dataset(page: Any, server: Server) -> None:
    at(page, server, "Dataset", f"{PLAN}&row=3")
    open_all(page)
    found = faults(page, "Dataset, all open")
    page.get_by_role("checkbox", name="Simulate samples for each prompt").check(force=True)
    page.get_by_role("spinbutton", name="median length").wait_for()
    for way in ("Upload", "File or folder", "Hugging Face Hub"):
        page.get_by_text(way, exact=True).first.click()
        rested(page)
        found += faults(page, f"Dataset, {way}")
    page.get_by_text("File or folder", exact=True).first.click()
    page.get_by_role("textbox", name="path, glob or folder").wait_for()
    rested(page)  # the form that was there before is gone
    page.get_by_role("textbox", name="path, glob or folder").fill("nowhere.jsonl")
    page.get_by_test_id("stForm").get_by_role("button", name="Open").click()
    page.get_by_text("What was loaded before is still here").wait_for()
    found += faults(page, "Dataset, a path that leads nowhere")
    assert not found, "\n".join(found)


def test_trie(page: Any, server: Server) -> None:
    at(page, server, "Trie")
    found = faults(page, "Trie, nothing chosen")
    at(page, server, "Trie", f"{PLAN}&tree=0&node=2&row=2&token=100&x0=60&x1=140")
    page.get_by_role("textbox", name="find text").fill("the")
    page.keyboard.press("Enter")
    page.get_by_text("places found").wait_for()
    open_all(page)
    found += faults(page, "Trie, node, row, token and words, all open")
    at(page, server, "Trie", "cap=128")
    found += faults(page, "Trie, refused")
    assert not found, "\n".join(found)


def test_packing(page: Any, server: Server) -> None:
    at(page, server, "Packing", "data=sample:agent-turns&prompts=1&cap=8192")
    open_all(page)
    found = []
    for tab in page.get_by_role("tab").all():
        tab.click()
        rested(page)
        found += faults(page, f"Packing, {tab.inner_text()}")
    at(page, server, "Packing", "cap=128")
    found += faults(page, "Packing, refused")
    assert not found, "\n".join(found)


def test_before_anything_was_measured(page: Any, server: Server) -> None:
    at(page, server, "Kernels", "cap=2048&prompts=3")
    open_all(page)
    found = faults(page, "Kernels, nothing timed")
    at(page, server, "Tune", "cap=2048&prompts=3")
    open_all(page)
    found += faults(page, "Tune, nothing measured")
    assert not found, "\n".join(found)


def test_compare(page: Any, server: Server) -> None:
    at(page, server, "Compare")
    found = faults(page, "Compare, nothing changed")
    page.get_by_text("Two runs of the history", exact=True).click()
    rested(page)
    found += faults(page, "Compare, no runs")
    at(page, server, "Compare", f"{PLAN}&vs=data&b.data=sample:agent-turns")
    open_all(page)
    found += faults(page, "Compare, two datasets, all open")
    assert not found, "\n".join(found)


def test_export(page: Any, server: Server) -> None:
    at(page, server, "Export")
    found = []
    for tab in page.get_by_role("tab").all():
        tab.click()
        open_all(page)
        found += faults(page, f"Export, {tab.inner_text()}")
    page.get_by_role("tab", name="A config for AReaL").click()
    for form in ("Python", re.compile("^TRL")):
        page.get_by_text(form).first.click()
        found += faults(page, f"Export, {form}")
    at(page, server, "Export", "cap=128")
    found += faults(page, "Export, refused")
    assert not found, "\n".join(found)
