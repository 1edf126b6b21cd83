"""Honest timers: CUDA events with a synchronised end, or the CPU's monotonic clock.

Notable:
- on CUDA a phase is the time between two events on the stream: phases add up to what the device
  took, host work that the device did not wait for costs nothing, and nothing is synchronised
  between phases
- spread is given as the 20th and 80th percentile over repeats; the first runs are thrown away
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat, warm-up not among them."""

    samples: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return float(np.median(self.samples))

    @property
    def p20_s(self) -> float:
        return float(np.percentile(self.samples, 20))

    @property
    def p80_s(self) -> float:
        return float(np.percentile(self.samples, 80))


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(
    function: Callable[[], object], device: str | torch.device, repeats: int = 5, warmup: int = 1
) -> Timing:
    """Time ``repeats`` runs after ``warmup`` runs, the device idle before and after each."""
    if repeats < 1:
        raise ValueError(f"at least one repeat is needed, not {repeats}")
    where = torch.device(device)
    for _ in range(warmup):
        function()
    samples = []
    for _ in range(repeats):
        synchronize(where)
        start = time.perf_counter()
        function()
        synchronize(where)
        samples.append(time.perf_counter() - start)
    return Timing(tuple(samples))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class PhaseClock:
    """Named phases of one run; ``seconds()`` waits for the device and adds them up."""

    def __init__(self, device: str | torch.device) -> None:
        self._device = torch.device(device)
        self._host: list[tuple[str, float]] = []
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block under ``name``; a name used twice adds up. Not counted if it raises."""
        if self._device.type == "cuda":
            stream = torch.cuda.current_stream(self._device)
            start, end = _event(), _event()
            start.record(stream)
            yield
            end.record(stream)
            self._events.append((name, start, end))
        else:
            begun = time.perf_counter()
            yield
            self._host.append((name, time.perf_counter() - begun))

    def seconds(self) -> dict[str, float]:
        """Seconds by phase, in order of first use."""
        synchronize(self._device)
        timed = self._host + [(n, a.elapsed_time(b) / 1e3) for n, a, b in self._events]
        total: dict[str, float] = {}
        for name, spent in timed:
            total[name] = total.get(name, 0.0) + spent
        return total
