"""Figures over all caps, worked out beside the page and shown as far as they are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import streamlit as st

from pages.shared import state
from tuning.plan.batch import Batch, CurvePoint

_PATIENCE_S = 0.12
_EVERY = {"areal": 1, "flat": 1, "prefix-aware": 4}
"""Every how manieth cap is worked out: ours takes a second where AReaL's takes a hundredth."""

Point = TypeVar("Point")


@dataclass(frozen=True)
class Growing(Generic[Point]):
    """Points by cap, one after the other in a thread; cached by whoever starts it."""

    points: dict[int, Point]
    done: Future[None]

    @classmethod
    def start(
        cls, pool: str, caps: Iterable[int], at: Callable[[int], Point | None]
    ) -> Growing[Point]:
        """Work out ``at(cap)`` in ascending order; None leaves the cap out.

        pool: what shares one thread; another pool does not wait for it
        """
        points: dict[int, Point] = {}

        def work() -> None:
            for cap in sorted(set(caps)):
                if (point := at(cap)) is not None:
                    points[cap] = point

        return cls(points, _pool(pool).submit(work))

    def so_far(self) -> tuple[dict[int, Point], bool]:
        """The points known so far, and whether these are all."""
        try:
            self.done.result(timeout=_PATIENCE_S)
        except TimeoutError:
            return dict(self.points), False
        return self.points, True


@st.cache_resource(show_spinner=False)
def _pool(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix=name)


@st.cache_resource(show_spinner=False, max_entries=64)
def _curve(fingerprint: str, packer: str, alignment: int, _bench: Batch) -> Growing[CurvePoint]:
    caps = _bench.caps(alignment)
    chosen = [*caps[:: _EVERY[packer]], caps[-1]]
    return Growing.start("curves", chosen, lambda cap: _bench.curve_point(cap, packer))


def curve(bench: Batch, packer: str, alignment: int) -> tuple[list[CurvePoint], bool]:
    """The points known so far, by ascending cap, and whether these are all."""
    points, complete = _curve(bench.rows.fingerprint, packer, alignment, bench).so_far()
    return list(points.values()), complete


@st.fragment(run_every=1.0)
def watch() -> None:
    """Draw the page again while curves grow; the page stops calling this when they are done."""
    if st.session_state.pop("curves_seen", False):
        state.redraw()
    st.session_state["curves_seen"] = True
