"""How long files of rows take to load, first and again, and how much memory the longest takes.

    python -m benchmarks.loading [--rows 100000] [--ids 5000000] [--tokens 150000000] [--json]

Three files of token ids are made: ``--rows`` short rows, one row of ``--ids``, and rows of 2,000
with both masks up to ``--tokens`` (150 million are 2 GB of JSON lines). Each is loaded twice, every
time by a new process: what counts is the whole of ``load``, with the child process that reads and
without Python's own start. Peak memory is that of both processes, each at its own peak: an upper
bound. The machine's load is said beside the figures: on a busy one seconds are longer, those of the
CPUs (both processes, Python's start counted) less so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

LIMITS = {"rows": "again < 1 s", "ids": "first < 3 s", "tokens": "peak < 1.2 GB"}


def lines(kind: str, amount: int) -> Iterator[str]:
    """JSON lines of one of the three files."""
    random = np.random.default_rng(0)
    if kind == "ids":
        yield json.dumps({"input_ids": random.integers(0, 150_000, amount).tolist()})
    elif kind == "rows":
        for row in range(amount):
            if row % 8 == 0:
                prompt = random.integers(0, 150_000, 40).tolist()
            said = random.integers(0, 150_000, int(random.integers(20, 100))).tolist()
            yield json.dumps({"group": row // 8, "prompt_ids": prompt, "completion_ids": said})
    else:
        for _ in range(amount // 2000):
            ids = random.integers(100_000, 150_000, 2000).tolist()
            masks = {"attention_mask": [1] * 2000, "loss_mask": [0] * 400 + [1] * 1600}
            yield json.dumps({"input_ids": ids} | masks)


def measure(path: str) -> dict[str, float]:
    """Seconds of one load in this process and its child, and the peak of both in bytes."""
    from packing.sources import SourceSpec, load

    start = time.perf_counter()
    loaded = load(SourceSpec("file", path))
    seconds = time.perf_counter() - start
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    peak, ticks = 0, 0
    for process in ("self", *children):
        status = Path(f"/proc/{process}/status").read_text()
        peak += 1024 * int(status.partition("VmHWM:")[2].split()[0])
        spent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(spent[11]) + int(spent[12])
    return {
        "seconds": seconds,
        "cpu_seconds": ticks / os.sysconf("SC_CLK_TCK"),
        "peak_bytes": peak,
        "rows": len(loaded.rows),
        "tokens": loaded.rows.n_tokens,
        "from_cache": loaded.provenance.from_cache,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--ids", type=int, default=5_000_000)
    parser.add_argument("--tokens", type=int, default=150_000_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure)))
        return
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ESPALIER_CACHE"] = str(Path(folder) / "cache")
        for kind in ("rows", "ids", "tokens"):
            path = Path(folder) / f"{kind}.jsonl"
            with path.open("w") as out:
                out.writelines(line + "\n" for line in lines(kind, getattr(given, kind)))
            for load in ("first", "again"):
                command = [sys.executable, "-m", "benchmarks.loading", "--measure", str(path)]
                found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                measured.append(
                    {"file": kind, "bytes": path.stat().st_size, "load": load}
                    | found
                    | {"machine_load": os.getloadavg()[0], "limit": LIMITS[kind]}
                )
                if not given.json:
                    m = measured[-1]
                    print(
                        f"{kind:6} {m['bytes'] / 1e9:5.2f} GB {m['rows']:7,} rows {load:5} "
                        f"{m['seconds']:7.2f} s ({m['cpu_seconds']:.2f} of CPU)  "
                        f"peak {m['peak_bytes'] / 1e9:.2f} GB  "
                        f"({m['limit']}; load of the machine {m['machine_load']:.1f})",
                        flush=True,
                    )
            path.unlink()
    if given.json:
        print(json.dumps(measured))


if __name__ == "__main__":
    main()
