"""A run of ``benchmarks.gpu`` as others use it: its rows, and what share of the peak was reached.

Notable:
- a dry run's times mean nothing, so it has no efficiencies
- the JSON may be of a run that was cut short: rows without figures say why, in ``reason``
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tuning.plan.gpus import peak_tflops

TABLES = ("compile", "checks", "attention", "steps")
_BACKENDS = {"triton": "triton", "cascade": "cascade", "flex": "flex_ours", "dense": "dense"}


class GpuRunError(ValueError):
    """The file is no run of the GPU benchmark; the message says what is wrong."""


@dataclass(frozen=True)
class GpuRun:
    """machine: of the run; the others: rows as ``benchmarks.gpu`` wrote them."""

    machine: dict[str, Any]
    compile: Sequence[dict[str, Any]]
    checks: Sequence[dict[str, Any]]
    attention: Sequence[dict[str, Any]]
    steps: Sequence[dict[str, Any]]

    @property
    def dry(self) -> bool:
        return bool(self.machine.get("dry_run"))

    @property
    def device(self) -> str:
        return str(self.machine.get("device", "unknown device"))

    def efficiencies(self) -> dict[str, float]:
        """Share of the device's bfloat16 peak that attention reached, forward and backward, by
        backend: the median over the timed trees. Empty where the peak is not known.
        """
        peak = None if self.dry else peak_tflops(self.device, "bfloat16")
        if peak is None:
            return {}
        shares = {
            backend: [
                row["both_tflops"] / peak
                for row in self.attention
                if row.get("provider") == provider and "both_tflops" in row
            ]
            for backend, provider in _BACKENDS.items()
        }
        return {backend: median(found) for backend, found in shares.items() if found}


def load_gpu_run(path: Path) -> GpuRun:
    """The run in a JSON file of ``benchmarks.gpu``. Raises GpuRunError, OSError."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise GpuRunError(f"{path.name} is no JSON: {error}") from error
    if not isinstance(report, dict) or not isinstance(report.get("machine"), dict):
        raise GpuRunError(f'{path.name} is no run of benchmarks.gpu: it has no "machine"')
    for name in TABLES:
        rows = report.get(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise GpuRunError(
                f'{path.name} is no run of benchmarks.gpu: "{name}" is no list of rows'
            )
    return GpuRun(report["machine"], *(report[name] for name in TABLES))
