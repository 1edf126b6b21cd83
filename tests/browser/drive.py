"""What a person does in the app: go to a page, wait until it rests, set a number, run a sweep."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from playwright.sync_api import TimeoutError

AT_REST = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const rests = app?.dataset.testScriptState === 'notRunning'
    && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]');
  // One run may end and the next begin at once: rest is what lasts for a moment.
  window.restsSince = rests ? window.restsSince || performance.now() : 0;
  return rests && performance.now() - window.restsSince > 60;
}"""


def to_page(page: Any, name: str) -> None:
    page.get_by_test_id("stTopNav").get_by_role("link", name=name, exact=True).click()
    page.get_by_role("heading", name=name, exact=True, level=1).wait_for()


def to_tab(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name).click()
    page.wait_for_timeout(250)  # until the server has heard of it
    rested(page)


def rested(page: Any) -> None:
    """The script has ended, nothing on screen is stale, and no table or curve is still growing."""
    page.wait_for_function(AT_REST)
    page.get_by_text("Still working").wait_for(state="detached")


def summary(page: Any, cell: str) -> str:
    return str(page.locator(f".summary .{cell} b").inner_text())


def set_number(page: Any, label: str, value: str) -> None:
    field = page.get_by_role("spinbutton", name=label, exact=True)
    field.fill(value)
    field.press("Enter")


def measure_and_use(page: Any) -> int | None:
    """A short sweep on the Tune page; takes the pick and returns it, None where trees lose.

    Where flat packing is as fast on this machine the page says so instead; then the cap stays.
    """
    to_page(page, "Tune")
    set_number(page, "time budget, minutes", "0.2")
    page.get_by_role("button", name="Start", exact=True).click()
    use = page.get_by_role("button", name=re.compile(r"^(Use [\d,]+|In use)$"))
    no_trees = page.get_by_text("Do not enable tree training")
    use.or_(no_trees).first.wait_for(timeout=240_000)
    rested(page)
    if no_trees.count():
        return None
    if use.inner_text() != "In use":
        use.click()
        page.get_by_role("button", name="In use").wait_for()
    return int(summary(page, "cap").replace(",", ""))


def downloaded(page: Any, label: str) -> Path:
    """The file behind a button; a click that falls into a redraw is lost, so it is tried again."""
    button = page.get_by_role("button", name=label, exact=True)
    for patience_ms in (8_000, 20_000, 30_000):
        rested(page)
        try:
            with page.expect_download(timeout=patience_ms) as download:
                button.click()
            return Path(download.value.path())
        except TimeoutError:
            continue
    raise AssertionError(f"{label!r} brought no file")


def download_yaml(page: Any) -> dict[str, Any]:
    to_page(page, "Export")
    return dict(yaml.safe_load(downloaded(page, "Download engine.yaml").read_text("utf-8")))
