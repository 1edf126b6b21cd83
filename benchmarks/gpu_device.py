"""The device that a GPU run times, and the stand-in that a dry run on a CPU has in its place.

Notable:
- a dry run takes the same path through every line: only the device, its clock and the libraries
  that need a GPU are played, so that what fails there would have failed on the GPU
- a stand-in's clock ticks by itself: a dry run's times mean nothing, and say so
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import torch

L2_BYTES = 256 * 2**20


class Device(Protocol):
    """What the stages need of the device they time."""

    torch_device: torch.device
    dtype: torch.dtype
    heads: tuple[int, int]
    head_dim: int
    runs: int

    def mark(self) -> Any:
        """A point on the device's time line."""

    def elapsed_ms(self, first: Any, second: Any) -> float:
        """Milliseconds between two points, once the device has come to the second."""

    def synchronize(self) -> None: ...

    def flush_cache(self) -> None: ...

    def peak_bytes(self, call: Callable[[], object]) -> int:
        """Most bytes that a call adds."""

    def about(self) -> dict[str, Any]: ...


@dataclass
class CudaDevice:
    """The first GPU: 32 query heads, 8 key heads of 128 in bfloat16."""

    torch_device: torch.device = field(default_factory=lambda: torch.device("cuda"))
    dtype: torch.dtype = torch.bfloat16
    heads: tuple[int, int] = (32, 8)
    head_dim: int = 128
    runs: int = 20

    def __post_init__(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError("torch sees no CUDA device; --dry-run needs none")
        self._flush = torch.empty(L2_BYTES, dtype=torch.int8, device=self.torch_device)

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def elapsed_ms(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        second.synchronize()
        return float(first.elapsed_time(second))

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def flush_cache(self) -> None:
        self._flush.zero_()

    def peak_bytes(self, call: Callable[[], object]) -> int:
        torch.cuda.synchronize(self.torch_device)
        before = torch.cuda.memory_allocated(self.torch_device)
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        call()
        torch.cuda.synchronize(self.torch_device)
        return torch.cuda.max_memory_allocated(self.torch_device) - before

    def about(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(self.torch_device)
        return {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
        }


@dataclass
class DryDevice:
    """A CPU in a GPU's place: tiny sizes in float32, the kernels in Triton's interpreter."""

    torch_device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    heads: tuple[int, int] = (4, 2)
    head_dim: int = 64
    runs: int = 1
    _ticks: Any = field(default_factory=lambda: count(1))

    def mark(self) -> int:
        return int(next(self._ticks))

    def elapsed_ms(self, first: int, second: int) -> float:
        return float(second - first)

    def synchronize(self) -> None:
        self.mark()

    def flush_cache(self) -> None:
        self.mark()

    def peak_bytes(self, call: Callable[[], object]) -> int:
        call()
        return self.mark()

    def about(self) -> dict[str, Any]:
        return {"device": "none: a dry run on a CPU, its times mean nothing"}


def milliseconds(
    device: Device, call: Callable[[], object], runs: int, seconds: float
) -> list[float]:
    """Times of ``runs`` calls, fewer (but three) where they take more than ``seconds``."""
    times: list[float] = []
    start = time.monotonic()
    while len(times) < runs and (len(times) < 3 or time.monotonic() - start < seconds):
        device.flush_cache()
        first = device.mark()
        call()
        times.append(device.elapsed_ms(first, device.mark()))
    return times
