"""The whole job in a real browser: from rows to a YAML that is read back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.app import Server

pytestmark = pytest.mark.browser


def to_page(page: Any, name: str) -> None:
    page.get_by_test_id("stTopNav").get_by_role("link", name=name, exact=True).click()
    page.get_by_role("heading", name=name, exact=True, level=1).wait_for()


def summary(page: Any, cell: str) -> str:
    return str(page.locator(f".summary .{cell} b").inner_text())


def set_number(page: Any, label: str, value: str) -> None:
    field = page.get_by_role("spinbutton", name=label, exact=True)
    field.fill(value)
    field.press("Enter")


def measure_and_use(page: Any) -> int:
    """A short sweep on the Tune page; takes the pick and returns it.

    Where flat packing is faster on this machine the page says so instead; then the cap stays.
    """
    to_page(page, "Tune")
    set_number(page, "time budget, minutes", "0.5")
    page.get_by_role("button", name="Start", exact=True).click()
    use = page.get_by_role("button", name=re.compile(r"^(Use [\d,]+|In use)$"))
    no_trees = page.get_by_text("Do not enable tree training")
    use.or_(no_trees).first.wait_for(timeout=240_000)
    if use.count() and use.inner_text() != "In use":
        use.click()
        page.get_by_role("button", name="In use").wait_for()
    return int(summary(page, "cap").replace(",", ""))


def download_yaml(page: Any) -> dict[str, Any]:
    to_page(page, "Export")
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("^Download")).first.click()
    return dict(yaml.safe_load(Path(download.value.path()).read_text()))


def check_config(config: dict[str, Any], cap: int) -> None:
    assert config["enable_tree_training"] is True
    assert config["pad_to_maximum"] is True
    assert config["mb_spec"]["max_tokens_per_mb"] == cap


def test_from_sample_to_yaml(page: Any, server: Server) -> None:
    page.goto(server.url)
    page.get_by_role("heading", name="Dataset", level=1).wait_for()
    assert "math-grpo" in summary(page, "name") and "synthetic" in summary(page, "name")
    page.get_by_role("button", name="Use agent-turns").click()
    page.locator(".summary .name b", has_text="agent-turns").wait_for()
    set_number(page, "prompts per step", "1")
    page.wait_for_url("**prompts=1**")
    page.locator(".summary .rows b", has_text=re.compile(r"^\d\d$")).wait_for()

    to_page(page, "Trie")
    page.locator("canvas").first.wait_for()

    to_page(page, "Packing")
    before = summary(page, "cap")
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('.summary .cap b').textContent !== before", arg=before
    )
    page.get_by_text(re.compile(r"Trees compute [\d.]+× fewer tokens")).first.wait_for()

    to_page(page, "Kernels")
    page.get_by_role("button", name="Prove it").click()
    page.get_by_text("Packed equals row by row").first.wait_for(timeout=180_000)

    cap = measure_and_use(page)
    assert re.search(r"\d s", summary(page, "step")), "the picked cap was measured"
    check_config(download_yaml(page), cap)


def test_from_text_to_yaml(page: Any, server: Server) -> None:
    """Prompt and completion of one's own, uploaded; a broken file keeps what was there."""
    lines = [
        {"prompt": f"How much is {a} plus {b}?", "completion": f" It is {a + b}, by step {s}."}
        for a in range(4)
        for b in range(3)
        for s in range(4)
    ]
    good = "\n".join(json.dumps(line) for line in lines)
    page.goto(server.url)
    page.get_by_role("radio", name="Upload").or_(
        page.get_by_text("Upload", exact=True)
    ).first.click()
    chooser = page.locator("input[type=file]")
    chooser.set_input_files(
        {"name": "own.jsonl", "mimeType": "text/plain", "buffer": good.encode()}
    )
    page.locator(".summary .name b", has_text="own.jsonl").wait_for()
    assert summary(page, "rows") == "48"
    broken = good.splitlines()[0] + '\n{"prompt": "cut'
    chooser = page.locator("input[type=file]")
    chooser.set_input_files(
        {"name": "broken.jsonl", "mimeType": "text/plain", "buffer": broken.encode()}
    )
    error = page.get_by_text(re.compile(r"broken\.jsonl, row 1 \(line 2\)"))
    error.wait_for()
    assert "What was loaded before is still here" in error.inner_text()
    assert "own.jsonl" in summary(page, "name")
    cap = measure_and_use(page)
    check_config(download_yaml(page), cap)


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def test_a_deep_link_first_keeps_the_frame_and_survives_a_restart(
    browser: Any, fresh_server: Server
) -> None:
    """The first request to a fresh server is a link to a page in the middle of the job."""
    link = f"{fresh_server.url}/packing?cap=4096&prompts=16&mb=2"
    figures = []
    for _ in range(2):
        context = browser.new_context()
        page = context.new_page()
        page.goto(link)
        page.get_by_role("heading", name="Packing", level=1).wait_for()
        page.get_by_test_id("stTopNav").get_by_role("link", name="Export").wait_for()
        page.locator(".summary .paid b").wait_for()
        figures.append(page.locator(".summary").inner_text())
        assert "4,096" in figures[-1] and "128" in figures[-1]
        context.close()
        fresh_server.stop()
        fresh_server.start()
    assert figures[0] == figures[1]


def test_page_switch_reload_and_back_keep_the_plan(page: Any, server: Server) -> None:
    page.goto(f"{server.url}/packing?prompts=4")
    page.locator(".summary .paid b").wait_for()
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("ArrowRight")
    page.wait_for_url("**cap=8320**")
    page.get_by_role("button", name="Undo").click()
    page.locator(".summary .cap b", has_text="8,192").wait_for()
    page.go_back()
    page.locator(".summary .cap b", has_text="8,320").wait_for()
    to_page(page, "Trie")
    page.wait_for_url("**/trie?**cap=8320**")
    page.reload()
    page.locator(".summary .cap b", has_text="8,320").wait_for()
    assert summary(page, "rows") == "32"


def test_from_real_rollouts_to_yaml(page: Any, server: Server, shared_dir: Path) -> None:
    """The first 64 prompts of GSM8K's model solutions, by upload, through measured steps."""
    page.goto(server.url)
    page.get_by_text("Upload", exact=True).first.click()
    page.locator("input[type=file]").set_input_files(shared_dir / "golden" / "gsm8k_solutions.npz")
    page.locator(".summary .name b", has_text="gsm8k_solutions.npz").wait_for()
    assert summary(page, "rows") == "6,595"
    set_number(page, "prompts per step", "64")
    page.locator(".summary .rows b", has_text="320").wait_for()
    cap = measure_and_use(page)
    page.get_by_text(re.compile(r"(measured)")).first.wait_for()
    check_config(download_yaml(page), cap)
