"""What it takes to count every batch of a large training set, at many caps.

    python -m benchmarks.scale [--rows 1000000] [--caps 16] [--prompts 16] [--on local] [--json]

Rows are made on the fly and kept in files that the workers map: groups of 8 that share a prompt of
600 tokens and have 1,000 tokens each. Memory is the largest sum over this process and its workers
of what belongs to them alone (unique set size), looked at twice a second.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from packing.rows import Rows
from tuning.plan.plan import TuningPlan
from tuning.scale import count

_LENGTH, _PROMPT, _SAMPLES = 1000, 600, 8
_BLOCK = 1024


def make_rows(rows: int, folder: Path) -> Rows:
    """Rows whose tokens are a file, mapped into memory."""
    random = np.random.default_rng(0)
    path = folder / "tokens.npy"
    tokens = np.lib.format.open_memmap(path, "w+", np.int32, (rows * _LENGTH,))
    for start in range(0, rows, _BLOCK * _SAMPLES):
        n = min(_BLOCK * _SAMPLES, rows - start)
        block = random.integers(0, 150_000, (n, _LENGTH), dtype=np.int32)
        block[:, :_PROMPT] = block[np.arange(n) // _SAMPLES * _SAMPLES, :_PROMPT]
        tokens[start * _LENGTH : (start + n) * _LENGTH] = block.ravel()
    tokens.flush()
    del tokens
    mapped = np.asarray(np.load(path, mmap_mode="r"))
    offsets = np.arange(rows + 1, dtype=np.int64) * _LENGTH
    return Rows(mapped, offsets, (np.arange(rows) // _SAMPLES).astype(np.int32))


class Memory(threading.Thread):
    """The largest memory of this process and all that it started."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.over = 0, threading.Event()

    def run(self) -> None:
        here = psutil.Process()
        while not self.over.wait(0.5):
            total = 0
            for one in [here, *here.children(recursive=True)]:
                try:
                    total += one.memory_full_info().uss
                except psutil.Error:
                    continue
            self.peak = max(self.peak, total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--caps", type=int, default=16)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--on", default="local")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    caps = sorted({int(cap) // 128 * 128 for cap in np.geomspace(1024, 65536, given.caps)})
    plan = TuningPlan(prompts_per_step=given.prompts)
    with tempfile.TemporaryDirectory() as folder:
        rows = make_rows(given.rows, Path(folder))
        memory = Memory()
        memory.start()
        started = time.monotonic()
        found = count(rows, plan, caps, on=given.on)
        seconds = time.monotonic() - started
        memory.over.set()
    result = {
        "rows": given.rows,
        "tokens": given.rows * _LENGTH,
        "batches": found.n_batches,
        "caps": len(caps),
        "on": given.on,
        "seconds": seconds,
        "tokens_a_second_and_cap": given.rows * _LENGTH * len(caps) / seconds,
        "peak_memory_gib": memory.peak / 2**30,
        "pick": found.pick,
    }
    print(json.dumps(result) if given.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
