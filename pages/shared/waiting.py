"""Waiting for what works beside the page: loads, jobs, curves that grow.

Notable:
- the run itself waits. A fragment with a timer would ask for its own redraw while another run has
  drawn other elements in its place; the browser then ends the app ("Bad delta path")
- the browser is heard meanwhile: a click or a key press ends the wait and starts the next run,
  and what had not been drawn yet stays on screen, with what was typed into it
- whatever the page does not need in order to go on is waited for last, by the frame
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import streamlit as st

from pages.shared import state
from tuning.jobs.jobs import Jobs, JobView

_TICK_S = 0.1
_TICKS_A_LOOK = 10
"""What the page asked for is looked for on disk, or redraws it all: once a second will do."""

_AWAITED = "waiting.awaited"


def wait(until: Callable[[], bool], tell: Callable[[], object]) -> None:
    """Return as soon as ``until()`` holds; ``tell`` draws how it stands, ten times a second.

    Whatever is drawn lets Streamlit look for a request of the browser.
    """
    while not until():
        tell()
        time.sleep(_TICK_S)


def redraw_when(changed: Callable[[], bool]) -> None:
    """Draw the page again once ``changed()`` holds; it is asked when the page has been drawn."""
    st.session_state.setdefault(_AWAITED, []).append(changed)


def redraw_as_it_goes(jobs: Jobs, view: JobView) -> None:
    """Draw the page again once a job says more, or ends."""
    redraw_when(lambda: jobs.view(view.id) != view)


def forget() -> None:
    """A run begins: what an earlier one waited for is no longer on screen."""
    st.session_state.pop(_AWAITED, None)


def redraw() -> None:
    """Wait for what the page asked for, if for anything."""
    if awaited := st.session_state.pop(_AWAITED, None):
        ticks = itertools.count(1)
        wait(
            lambda: next(ticks) % _TICKS_A_LOOK == 0 and any(changed() for changed in awaited),
            st.empty().empty,
        )
        state.redraw()
