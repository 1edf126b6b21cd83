"""What a rank tells of its steps, and what all ranks tell together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import distributed as dist

from kernels.model import MicroBatch, StepResult
from kernels.ranks.job import RankBatches


@dataclass(frozen=True)
class RankReport:
    """One rank's step: medians over repeats, in seconds; waiting for other ranks is in them.

    logp_s:     of the ``compute_logp`` pass; 0 where the job has none
    peak_bytes: on CUDA allocated by the device's allocator; on a CPU resident memory above what
                the process held before the model
    """

    rank: int
    micro_batches: int
    dummies: int
    step_s: float
    logp_s: float
    inputs_s: float
    mask_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float
    peak_bytes: int
    loss: float


@dataclass(frozen=True)
class RankRun:
    """A rank's report, and the seconds of each of its steps and ``compute_logp`` passes."""

    report: RankReport
    steps_s: tuple[float, ...]
    logp_s: tuple[float, ...]


def run_of(
    rank: int,
    batches: RankBatches,
    done: Sequence[tuple[list[StepResult], float]],
    peak_bytes: int,
) -> RankRun:
    """The report of steps and their ``compute_logp`` seconds, as ``done`` lists them."""

    def phase(name: str) -> float:
        return float(
            np.median(
                [
                    sum(getattr(b, f"{name}_s") for one in updates for b in one.micro_batches)
                    for updates, _ in done
                ]
            )
        )

    steps_s = [sum(one.total_s for one in updates) for updates, _ in done]
    logp_s = [seconds for _, seconds in done]
    own: list[MicroBatch] = [b for update in batches.updates for b in update]
    report = RankReport(
        rank=rank,
        micro_batches=len(own),
        dummies=sum(not len(b.layout.rows) for b in own),
        step_s=float(np.median(steps_s)),
        logp_s=float(np.median(logp_s)),
        inputs_s=phase("inputs"),
        mask_s=phase("mask"),
        forward_s=phase("forward"),
        backward_s=phase("backward"),
        optimizer_s=float(np.median([sum(o.optimizer_s for o in updates) for updates, _ in done])),
        peak_bytes=peak_bytes,
        loss=sum(one.loss for one in done[-1][0]),
    )
    return RankRun(report, tuple(steps_s), tuple(logp_s))


def slowest(seconds: Sequence[float], device: torch.device) -> list[float]:
    """The largest of every rank's values, place by place."""
    values = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    slowest: list[float] = values.tolist()
    return slowest


def _gather(report: RankReport, device: torch.device) -> list[RankReport]:
    """Every rank's report, as numbers."""
    names = [f.name for f in fields(RankReport)]
    own = torch.tensor(
        [float(getattr(report, name)) for name in names], dtype=torch.float64, device=device
    )
    all_of_them = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, own)
    whole = {"rank", "micro_batches", "dummies", "peak_bytes"}
    return [
        RankReport(**{n: int(x) if n in whole else x for n, x in zip(names, one, strict=True)})
        for one in (numbers.tolist() for numbers in all_of_them)
    ]


def together(run: RankRun, device: str) -> dict[str, Any]:
    """What rank 0 prints in the end."""
    where = torch.device(device)
    reports = _gather(run.report, where)
    steps_s, logp_s = slowest(run.steps_s, where), slowest(run.logp_s, where)
    return {
        "step_s": float(np.median(steps_s)),
        "steps_s": steps_s,
        "logp_s": logp_s,
        "loss": sum(report.loss for report in reports),
        "ranks": [vars(report) for report in reports],
    }
