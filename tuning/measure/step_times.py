"""From steps that were run to a point's times: medians, spread, and what a part of a step tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.model.step import StepResult
from tuning.jobs.points import Point
from tuning.measure.shares import Share

Floats = npt.NDArray[np.float64]


def work(share: Share) -> Floats:
    """Tokens and attention of each micro-batch, each as a part of the step's."""
    tokens = np.array([b.padded_tokens for b in share.batches], dtype=np.float64)
    areas = np.array(share.areas, dtype=np.float64)
    parts: Floats = (tokens / max(tokens.sum(), 1) + areas / max(areas.sum(), 1)) / 2
    return parts


def scale(share: Share, chosen: Sequence[int]) -> tuple[float, float, float]:
    """How much longer the step is than ``chosen``: least, middle, most (by tokens, by area)."""
    tokens = np.array([b.padded_tokens for b in share.batches], dtype=np.float64)
    areas = np.array(share.areas, dtype=np.float64)
    ratios = [tokens.sum() / tokens[chosen].sum()]
    if areas[chosen].sum():
        ratios.append(areas.sum() / areas[chosen].sum())
    return float(min(ratios)), float(np.mean(ratios)), float(max(ratios))


def step_times(seconds: Floats) -> dict[str, Any]:
    """Median and spread of whole steps, as a Point's fields."""
    low, median, high = _spread(seconds)
    return {"step_s": median, "p20_s": low, "p80_s": high, "repeats": len(seconds)}


def logp_times(seconds: Floats) -> dict[str, float]:
    """The same of ``compute_logp`` passes."""
    low, median, high = _spread(seconds)
    return {"logp_s": median, "logp_p20_s": low, "logp_p80_s": high}


def _spread(seconds: Floats) -> list[float]:
    spread: list[float] = np.percentile(seconds, (20, 50, 80)).tolist()
    return spread


def point_of(blank: Point, steps: Sequence[tuple[StepResult, ...]], packing_s: float) -> Point:
    """``blank`` as measured: medians and spread of whole steps, the packing counted in each."""
    return replace(
        blank,
        outcome="measured",
        **step_times(packing_s + np.array([sum(s.total_s for s in done) for done in steps])),
        phases_s={"packing": packing_s} | _median_phases(steps),
        loss=sum(s.loss for s in steps[-1]),
    )


def _median_phases(steps: Sequence[tuple[StepResult, ...]]) -> dict[str, float]:
    phases: dict[str, list[float]] = {}
    for done in steps:
        batches = [b for s in done for b in s.micro_batches]
        for name in ("inputs", "mask", "forward", "backward"):
            phases.setdefault(name, []).append(sum(getattr(b, f"{name}_s") for b in batches))
        phases.setdefault("optimizer", []).append(sum(s.optimizer_s for s in done))
    return {name: float(np.median(values)) for name, values in phases.items()}
