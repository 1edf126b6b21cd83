"""A run of ``benchmarks.gpu`` as others use it: its rows, and what share of the peak was reached.

Notable:
- only what a GPU did is taken: a dry run plays the device and its clock, so its file is refused
- the JSON may be of a run that was cut short: rows without figures say why, in ``reason``
- a share counts visible pairs; over ``block_efficiency`` it is the share of what a kernel computed,
  which a tree of another shape keeps: ``share_of_tiles``
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tuning.jobs.folders import data_folder
from tuning.plan.gpus import peak_tflops
from tuning.plan.numbers import moment

TABLES = ("compile", "checks", "attention", "steps")
OF_PROJECT = Path(__file__).resolve().parents[2] / "docs" / "gpu_run.json"
# Matrix products of each of our kernels; a product of a visible pair is 2 D FLOPs a query head.
_PRODUCTS = {"forward": 2, "dq": 3, "dkv": 4, "dqkv": 5}
_BOTH = 7  # as attention is counted everywhere: 2 forward, 5 backward


class GpuRunError(ValueError):
    """The file is no measurement of the GPU benchmark; the message says what is wrong."""


@dataclass(frozen=True)
class Efficiency:
    """What a kernel of a provider reached on one tree.

    kernel:           "forward", "dq", "dkv", "dqkv"; or "both", forward and backward together
    tile:             ``rows x keys / warps / stages``; "" where the kernel is not ours
    share:            of the device's dense peak in ``dtype``, by the kernel's own products over
                      visible pairs ("both": 7 of them, also where more are made)
    block_efficiency: visible pairs among those in visited tiles; None where it is not known
    """

    provider: str
    kernel: str
    tree: str
    tokens: int
    head_dim: int
    dtype: str
    tile: str
    milliseconds: float
    share: float
    block_efficiency: float | None

    @property
    def share_of_tiles(self) -> float | None:
        """The share of the peak by all pairs of the visited tiles."""
        return self.share / self.block_efficiency if self.block_efficiency else None


@dataclass(frozen=True)
class Spread:
    """Least, median and most of a share of the peak over ``trees`` timed trees."""

    low: float
    middle: float
    high: float
    trees: int
    provenance: str


@dataclass(frozen=True)
class GpuRun:
    """machine: of the run; the others: rows as ``benchmarks.gpu`` wrote them."""

    machine: dict[str, Any]
    compile: Sequence[dict[str, Any]]
    checks: Sequence[dict[str, Any]]
    attention: Sequence[dict[str, Any]]
    steps: Sequence[dict[str, Any]]

    @property
    def device(self) -> str:
        return str(self.machine["device"])

    @property
    def provenance(self) -> str:
        """Which device, when, with which libraries."""
        when = (
            moment(str(self.machine["when"])) if self.machine.get("when") else "at an unknown time"
        )
        packages = self.machine.get("packages")
        known = packages if isinstance(packages, dict) else {}
        named = [f"{name} {known[name]}" for name in ("torch", "triton") if known.get(name)]
        return ", ".join([f"benchmarks.gpu on {self.device}", when, *named])

    def efficiencies(self) -> list[Efficiency]:
        """Every timed kernel on every timed tree; none where the device's peak is not known."""
        return [one for row in self.attention for one in self._of_row(row)]

    def _of_row(self, row: dict[str, Any]) -> Iterator[Efficiency]:
        dtype = str(row.get("dtype", "bfloat16"))
        peak = peak_tflops(self.device, dtype)
        area, heads, head_dim = (figure(row, name) for name in ("area", "heads", "head_dim"))
        if peak is None or not (area and heads and head_dim) or "reason" in row:
            return
        times = {"both": (_BOTH, "both_ms_p50")}
        times |= {name: (n, f"kernel_{name}_ms") for name, n in _PRODUCTS.items()}
        for kernel, (products, column) in times.items():
            ms = figure(row, column)
            if ms:
                yield Efficiency(
                    provider=str(row.get("provider")),
                    kernel=kernel,
                    tree=str(row.get("tree")),
                    tokens=int(figure(row, "tokens") or 0),
                    head_dim=int(head_dim),
                    dtype=dtype,
                    tile=str(row.get(f"kernel_{kernel}_tile", "")),
                    milliseconds=ms,
                    share=2e-9 * products * head_dim * heads * area / ms / peak,
                    block_efficiency=figure(row, f"kernel_{kernel}_efficiency"),
                )

    def share(
        self, provider: str = "triton", kernel: str = "both", head_dim: int | None = None
    ) -> Spread | None:
        """The shares of one kernel over the timed trees, for an estimate; None without any."""
        shares = [
            one.share
            for one in self.efficiencies()
            if (one.provider, one.kernel) == (provider, kernel) and head_dim in (None, one.head_dim)
        ]
        if not shares:
            return None
        spread = min(shares), median(shares), max(shares)
        return Spread(*spread, len(shares), self.provenance)

    def by_backend(self) -> dict[str, float]:
        """The middle of the shares of "triton" and "flex", where they were timed."""
        found = {"triton": self.share("triton"), "flex": self.share("flex_ours")}
        return {name: spread.middle for name, spread in found.items() if spread}


def read_gpu_run(text: str, name: str) -> GpuRun:
    """The run in the JSON of ``benchmarks.gpu``; name: of its file, for messages.

    Raises GpuRunError where it is no such JSON, or nothing in it was measured on a GPU.
    """
    try:
        report = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise GpuRunError(f"{name} is no JSON: {error}") from error
    machine = report.get("machine") if isinstance(report, dict) else None
    if not isinstance(machine, dict):
        raise GpuRunError(f'{name} is no run of benchmarks.gpu: it has no "machine".')
    for table in TABLES:
        rows = report.get(table)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise GpuRunError(f'{name} is no run of benchmarks.gpu: "{table}" is no list of rows.')
    if machine.get("dry_run") is not False:
        raise GpuRunError(
            f"{name} is of a dry run, made on a CPU with a played device and clock: its times are "
            "no measurement. Run python -m benchmarks.gpu, without --dry-run, on a GPU."
        )
    if not isinstance(machine.get("device"), str):
        why = machine.get("reason", "its first stage did not end")
        raise GpuRunError(f"{name} holds no measurement: the run found no GPU ({why}).")
    return GpuRun(machine, *(report[table] for table in TABLES))


def load_gpu_run(path: Path) -> GpuRun:
    """The run in a file. Raises GpuRunError, OSError."""
    return read_gpu_run(path.read_text(encoding="utf-8", errors="replace"), path.name)


def keep_gpu_run(text: str, name: str) -> GpuRun:
    """Keep a run for the pages, reports and estimates of this machine, in place of the one before.

    Raises GpuRunError where it is no measurement, OSError where the disk refuses.
    """
    run = read_gpu_run(text, name)
    _kept_file().write_text(text, encoding="utf-8")
    return run


def kept_gpu_run() -> GpuRun | None:
    """The run kept here, or the one that came with Espalier; None where there is neither."""
    path = next((path for path in (_kept_file(), OF_PROJECT) if path.is_file()), None)
    return load_gpu_run(path) if path else None


def _kept_file() -> Path:
    return data_folder() / "gpu_run.json"


def figure(row: Mapping[str, Any], name: str) -> float | None:
    """A positive number of a row; None for whatever else stands there."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < math.inf else None
