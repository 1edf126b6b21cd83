"""Pages without a browser."""

from __future__ import annotations

import pytest

from pages.shared import waiting


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends when the page is drawn; a test that waits for more says until when."""
    monkeypatch.setattr(waiting, "redraw", lambda: None)
