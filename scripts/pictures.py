"""Pictures of the real app, for the README and for the eye.

    python -m scripts.pictures            docs/pictures: a page each, light, 1440 px wide, and
                                          flow.webp, the job as a short film
    python -m scripts.pictures --all DIR  every page, light and dark, 1440 and 800 px, into DIR

A server of its own with an empty data folder is started on math-grpo; the Kernels and Tune pages
show what was measured there and then.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from scripts.flow import record
from scripts.system import find_chromium
from tests.app import CHROMIUM_FLAGS, ROOT, Server

PAGES = ("overview", "dataset", "trie", "packing", "kernels", "tune", "compare", "export")
_LINK = "cap=4096&prompts=16"
_SHOWN = {"compare": "&vs=plan&b.cap=8192&b.packer=prefix-aware"}
_TALLEST = 2400
_COLOURS = 128
_PATIENCE_MS = 600_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", type=Path, metavar="DIR")
    options = parser.parse_args()
    folder = options.all or ROOT / "docs" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as home, sync_playwright() as play:
        server = Server(Path(home))
        chromium = play.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
        try:
            server.start()
            _measure(chromium, server)
            looks: list[tuple[int, Any]] = [(1440, "light")]
            if options.all:
                looks += [(1440, "dark"), (800, "light"), (800, "dark")]
            for width, scheme in looks:
                mark = f"-{width}-{scheme}" if options.all else ""
                page = chromium.new_page(
                    viewport={"width": width, "height": 900}, color_scheme=scheme
                )
                for name in PAGES:
                    _shoot(page, server, name, folder / f"{name}{mark}.png")
                page.close()
            if not options.all:
                record(chromium, server.url, _LINK, folder / "flow.webp")
        finally:
            chromium.close()
            server.stop()


def _measure(chromium: Any, server: Server) -> None:
    """Start the sweep and the kernel runs, so that their pages have something to show."""
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{server.url}/tune?{_LINK}")
    field = page.get_by_role("spinbutton", name="time budget, minutes")
    field.fill("1")
    field.press("Enter")
    page.get_by_role("button", name="Start", exact=True).click()
    pick = page.get_by_role("button", name=re.compile(r"^(Use [\d,]+|In use)$"))
    pick.or_(page.get_by_text("Do not enable tree training")).first.wait_for(timeout=_PATIENCE_MS)
    page.goto(f"{server.url}/kernels?{_LINK}")
    page.get_by_role("button", name="Prove it").click()
    page.get_by_text("Packed equals row by row").first.wait_for(timeout=_PATIENCE_MS)
    page.wait_for_timeout(2000)  # the page is drawn again with the proof
    page.get_by_role("button", name="Run", exact=True).last.click()
    running = page.get_by_role("button", name="Cancel kernels")
    running.wait_for(timeout=_PATIENCE_MS)
    running.wait_for(state="detached", timeout=_PATIENCE_MS)
    page.close()


def _shoot(page: Any, server: Server, name: str, path: Path) -> None:
    page.goto(f"{server.url}/{'' if name == 'overview' else name}?{_LINK}{_SHOWN.get(name, '')}")
    page.wait_for_selector("h1")
    page.get_by_text("Still working").wait_for(state="detached", timeout=_PATIENCE_MS)
    page.wait_for_timeout(2500)
    height = page.evaluate("() => document.querySelector('.stMain').scrollHeight")
    width = page.viewport_size["width"]
    page.set_viewport_size({"width": width, "height": min(int(height) + 60, _TALLEST)})
    page.wait_for_timeout(1200)
    page.screenshot(path=path)
    page.set_viewport_size({"width": width, "height": 900})
    with Image.open(path) as picture:
        picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=_COLOURS).save(
            path, optimize=True
        )


if __name__ == "__main__":
    main()
