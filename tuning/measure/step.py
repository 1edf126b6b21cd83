"""One measured point: real training steps of a real model over one rank's share of a batch.

Notable:
- a *step* is AReaL's ``ppo_update`` of the batch: every PPO minibatch forward, backward and
  optimizer, with packing, inputs and masks counted
- ``compute_logp``, the forward pass before it, is timed beside each step and kept as a figure of
  its own: AReaL runs it only where log-probabilities are recomputed
- the warm-up is the heaviest micro-batch: it meets out of memory first, and tells whether whole
  steps fit in the time; where not even one does, a part of it is run and the rest is scaled, and
  the point says "estimated"
- a step that does not fit is a result: it says where memory ran out, and has no speed
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernels.model import (
    LogpResult,
    MicroBatch,
    StepOptimizer,
    StepOptions,
    StepOutOfMemory,
    StepResult,
    TreeLM,
    adamw,
    build_model,
    compute_logp,
    repeats_within,
    train_step,
)
from packing.rows import Rows
from tuning.jobs.points import Point
from tuning.measure.batch import MeasuredBatch, Prepared, vocabulary_at_least
from tuning.measure.machine import fixed_threads, machine_name, versions
from tuning.measure.memory_watch import MemoryWatch
from tuning.measure.shares import Share
from tuning.plan.plan import Layout, TuningPlan

Progress = Callable[[int, int], None]
"""Hears the repeat under way, from 1, and how many there are; repeat 0 is the warm-up."""


class Bench(MeasuredBatch):
    """A model, its optimizer and a batch on one device, ready to be timed."""

    def __init__(self, plan: TuningPlan, rows: Rows) -> None:
        device = torch.device(plan.device)
        if device.type == "cpu":
            torch.set_num_threads(fixed_threads())
        super().__init__(plan, rows, device, machine_name(device))
        self.memory = MemoryWatch(device, plan.memory_budget_gib)
        self.model: TreeLM = build_model(
            plan.model,
            vocab_at_least=vocabulary_at_least(plan, rows),
            dtype=plan.dtype,
            device=device,
            gradient_checkpointing=plan.gradient_checkpointing,
        )
        self.optimizer: StepOptimizer = adamw(
            self.model, dtype=getattr(torch, plan.optimizer_dtype)
        )
        self.description = self.model.description
        self.gradient_bytes = sum(p.numel() * p.element_size() for p in self.model.parameters())
        if plan.dp_size > 1:
            self.notes += (
                f"steps are those of the slowest of {plan.dp_size} ranks, run alone on one device: "
                "its dummy trees are in them; communication is not, and memory is not divided",
            )

    def measure(
        self,
        mode: Layout,
        cap: int,
        limit_s: float = math.inf,
        repeat_s: float = math.inf,
        progress: Progress = lambda repeat, of: None,
    ) -> Point:
        """Time whole steps after a warm-up, or a part of one where a step exceeds ``limit_s``.

        As many steps as ``repeat_s`` seconds allow, each with its ``compute_logp`` pass: see
        ``repeats_within``.
        """
        blank = self.blank(mode, cap)
        try:
            made = self.prepared(blank)
        except MemoryError:
            return self._out_of_memory(blank, "packing")
        if isinstance(made, Point):
            return made
        try:
            with self.memory.peak() as peak:
                point, steps = self._time(made, limit_s, repeat_s, progress)
        except StepOutOfMemory as error:
            where = f"{error.phase} of micro-batch {error.micro_batch + 1}"
            return self._out_of_memory(made.blank, where)
        except MemoryError:
            return self._out_of_memory(made.blank, "the step")
        return self._with_memory(point, peak.bytes, steps)

    def in_turn(
        self, points: Sequence[Point], rounds: int, progress: Progress = lambda repeat, of: None
    ) -> list[Point]:
        """Time measured points again, one step each a round: load and heat hit all of them alike.

        Times are new, of ``rounds`` repeats; memory and counts stay. A share is warm from before.
        """
        asked = [(p.question.mode, p.question.max_tokens_per_mb) for p in points]
        shares = [self.share(mode, cap) for mode, cap in asked]
        steps: list[list[tuple[StepResult, ...]]] = [[] for _ in points]
        for number in range(rounds):
            progress(number + 1, rounds)
            for own, share in zip(steps, shares, strict=True):
                own.append(self._step(share))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return [
            replace(
                point_of(point, own, point.phases_s["packing"]),
                measured_at=now,
                versions=versions(self.device),
            )
            for point, own in zip(points, steps, strict=True)
        ]

    def _time(
        self, made: Prepared, limit_s: float, repeat_s: float, progress: Progress
    ) -> tuple[Point, list[StepResult]]:
        share, packing_s = made.share, made.packing_s
        first = int(np.argmax(work(share)))
        warm = self._warm_up(share, first, progress)
        needed_s = packing_s + warm[-1].total_s * scale(share, [first])[1]
        if needed_s > limit_s and len(share.batches) > 1:
            chosen, ran = self._sample(share, first, warm[-1], limit_s - packing_s, progress)
            low, middle, high = (packing_s + ran.total_s * x for x in scale(share, chosen))
            point = replace(
                made.blank,
                outcome="estimated",
                step_s=middle,
                p20_s=low,
                p80_s=high,
                message=f"{len(chosen):,} of {len(share.batches):,} micro-batches were run "
                f"({ran.total_s:.1f} s); the rest is scaled by their tokens and attention.",
            )
            return point, [*warm, ran]
        self._logp([made.logp.batches[int(np.argmax(work(made.logp)))]])
        steps: list[tuple[StepResult, ...]] = []
        passes: list[LogpResult] = []
        repeats = 1
        while len(steps) < repeats:
            progress(len(steps) + 1, repeats)
            passes.append(self._logp(made.logp.batches))
            steps.append(self._step(share))
            if len(steps) == 1:
                once_s = passes[0].total_s + sum(s.total_s for s in steps[0])
                repeats = repeats_within(once_s, repeat_s)
        logp = logp_times(made.logp_packing_s + np.array([one.total_s for one in passes]))
        point = replace(point_of(made.blank, steps, packing_s), **logp)
        return point, [*warm, *(s for done in steps for s in done)]

    def _warm_up(self, share: Share, first: int, progress: Progress) -> list[StepResult]:
        """The heaviest micro-batch; on CUDA twice, for the first run compiles and tunes kernels.

        Where it is the whole step too: memory is paid for when it is first touched.
        """
        progress(0, 0)
        return [self._part(share, [first]) for _ in range(1 + (self.device.type == "cuda"))]

    def _sample(
        self, share: Share, heaviest: int, warm: StepResult, room_s: float, progress: Progress
    ) -> tuple[list[int], StepResult]:
        """As many micro-batches, evenly spread by their work, as fit into ``room_s``."""
        each = warm.total_s * scale(share, [heaviest])[1] / len(share.batches)
        count = int(np.clip(room_s / max(each, 1e-9) - 1, 0, len(share.batches) - 1))
        if count < 2:
            return [heaviest], warm
        by_work = np.argsort(work(share))
        at = (np.arange(count) + 0.5) * len(by_work) / count
        chosen = sorted(set(by_work[at.astype(np.int64)].tolist()))
        progress(1, 1)
        return chosen, self._part(share, chosen)

    def _part(self, share: Share, chosen: Sequence[int]) -> StepResult:
        return self._train([share.batches[i] for i in chosen])

    def _step(self, share: Share) -> tuple[StepResult, ...]:
        return tuple(self._train(minibatch) for minibatch in share.minibatches)

    def _train(self, batches: Sequence[MicroBatch]) -> StepResult:
        return train_step(self.model, self.optimizer, batches, self.data, self._options)

    def _logp(self, batches: Sequence[MicroBatch]) -> LogpResult:
        return compute_logp(self.model, batches, self.read, self._options)

    @property
    def _options(self) -> StepOptions:
        return StepOptions(chunk_size=self.plan.head_chunk)

    def _out_of_memory(self, blank: Point, where: str) -> Point:
        self.optimizer.zero_grad(set_to_none=True)
        self.memory.release()
        message = f"does not fit: {self.memory.needed()} at {where}"
        return replace(blank, outcome="out-of-memory", message=message)

    def _with_memory(self, point: Point, watched: int | None, steps: Sequence[StepResult]) -> Point:
        """The peak; on CUDA each micro-batch resets the device's own mark, so it is the largest."""
        kind = self.memory.kind
        runs = [b for step in steps for b in step.micro_batches if b.peak_allocated is not None]
        if not runs:
            return replace(point, memory_bytes=watched, memory_kind=kind)
        allocated = [b.peak_allocated or 0 for b in runs]
        parts = {
            "first micro-batch, allocated": allocated[0],
            "later micro-batch, allocated": max(allocated[1:], default=allocated[0]),
            "reserved": max(b.peak_reserved or 0 for b in runs),
        }
        peak = max(*allocated, watched or 0)
        return replace(point, memory_bytes=peak, memory_kind=kind, memory_parts=parts)


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


def logp_times(seconds: Floats) -> dict[str, Any]:
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
