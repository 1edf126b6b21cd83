"""How fluid the Trie page is on a tree of 50,000 nodes, as a browser sees it.

    python -m benchmarks.strip [--nodes 50000] [--json]

Makes rows whose first tree has about that many nodes, opens it from another tree, zooms the strip
with the wheel and drills down in the icicle. Times are in milliseconds; "draw" is the time that
the canvas itself took, "seen" runs from the click until the new drawing is there.
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

import numpy as np

from packing.rows import offsets_of
from packing.sources.spec import SourceSpec
from scripts.system import find_chromium
from tests.app import CHROMIUM_FLAGS, running

_NODE_TOKENS = 8
_CAP = 1 << 19
_WHEELS = 40
_DRILLS = 8
_NODES_A_ROW = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        write_rows(file, options.nodes)
        with running(Path(folder), files=Path(folder)) as server:
            result = _measure(server.url, SourceSpec("file", str(file)).to_query())
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:<32} {value:10,.1f}")


def write_rows(file: Path, nodes: int) -> None:
    """Rows of a random tree: every row follows an earlier one for a while, then goes its own way.

    One long row more makes a second tree of one node, to come from.
    """
    draw = np.random.default_rng(7)
    rows: list[np.ndarray] = []
    for i in range(int(nodes / _NODES_A_ROW)):
        own = draw.integers(1, 30_000, draw.geometric(1 / _NODE_TOKENS), dtype=np.int32)
        if not i:
            rows.append(np.concatenate([np.arange(1, 200, dtype=np.int32), own]))
            continue
        other = rows[int(draw.integers(max(i - 2_000, 0), i))]
        rows.append(np.concatenate([other[: int(draw.integers(100, len(other) + 1))], own]))
    rows.append(draw.integers(1, 30_000, _CAP - 1_000, dtype=np.int32))
    groups = np.arange(len(rows), dtype=np.int32)
    np.savez(
        file, tokens=np.concatenate(rows), offsets=offsets_of([len(r) for r in rows]), groups=groups
    )


def _measure(url: str, source: str) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
        page = chromium.new_page(viewport={"width": 1440, "height": 1400})
        page.goto(f"{url}/trie?data={quote(source)}&cap={_CAP}&tree=1")
        page.locator(".strip[data-nodes='1']").wait_for(timeout=300_000)
        page.wait_for_timeout(2_000)
        result = {}
        for name, key in (("first time", "Home"), ("", "End"), ("again", "Home")):
            page.locator(".forest .view").focus()
            page.keyboard.press(key)
            begun = time.perf_counter()
            page.keyboard.press("Enter")
            page.wait_for_function(_SHOWS_MANY, arg=key == "Home", polling=5)
            if name:
                result[f"strip seen, {name}"] = 1e3 * (time.perf_counter() - begun)
                result[f"strip draw, {name}"] = _attribute(page, ".strip", "draw-ms")
            page.wait_for_timeout(2_000)
        result["nodes"] = _attribute(page, ".strip", "nodes")
        result |= _zoom(page) | _drill(page)
        chromium.close()
    return result


_SHOWS_MANY = """many => {
  const strip = [...document.querySelectorAll('*')].find(
    e => e.shadowRoot?.querySelector('.strip'));
  return (strip.shadowRoot.querySelector('.strip').dataset.nodes > 1) === many;
}"""
_ROOT = """before => {
  const icicle = [...document.querySelectorAll('*')].find(
    e => e.shadowRoot?.querySelector('.icicle'));
  return icicle.shadowRoot.querySelector('.icicle').dataset.chosen !== before;
}"""


def _zoom(page: Any) -> dict[str, float]:
    """The wheel, 40 times in and out over the middle of the strip."""
    box = page.locator(".strip canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 60)
    draws = []
    for n in range(_WHEELS):
        page.mouse.wheel(0, -100 if n < _WHEELS // 2 else 100)
        page.wait_for_timeout(50)
        draws.append(_attribute(page, ".strip", "draw-ms"))
    page.wait_for_timeout(2_000)
    return {"zoom draw, median": statistics.median(draws), "zoom draw, worst": max(draws)}


def _drill(page: Any) -> dict[str, float]:
    """From the root of the icicle down, always into the highest mark of the second column."""
    spent = []
    for _ in range(_DRILLS):
        before = page.locator(".icicle").get_attribute("data-chosen")
        inside = page.locator(".icicle .mark[aria-level='2']:not(.fold)")
        heights = inside.evaluate_all("marks => marks.map(mark => mark.offsetHeight)")
        if not heights:
            break
        begun = time.perf_counter()
        inside.nth(heights.index(max(heights))).click(position={"x": 5, "y": 1})
        page.wait_for_function(_ROOT, arg=before, polling=5)
        spent.append(1e3 * (time.perf_counter() - begun))
        page.wait_for_timeout(1_000)
    return {"drill-down, median": statistics.median(spent), "drill-down, worst": max(spent)}


def _attribute(page: Any, part: str, name: str) -> float:
    return float(page.locator(part).get_attribute(f"data-{name}"))


if __name__ == "__main__":
    main()
