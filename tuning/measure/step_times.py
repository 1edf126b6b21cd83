"""From steps that were run to a point's times: medians, spread, and what a part of a step tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernels.model import LogpResult, StepResult
from tuning.jobs.points import Point
from tuning.measure.shares import Share


def work(share: Share) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Tokens and attention of each micro-batch, each as a part of the step's."""
    tokens = np.array([b.padded_tokens for b in share.batches], dtype=np.float64)
    areas = np.array(share.areas, dtype=np.float64)
    parts: np.ndarray[tuple[int], np.dtype[np.float64]] = (
        tokens / max(tokens.sum(), 1) + areas / max(areas.sum(), 1)
    ) / 2
    return parts


def scale(share: Share, chosen: Sequence[int]) -> tuple[float, float, float]:
    """How much longer the step is than ``chosen``: least, middle, most (by tokens, by area)."""
    tokens = np.array([b.padded_tokens for b in share.batches], dtype=np.float64)
    areas = np.array(share.areas, dtype=np.float64)
    ratios = [tokens.sum() / tokens[chosen].sum()]
    if areas[chosen].sum():
        ratios.append(areas.sum() / areas[chosen].sum())
    return float(min(ratios)), float(np.mean(ratios)), float(max(ratios))


def point_of(blank: Point, steps: Sequence[tuple[StepResult, ...]], packing_s: float) -> Point:
    """``blank`` as measured: medians and spread of whole steps, the packing counted in each."""
    totals = [packing_s + sum(s.total_s for s in done) for done in steps]
    return replace(
        blank,
        outcome="measured",
        step_s=float(np.median(totals)),
        p20_s=float(np.percentile(totals, 20)),
        p80_s=float(np.percentile(totals, 80)),
        repeats=len(steps),
        phases_s={"packing": packing_s} | _median_phases(steps),
        loss=sum(s.loss for s in steps[-1]),
    )


def with_logp(point: Point, passes: Sequence[LogpResult], packing_s: float) -> Point:
    """``point`` with the times of its ``compute_logp`` passes, the packing counted in each."""
    totals = [packing_s + one.total_s for one in passes]
    return replace(
        point,
        logp_s=float(np.median(totals)),
        logp_p20_s=float(np.percentile(totals, 20)),
        logp_p80_s=float(np.percentile(totals, 80)),
    )


def _median_phases(steps: Sequence[tuple[StepResult, ...]]) -> dict[str, float]:
    phases: dict[str, list[float]] = {}
    for done in steps:
        batches = [b for s in done for b in s.micro_batches]
        for name in ("inputs", "mask", "forward", "backward"):
            phases.setdefault(name, []).append(sum(getattr(b, f"{name}_s") for b in batches))
        phases.setdefault("optimizer", []).append(sum(s.optimizer_s for s in done))
    return {name: float(np.median(values)) for name, values in phases.items()}
