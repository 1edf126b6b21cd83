"""Fixtures used by every folder of tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from packing.rows import Rows
from scripts.system import find_chromium
from tests.app import CHROMIUM_FLAGS

# A busy machine makes no example wrong.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="run the tests that take long, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What runs together in one process when several share the suite: a file, or all of browser/.

    Two browsers at once would wait for each other; a file's fixtures are made once.
    """
    for item in items:
        folder = item.path.parent.name
        group = folder if folder == "browser" else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
    if not config.getoption("--deep"):
        deep = [item for item in items if item.get_closest_marker("deep")]
        items[:] = [item for item in items if item not in deep]
        config.hook.pytest_deselected(items=deep)


SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def rows_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache of tokenised rows for all tests; not the one of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ESPALIER_CACHE", str(tmp_path_factory.mktemp("rows-cache")))
        yield


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real rollouts and AReaL's own results, beside the checkout."""
    if not (SHARED / "golden").is_dir():
        pytest.skip("the folder shared/ with real rollouts is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def golden_rows(shared_dir: Path) -> Any:
    """``golden_rows(name)``: Rows of a golden ``.npz``, read once."""
    cache: dict[str, Rows] = {}

    def load(name: str) -> Rows:
        if name not in cache:
            with np.load(shared_dir / "golden" / f"{name}.npz") as file:
                cache[name] = Rows(file["tokens"], file["offsets"], file["groups"])
        return cache[name]

    return load


@pytest.fixture(scope="session")
def small_cases() -> dict[str, Any]:
    """AReaL's results on tiny inputs (free to copy, hence in this repository)."""
    return dict(json.loads((Path(__file__).parent / "data" / "areal_small_cases.json").read_text()))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium on this machine; scripts/test installs it where it may")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield running
        running.close()
