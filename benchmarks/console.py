"""How fast each page paints, and whether a long visit fills the browser's memory.

    python -m benchmarks.console [--repeats 3] [--interactions 200] [--json]

A page has painted when its script has ended, nothing on it is stale, and every chart and canvas is
drawn. "warm" is a reload of a page that was seen before; "cold" a link opened in an empty profile
on a server that has just started with empty folders. Then pages are switched, the strip zoomed and
the cap moved; heap, nodes and listeners are counted after each ten, when garbage has been
collected, and the first quarter is set against the last.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from scripts.system import find_chromium
from tests.app import CHROMIUM_FLAGS, Server, running
from tests.browser.drive import to_page

PAGES = ("Dataset", "Trie", "Packing", "Kernels", "Tune", "Compare", "Export")
_QUERY = "cap=4096&prompts=16"
_ROUND = 10
_MIB = 2**20
_PAINTED = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const charts = [...document.querySelectorAll('[data-testid=stPlotlyChart]')];
  const drawings = [...document.querySelectorAll('*')].flatMap(
    e => e.shadowRoot ? [...e.shadowRoot.querySelectorAll('canvas')] : []);
  return app?.dataset.testScriptState === 'notRunning'
    && document.querySelector('h1') && document.querySelector('.summary .cap b')
    && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]')
    && charts.every(chart => chart.querySelector('.main-svg'))
    && drawings.every(canvas => canvas.width !== 300);
}"""
_COUNTED = {"heap, MiB": "JSHeapUsedSize", "nodes": "Nodes", "listeners": "JSEventListeners"}

Numbers = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--interactions", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
        cold = {name: _cold(chromium, name, options.repeats) for name in PAGES}
        with _server() as server, _tab(chromium) as page:
            warm = {name: _warm(page, server, name, options.repeats) for name in PAGES}
        with _server() as server, _tab(chromium) as page:
            samples = list(_visit(page, server, options.interactions // _ROUND))
        chromium.close()
    result = {"cold, s": cold, "warm, s": warm, "memory": _quarters(samples)}
    print(json.dumps(result | {"samples": samples}) if options.json else _table(result))


@contextmanager
def _server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as home, running(Path(home)) as server:
        yield server


@contextmanager
def _tab(chromium: Any) -> Iterator[Any]:
    """A tab of an empty profile."""
    context = chromium.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(120_000)
    try:
        yield context.new_page()
    finally:
        context.close()


def _address(server: Server, name: str) -> str:
    return f"{server.url}/{name.lower()}?{_QUERY}"


def _seconds(page: Any, act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    page.wait_for_function(_PAINTED, polling=20)
    return time.perf_counter() - begun


def _cold(chromium: Any, name: str, repeats: int) -> float:
    spent = []
    for _ in range(repeats):
        with _server() as server, _tab(chromium) as page:
            link = _address(server, name)
            spent.append(_seconds(page, partial(page.goto, link)))
    return statistics.median(spent)


def _warm(page: Any, server: Server, name: str, repeats: int) -> float:
    page.goto(_address(server, name))
    page.wait_for_function(_PAINTED)
    page.get_by_text("Still working").wait_for(state="detached")
    return statistics.median(_seconds(page, page.reload) for _ in range(repeats))


def _visit(page: Any, server: Server, rounds: int) -> Iterator[Numbers]:
    """What is in memory after each round of ten; all pages were seen, so their code is loaded."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")
    page.goto(_address(server, "Dataset"))
    page.wait_for_function(_PAINTED)
    others = cycle(("Kernels", "Tune", "Compare", "Export"))
    keys = cycle(("ArrowRight", "ArrowLeft"))
    for _ in range(4):
        _interact(page, next(others), next(keys))
    for _ in range(rounds):
        _interact(page, next(others), next(keys))
        devtools.send("HeapProfiler.collectGarbage")
        found = {m["name"]: m["value"] for m in devtools.send("Performance.getMetrics")["metrics"]}
        yield {
            label: found[name] / (_MIB if "MiB" in label else 1) for label, name in _COUNTED.items()
        }


def _interact(page: Any, other: str, key: str) -> None:
    """Ten interactions: four pages, a zoom in and out, a click on the strip, three moves."""
    _switch(page, "Trie")
    strip = page.locator(".strip canvas")
    for zoom in ("+", "0"):
        before = page.locator(".strip").get_attribute("data-window")
        strip.press(zoom)
        page.wait_for_function(_MOVED, arg=before)
        page.wait_for_timeout(700)  # until the window is in the address bar
        page.wait_for_function(_PAINTED)
    strip.click(position={"x": 400, "y": 24})
    _rest(page)
    _switch(page, "Packing")
    for _ in range(3):
        before = page.locator(".summary .cap b").inner_text()
        page.get_by_role("slider").press(key)
        page.wait_for_function(
            "cap => document.querySelector('.summary .cap b')?.textContent !== cap", arg=before
        )
        _rest(page)
    _switch(page, other)
    _switch(page, "Dataset")


_MOVED = """before => [...document.querySelectorAll('*')].some(
  e => (e.shadowRoot?.querySelector('.strip')?.dataset.window ?? before) !== before)"""


def _switch(page: Any, name: str) -> None:
    to_page(page, name)
    _rest(page)


def _rest(page: Any) -> None:
    page.wait_for_timeout(50)
    page.wait_for_function(_PAINTED)


def _quarters(samples: list[Numbers]) -> dict[str, Numbers]:
    """The mean of the first and of the last quarter, and what came in between."""
    part = max(len(samples) // 4, 1)
    found = {}
    for label in _COUNTED:
        first = statistics.mean(one[label] for one in samples[:part])
        last = statistics.mean(one[label] for one in samples[-part:])
        found[label] = {"first": first, "last": last, "growth": last / first - 1}
    return found


def _table(result: dict[str, Any]) -> str:
    lines = [f"{'page':<12}{'cold, s':>10}{'warm, s':>10}"]
    lines += [
        f"{name:<12}{result['cold, s'][name]:>10.2f}{result['warm, s'][name]:>10.2f}"
        for name in PAGES
    ]
    lines += ["", f"{'':<12}{'first 1/4':>10}{'last 1/4':>10}{'growth':>10}"]
    lines += [
        f"{label:<12}{found['first']:>10,.1f}{found['last']:>10,.1f}{found['growth']:>+10.1%}"
        for label, found in result["memory"].items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
