"""The whole job in a real browser: from rows to a YAML that is read back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app import Server, running
from tests.browser.accessibility import faults
from tests.browser.drive import (
    download_yaml,
    downloaded,
    measure_and_use,
    rested,
    set_number,
    summary,
    to_page,
    to_tab,
)

pytestmark = pytest.mark.browser


def check_config(page: Any, picked: int | None) -> None:
    """The config has the picked cap; where trees lose it turns them off, and the page says so."""
    config = download_yaml(page)
    assert config["enable_tree_training"] is (picked is not None)
    assert config["pad_to_maximum"] is (picked is not None)
    assert config["mb_spec"]["max_tokens_per_mb"] == (picked or shown_cap(page))
    assert page.get_by_text("Do not enable tree training").count() == (picked is None)


def shown_cap(page: Any) -> int:
    return int(summary(page, "cap").replace(",", ""))


VERDICTS = {
    True: "Worth it: trees compute .* fewer tokens",
    False: "Nothing to gain here",
    None: "Worth it|Hardly worth it|Trees lose here",
}


# Small batches and two caps each keep the sweeps short. Tokens are counted, so whether trees save
# any is known; which step is faster depends on the machine and is not asserted.
@pytest.mark.parametrize(
    ("sample", "prompts", "samples", "caps", "trees_win"),
    [
        ("math-grpo", 3, 8, "2048,4096", None),
        ("agent-turns", 1, 8, "4096,8192", True),
        ("preference-pairs", 30, 2, "1024,4096", False),
    ],
)
def test_from_sample_to_yaml(
    page: Any,
    server: Server,
    sample: str,
    prompts: int,
    samples: int,
    caps: str,
    trees_win: bool | None,
) -> None:
    page.goto(f"{server.url}/dataset?caps={caps}")
    page.get_by_role("heading", name="Dataset", level=1).wait_for()
    assert "math-grpo" in summary(page, "name") and "synthetic" in summary(page, "name")
    if sample != "math-grpo":
        page.get_by_role("button", name=f"Use {sample}").click()
        page.locator(".summary .name b", has_text=sample).wait_for()
    set_number(page, "prompts per step", str(prompts))
    page.wait_for_url(f"**prompts={prompts}**")
    set_number(page, "samples per prompt", str(samples))
    page.wait_for_url(f"**samples={samples}**")
    rows = re.compile(f"^{prompts * samples}$")
    page.locator(".summary .rows b", has_text=rows).wait_for()

    to_page(page, "Trie")
    page.locator("canvas").first.wait_for()

    to_page(page, "Packing")
    rested(page)
    before = summary(page, "cap")
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("ArrowLeft")
    page.wait_for_function(
        "before => document.querySelector('.summary .cap b').textContent !== before", arg=before
    )
    page.get_by_text(re.compile(VERDICTS[trees_win])).first.wait_for()

    to_page(page, "Kernels")
    page.get_by_role("button", name="Prove it").click()
    page.get_by_text("Packed equals row by row").first.wait_for(timeout=180_000)
    found = faults(page, f"Kernels, proven on {sample}")

    picked = measure_and_use(page)
    found += faults(page, f"Tune, measured on {sample}")
    if picked is not None:
        assert re.search(r"\d s", summary(page, "step")), "the picked cap was measured"
    check_config(page, picked)
    found += faults(page, f"Export, measured on {sample}")
    assert not found, "\n".join(found)
    to_tab(page, "Report")
    report = downloaded(page, "Download report.html").read_text("utf-8")
    assert ("Leave enable_tree_training off" in report) == (picked is None)
    assert ("Do not enable tree training on these rows" in report) == (picked is None)


def test_from_text_to_yaml(page: Any, server: Server) -> None:
    """Prompt and completion of one's own, uploaded; a broken file keeps what was there."""
    lines = [
        {"prompt": f"How much is {a} plus {b}?", "completion": f" It is {a + b}, by step {s}."}
        for a in range(4)
        for b in range(3)
        for s in range(4)
    ]
    good = "\n".join(json.dumps(line) for line in lines)
    page.goto(f"{server.url}/dataset?data=sample:math-grpo")
    page.get_by_role("radio", name="Upload").or_(
        page.get_by_text("Upload", exact=True)
    ).first.click()
    chooser = upload_field(page)
    chooser.set_input_files(
        {"name": "own.jsonl", "mimeType": "text/plain", "buffer": good.encode()}
    )
    page.locator(".summary .name b", has_text="own.jsonl").wait_for()
    assert summary(page, "rows") == "48"
    broken = good.splitlines()[0] + '\n{"prompt": "cut'
    chooser = upload_field(page)
    chooser.set_input_files(
        {"name": "broken.jsonl", "mimeType": "text/plain", "buffer": broken.encode()}
    )
    error = page.get_by_text(re.compile(r"broken\.jsonl, row 1 \(line 2\)"))
    error.wait_for()
    assert "What was loaded before is still here" in error.inner_text()
    assert "own.jsonl" in summary(page, "name")
    check_config(page, measure_and_use(page))


def upload_field(page: Any) -> Any:
    """Where files of rows are put in; a config has a field of its own."""
    field = page.get_by_test_id("stFileUploader").and_(page.locator(".st-key-upload *"))
    return field.locator("input[type=file]")


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[Server]:
    with running(tmp_path) as started:
        yield started


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
    rested(page)
    seen = page.locator(".summary").inner_text()
    for name in ("Kernels", "Tune", "Export", "Dataset", "Packing"):
        to_page(page, name)
        rested(page)
        assert page.locator(".summary").inner_text() == seen, f"{name} shows the same plan"
        assert "cap=8320" in page.url and "prompts=4" in page.url


def test_from_real_rollouts_to_yaml(page: Any, server: Server, shared_dir: Path) -> None:
    """The first 16 prompts of GSM8K's model solutions, by upload, through measured steps."""
    page.goto(f"{server.url}/dataset?data=sample:math-grpo")
    page.get_by_text("Upload", exact=True).first.click()
    upload_field(page).set_input_files(shared_dir / "golden" / "gsm8k_solutions.npz")
    page.locator(".summary .name b", has_text="gsm8k_solutions.npz").wait_for()
    assert summary(page, "rows") == "6,595"
    set_number(page, "prompts per step", "16")
    page.locator(".summary .rows b", has_text=re.compile("^80$")).wait_for()
    picked = measure_and_use(page)
    page.get_by_text(re.compile(r"(measured)")).first.wait_for()
    check_config(page, picked)
