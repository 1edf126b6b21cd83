"""Peak memory of a measured step: the device's allocator, or the process on a CPU.

On Linux the kernel's own high-water mark of resident memory is reset and read
(``/proc/self/clear_refs``, ``VmHWM``): no sampling, nothing missed. Elsewhere a thread samples.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_SAMPLE_S = 0.005


@dataclass
class Peak:
    """``bytes`` is set when the watched block has ended."""

    bytes: int | None = None


class MemoryWatch:
    """Watches one device; on a CPU what the process held before the model is not counted."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._idle = psutil.Process().memory_info().rss
        self.kind = (
            "peak allocated on the device"
            if device.type == "cuda"
            else "peak resident memory above the idle process"
        )

    @contextmanager
    def peak(self) -> Iterator[Peak]:
        """The peak of the block, in bytes."""
        peak = Peak()
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

    def needed(self) -> str:
        """What was in use when memory ran out, as a lower bound of what is needed."""
        if self._device.type == "cuda":
            used = torch.cuda.max_memory_reserved(self._device)
        else:
            used = psutil.Process().memory_info().rss - self._idle
        return f"needs more than {used / 2**30:.1f} GiB"


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
