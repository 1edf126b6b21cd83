"""One stage of the GPU run, in a process of its own: ``gpu.py`` starts it and reads its rows.

Notable:
- a row is one line of JSON, written through to the disk as it comes: what dies later loses nothing
- the last line of a stage that came to its end says so
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

ENDED = {"ended": True}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", help="machine, compile, checks, attention:TREE or steps:MODE")
    parser.add_argument("rows", type=Path, help="file that rows are appended to")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--golden", type=Path, nargs="*", default=[])
    parser.add_argument("--model", default="qwen3-0.6b")
    parser.add_argument("--wrong", nargs="*", default=[], help="backends that failed their checks")
    parser.add_argument("--seconds", type=float, default=460.0)
    parser.add_argument("--break", dest="fault", help="in a dry run: raise, die or hang at a row")
    options = parser.parse_args(arguments)
    if options.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, which is below
    with options.rows.open("a") as file:
        for row in itertools.chain(_rows(options), [ENDED]):
            file.write(json.dumps({"stage": options.stage, **row}) + "\n")
            file.flush()
            os.fsync(file.fileno())
            _break(options.fault)
    return 0


def _break(kind: str | None) -> None:
    """The faults that a run must survive: an exception, a dead process, one that never ends."""
    if kind == "raise":
        raise RuntimeError("a fault was asked for")
    if kind == "die":
        os.abort()
    if kind == "hang":
        time.sleep(3600)


def _rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    from benchmarks.gpu_device import CudaDevice, Device, DryDevice
    from benchmarks.gpu_libraries import DryLibraries, Libraries

    end = time.monotonic() + options.seconds
    device: Device = DryDevice() if options.dry_run else CudaDevice()
    libraries: Libraries = DryLibraries() if options.dry_run else Libraries()
    kind, _, name = options.stage.partition(":")
    if options.dry_run:
        from kernels.attention.registry import BACKENDS
        from kernels.triton import tuning

        torch.set_num_threads(1)
        BACKENDS["flex"] = replace(BACKENDS["dense"], name="flex")
        tuning.CANDIDATES = {which: few[:1] for which, few in tuning.CANDIDATES.items()}
    if kind == "machine":
        yield device.about()
    elif kind == "compile":
        yield from _compiled(options, device)
    elif kind == "checks":
        from benchmarks.gpu_checks import check_backends

        yield from check_backends(device.torch_device)
    elif kind == "attention":
        from benchmarks.gpu_attention import time_attention
        from benchmarks.gpu_trees import trees_to_time

        trees = {tree.name: tree for tree in trees_to_time(options.golden, options.dry_run)}
        yield from time_attention(trees[name], device, libraries, set(options.wrong), end)
    else:
        from benchmarks.gpu_steps import time_mode

        yield time_mode(
            name, options.model, options.golden, device, libraries, set(options.wrong), end
        )


def _compiled(options: argparse.Namespace, device: Any) -> Iterator[dict[str, Any]]:
    """Compiles every kernel that is timed, many at once, into Triton's and torch's own caches."""
    from benchmarks.gpu_warm import WARMED, warm

    todo = list(WARMED)[:2] if options.dry_run else list(WARMED)
    workers = 1 if options.dry_run else min(len(todo), max(1, (os.cpu_count() or 2) - 1))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        futures = {pool.submit(warm, name, options.dry_run): name for name in todo}
        for future in as_completed(futures):
            row: dict[str, Any] = {"compiled": futures[future]}
            try:
                yield {**row, "seconds": future.result()}
            except Exception as error:  # it will be compiled, or fail, where it is timed
                yield {**row, "reason": f"{type(error).__name__}: {error}"[:300]}


if __name__ == "__main__":
    sys.exit(main())
