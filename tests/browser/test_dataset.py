"""A file that nothing is recognised in gets roles on the page; what comes of it is looked at."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.app import Server
from tests.browser.drive import downloaded, rested, summary

pytestmark = pytest.mark.browser

RECORDS = [
    {
        "case": {"said_by_person": f"What is {n} + {n}?"},
        "tries": [{"came_out": f"It is {2 * n}."}, {"came_out": f"[{n}, {n}]"}],
    }
    for n in range(3)
]


def give(page: Any, role: str, path: str) -> None:
    """Choose a column for a role."""
    field = page.get_by_role("combobox", name=re.compile(rf"{role}$"))
    field.click()
    page.get_by_role("option", name=path, exact=True).click()
    rested(page)


def odd_file(server: Server, name: str, records: list[Any]) -> Path:
    server.files.mkdir(parents=True, exist_ok=True)
    path = server.files / name
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def opened(page: Any, server: Server, location: str) -> None:
    page.goto(f"{server.url}/dataset?data=sample:math-grpo")
    page.get_by_role("heading", name="Dataset", level=1).wait_for()
    rested(page)
    page.get_by_text("File or folder", exact=True).click()
    page.get_by_role("textbox", name="path, glob or folder").fill(location)
    page.get_by_test_id("stForm").get_by_role("button", name="Open", exact=True).click()


def test_roles_are_given_looked_at_loaded_and_undone(page: Any, server: Server) -> None:
    path = odd_file(server, "mystery.jsonl", RECORDS)
    opened(page, server, str(path))
    page.get_by_text("no column is recognised as rows").wait_for()
    page.get_by_role("button", name="Give its columns roles").click()
    page.get_by_text("and their roles").wait_for()
    assert page.get_by_role("button", name="Load with these roles").is_disabled()
    give(page, "prompt", "case.said_by_person")
    give(page, "completion", "tries.*.came_out")
    page.get_by_text("The first 3 records as 6 rows").wait_for()
    preview = page.locator(".token-text")
    expect(preview.first).to_contain_text("What is 0 + 0?It is 0.")
    # What is trained is not dim, and text that looks like a list stays text.
    trained = preview.nth(1).locator("span:not(.off)").all_inner_texts()
    assert "".join(trained).startswith("[0, 0]")
    page.get_by_role("button", name="Load with these roles").click()
    page.locator(".summary .name b", has_text="mystery").wait_for()
    rested(page)
    assert summary(page, "rows") == "6"
    file = downloaded(page, "Download the rows")
    with np.load(file) as rows:
        assert set(rows) == {"tokens", "offsets", "groups", "loss_mask"}
        assert rows["groups"].tolist() == [0, 0, 1, 1, 2, 2]
    page.get_by_role("button", name="Undo").click()
    page.locator(".summary .name b", has_text="math-grpo").wait_for()


def test_starting_over_forgets_the_roles(page: Any, server: Server) -> None:
    opened(page, server, str(odd_file(server, "mystery.jsonl", RECORDS)))
    page.get_by_role("button", name="Give its columns roles").click()
    page.get_by_text("and their roles").wait_for()
    give(page, "prompt", "case.said_by_person")
    page.get_by_text("The first 3 records as 3 rows").wait_for()
    page.get_by_role("button", name="Start over").click()
    page.get_by_text("The first 3 records as 3 rows").wait_for(state="detached")
    rested(page)
    assert page.get_by_role("button", name="Load with these roles").is_disabled()


def test_a_glob_a_sample_and_an_odd_record(page: Any, server: Server) -> None:
    good = {"prompt": "1+1=", "completion": "2"}
    path = odd_file(server, "rows-1.jsonl", [good, {"prompt": "x", "completion": 7}, good])
    opened(page, server, str(path.parent / "rows-*.jsonl"))
    page.get_by_text("is whole number, not text").wait_for()
    page.get_by_role("button", name="Leave odd records out").click()
    page.get_by_text("Odd records left out: 1").wait_for()
    rested(page)
    assert summary(page, "rows") == "2"
    page.get_by_role("textbox", name="path, glob or folder").fill("sample:preference-pairs")
    page.get_by_test_id("stForm").get_by_role("button", name="Open", exact=True).click()
    page.locator(".summary .name b", has_text="preference-pairs").wait_for()


@pytest.mark.parametrize("median", [100, 100.0])
def test_a_link_with_a_whole_number_of_tokens(page: Any, server: Server, median: float) -> None:
    source = {"kind": "sample", "location": "math-grpo", "simulate": {"median": median}}
    page.goto(f"{server.url}/dataset?data={json.dumps(source)}")
    page.get_by_text("Completions are simulated").first.wait_for()
    rested(page)
    assert page.get_by_text("Traceback").count() == 0
