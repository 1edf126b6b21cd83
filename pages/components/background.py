"""Curves over all caps, worked out beside the page and drawn as far as they are known."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import streamlit as st

from tuning.workbench import CurvePoint, Workbench

_PATIENCE_S = 0.12
_EVERY = {"areal": 1, "flat": 1, "prefix-aware": 4}
"""Every how manieth cap is worked out: ours takes a second where AReaL's takes a hundredth."""


@dataclass
class _Curve:
    points: list[CurvePoint] = field(default_factory=list)
    done: Future[None] | None = None


@st.cache_resource(show_spinner=False)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="curves")


@st.cache_resource(show_spinner=False, max_entries=64)
def _curve(fingerprint: str, packer: str, alignment: int, _bench: Workbench) -> _Curve:
    curve = _Curve()
    caps = _bench.caps(alignment)
    chosen = sorted({*caps[:: _EVERY[packer]], caps[-1]})

    def work() -> None:
        for cap in chosen:
            curve.points.append(_bench.curve_point(cap, packer))

    curve.done = _pool().submit(work)
    return curve


def curve(bench: Workbench, packer: str, alignment: int) -> tuple[list[CurvePoint], bool]:
    """The points known so far, and whether these are all."""
    found = _curve(bench.rows.fingerprint, packer, alignment, bench)
    assert found.done is not None
    try:
        found.done.result(timeout=_PATIENCE_S)
    except TimeoutError:
        return list(found.points), False
    return found.points, True


@st.fragment(run_every=1.0)
def watch() -> None:
    """Draw the page again while curves grow; the page stops calling this when they are done."""
    if st.session_state.pop("curves_seen", False):
        st.rerun()
    st.session_state["curves_seen"] = True
