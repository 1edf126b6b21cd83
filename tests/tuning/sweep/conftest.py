"""A sweep's clock stands still: what it asks for depends on its steps, not on a busy machine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuning.sweep.run.time", SimpleNamespace(monotonic=lambda: 0.0))
