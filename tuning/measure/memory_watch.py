"""Peak memory of a measured step: the device's allocator, or the process on a CPU.

Notable:
- on Linux the kernel's own high-water mark of resident memory is reset and read
  (``/proc/self/clear_refs``, ``VmHWM``): no sampling, nothing missed. Elsewhere a thread samples
- on a CPU spare blocks of glibc's allocator count, up to half as much again as the step's tensors.
  ``MALLOC_MMAP_THRESHOLD_=65536`` in the worker would give freed blocks back at once, but every
  step then faults its pages in anew: measured in turn on one thread, steps of ``tiny`` took 1.6
  times and those of ``small`` 1.5 times as long, for a peak 30 % lower. Times are what is asked
  for, and the peak seen is what such a step does take, so the allocator is left as it is
- what an earlier step freed is given back to the system first, so that it is not counted again
- a budget is enforced, by the allocator or by the system: a step that needs more runs out of memory
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from kernels.memory import limit_memory

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_SAMPLE_S = 0.005
_HEADROOM = 0.95


@dataclass
class Peak:
    """``bytes`` is set when the watched block has ended."""

    bytes: int | None = None


class MemoryWatch:
    """Watches one device; on a CPU what the process held before the model is not counted.

    budget_gib: what may be used; 0 takes what the device has free
    """

    def __init__(self, device: torch.device, budget_gib: float = 0.0) -> None:
        self._device = device
        self.release()
        self._idle = psutil.Process().memory_info().rss
        self.kind = (
            "peak allocated on the device"
            if device.type == "cuda"
            else "peak resident memory above the idle process, the allocator's spare blocks too"
        )
        if device.type == "cuda":
            total = torch.cuda.get_device_properties(device).total_memory
        else:
            total = int(psutil.virtual_memory().available * _HEADROOM)
        self.budget = int(budget_gib * 2**30) or total

    def enforce(self) -> None:
        """From here on the process gets no more than the budget; for a worker's process only."""
        limit_memory(self._device, self.budget)

    @contextmanager
    def peak(self) -> Iterator[Peak]:
        """The peak of the block, in bytes."""
        peak = Peak()
        self.release()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            yield peak
            peak.bytes = int(torch.cuda.max_memory_allocated(self._device))
        elif _CLEAR.exists():
            _CLEAR.write_text("5")
            yield peak
            peak.bytes = _high_water() - self._idle
        else:
            with _Sampler() as sampler:
                yield peak
            peak.bytes = sampler.highest - self._idle

    def release(self) -> None:
        """Give back what is free in the allocators' hands."""
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        elif sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
            if trim is not None:
                trim(0)

    def needed(self) -> str:
        """What was in use when memory ran out, as a lower bound of what is needed."""
        return f"needs more than {self.budget / 2**30:.2f} GiB"


def _high_water() -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} does not say VmHWM")


class _Sampler:
    def __init__(self) -> None:
        self.highest = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        process = psutil.Process()
        while not self._end.wait(_SAMPLE_S):
            self.highest = max(self.highest, process.memory_info().rss)

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
