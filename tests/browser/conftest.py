"""The app as a person meets it: a server of its own, headless Chromium, an empty profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.app import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("app")) as started:
        yield started


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of a fresh profile; the test fails on an error in the browser's console."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    context.set_default_timeout(60_000)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    # A deep link asks for two files that are not there: Streamlit's own, harmless.
    assert [e for e in errors if "404" not in e] == []
