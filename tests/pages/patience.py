"""Reruns of a page until what works beside it has ended, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamlit.testing.v1 import AppTest

PATIENCE_S = 240.0


def rerun_until(app: AppTest, ready: Callable[[], object]) -> AppTest:
    """The app once ``ready()`` holds; an exception on the page ends the wait."""
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert not app.exception, app.exception
        assert time.monotonic() < deadline, "still waiting"
        time.sleep(0.02)
        app.run()
    assert not app.exception, app.exception
    return app


def settled(app: AppTest) -> AppTest:
    """The app once its rows are there: the bar of the load is gone."""
    return rerun_until(app, lambda: not any(b.key == "cancel_load" for b in app.button))
