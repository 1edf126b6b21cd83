"""Figures over all caps, worked out beside the page and shown as far as they are known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import streamlit as st

from packing.batch.refusal import BatchRefused
from packing.batch.simulation import BatchSimulation
from pages.shared import waiting
from tuning.plan.batch import Batch, CurvePoint, smallest_cap
from tuning.plan.plan import Packer, TuningPlan

_PATIENCE_S = 0.12
_REDRAW_S = 1.0
_BREATH_S = 0.002
"""Between two caps: a page that is being drawn goes first."""

_SPREAD = {"areal": 160, "prefix-aware": 24}
_NEARBY = {"areal": 48, "prefix-aware": 4}
"""Caps counted over the whole range, and neighbours of the cap in use on either side: ours takes
up to a second where AReaL's takes a hundredth."""

Point = TypeVar("Point")


@dataclass
class Growing(Generic[Point]):
    """Points by cap, one after the other in a thread; cached by whoever starts it.

    now: the cap in use; the nearest one that is not known yet is worked out next
    """

    points: dict[int, Point]
    now: int
    done: Future[None] = field(default_factory=Future)

    @classmethod
    def start(
        cls, pool: str, caps: Iterable[int], at: Callable[[int], Point | None], now: int = 0
    ) -> Growing[Point]:
        """Work out ``at(cap)``, the nearest to ``now`` first; None leaves the cap out.

        pool: what shares one thread; another pool does not wait for it
        """
        growing: Growing[Point] = cls({}, now)

        def work() -> None:
            left = set(caps)
            while left:
                cap = min(left, key=lambda one: (abs(math.log(one / max(growing.now, 1))), one))
                left.remove(cap)
                if (point := at(cap)) is not None:
                    growing.points[cap] = point
                time.sleep(_BREATH_S)

        growing.done = thread_of(pool).submit(work)
        return growing

    def so_far(self, now: int) -> tuple[dict[int, Point], bool]:
        """The points known so far, by ascending cap, and whether these are all."""
        self.now = now
        try:
            self.done.result(timeout=_PATIENCE_S)
        except TimeoutError:
            return dict(sorted(self.points.copy().items())), False
        return dict(sorted(self.points.items())), True


@st.cache_resource(show_spinner=False)
def thread_of(name: str) -> ThreadPoolExecutor:
    """One thread for what shares a name; another pool does not wait for it."""
    return ThreadPoolExecutor(1, thread_name_prefix=name)


def caps_in_view(batch: Batch, plan: TuningPlan) -> list[int]:
    """The caps that a curve of the plan is counted at: the whole range, and around the plan's."""
    step, now = plan.alignment, plan.max_tokens_per_mb // plan.alignment
    spread = batch.caps(plan, _SPREAD[plan.packer])
    around = range(now - _NEARBY[plan.packer], now + _NEARBY[plan.packer] + 1)
    low, high = smallest_cap(batch.rows, plan), max(spread[-1], now * step)
    return sorted({*spread, *(k * step for k in around if low <= k * step <= high)})


@st.cache_resource(show_spinner=False, max_entries=96)
def _curve(
    data: str,
    plan_key: str,
    place: int,
    pool: str,
    _batch: Batch,
    _plan: TuningPlan,
    _of: Callable[[BatchSimulation], Any],
) -> Growing[Any]:
    def at(cap: int) -> Any:
        try:
            return _of(_batch.simulation(_plan, cap))
        except BatchRefused:
            return None  # AReaL stops there

    return Growing.start(pool, caps_in_view(_batch, _plan), at, _plan.max_tokens_per_mb)


def grown(
    batch: Batch,
    plan: TuningPlan,
    of: Callable[[BatchSimulation], Point],
    pool: str,
    place: int = 0,
) -> tuple[dict[int, Point], bool]:
    """What ``of`` says of each cap that is known so far, and whether these are all."""
    key = replace(plan, max_tokens_per_mb=plan.alignment).key  # whatever the cap now is
    growing = _curve(batch.rows.fingerprint, key, place, pool, batch, plan, of)
    return growing.so_far(plan.max_tokens_per_mb)


def curve(batch: Batch, plan: TuningPlan, packer: Packer) -> tuple[list[CurvePoint], bool]:
    """The points of a packer known so far, by ascending cap, and whether these are all."""
    # Neighbours are counted around a cap; a drag within the same stretch asks for no others.
    place = plan.max_tokens_per_mb // (plan.alignment * _NEARBY[packer])
    mine = replace(plan, packer=packer)
    points, complete = grown(batch, mine, CurvePoint.of, "curves", place)
    return list(points.values()), complete


def watch() -> None:
    """Draw the page again soon: what it shows is still growing."""
    soon = time.monotonic() + _REDRAW_S
    waiting.redraw_when(lambda: time.monotonic() > soon)
