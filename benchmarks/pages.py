"""How long the app takes to answer, as a browser sees it.

    python -m benchmarks.pages [--rows FILE.npz] [--moves 20] [--json]

Starts a server, opens each page in headless Chromium, then moves the slider of the Packing page and
waits until the figures of the new cap are on screen. ``--rows`` measures on rows of your own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packing.sources.spec import SourceSpec
from packing.spec import BLOCK_SIZE
from scripts.system import find_chromium
from tests.app import CHROMIUM_FLAGS, running

PAGES = ("", "trie", "packing", "kernels", "tune", "export")
_SHOWN_CAP = "() => document.querySelector('.summary .cap b')?.textContent"
_REDRAWN = """cap => document.querySelector('.summary .cap b')?.textContent === cap
  && !document.querySelector('[data-stale=true]')
  && !document.querySelector('[data-testid=stStatusWidget]')"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, help="an .npz of tokens, offsets, groups")
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    source = SourceSpec("sample", "math-grpo")
    if options.rows:
        source = SourceSpec("file", str(options.rows.resolve()))
    files = options.rows.resolve().parent if options.rows else None
    with tempfile.TemporaryDirectory() as home, running(Path(home), files) as server:
        result = _measure(server.url, f"data={quote(source.to_query())}", options.moves)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:<28} {value:8.0f} ms")


def _measure(url: str, query: str, moves: int) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
        page = chromium.new_page(viewport={"width": 1440, "height": 1000})
        result: dict[str, float] = {}
        for warmth in ("cold", "warm"):
            for name in PAGES:
                begun = time.perf_counter()
                page.goto(f"{url}/{name}?{query}&cap=16384")
                page.wait_for_selector("h1")
                page.wait_for_selector(".summary .cap b")
                result[f"{warmth} {name or 'dataset'}"] = 1e3 * (time.perf_counter() - begun)
        page.goto(f"{url}/packing?{query}&cap=16384")
        page.get_by_role("slider").wait_for()
        page.get_by_text("Still working").wait_for(state="detached", timeout=300_000)
        result |= _slider(page, moves)
        chromium.close()
    return result


def _slider(page: Any, moves: int) -> dict[str, float]:
    """One arrow key a move; done when strip and trees show the new cap and nothing is stale."""
    slider = page.get_by_role("slider")
    slider.focus()
    spent = []
    for _ in range(moves):
        page.wait_for_timeout(400)  # one move at a time: the page is at rest before each
        cap = int(page.evaluate(_SHOWN_CAP).replace(",", ""))
        begun = time.perf_counter()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(_REDRAWN, arg=f"{cap + BLOCK_SIZE:,}", polling=5)
        spent.append(1e3 * (time.perf_counter() - begun))
    return {
        "slider median": statistics.median(spent),
        "slider p80": statistics.quantiles(spent, n=5)[3],
        "slider worst": max(spent),
    }


if __name__ == "__main__":
    main()
