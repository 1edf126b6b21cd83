"""One measured point: real training steps of a real model over one rank's share of a batch.

Notable:
- a *step* is AReaL's ``ppo_update`` of the batch: every PPO minibatch forward, backward and
  optimizer, with packing, inputs and masks counted; ``compute_logp`` is not in it
- the warm-up is the heaviest micro-batch: it meets out of memory first, and tells whether whole
  steps fit in the time; where not even one does, a part of it is run and the rest is scaled, and
  the point says "estimated"
- a step that does not fit is a result: it says where memory ran out, and has no speed
- ``tiny`` and ``small`` fold token ids into their own vocabulary: else the head of a foreign
  tokenizer's 150,000 ids would be all of the step
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import torch

from kernels.micro_batches import MicroBatch
from kernels.model import TreeLM, build_model
from kernels.optimizer import StepOptimizer, adamw
from kernels.step import StepData, StepOptions, StepOutOfMemory, StepResult, train_step
from packing.packers.areal import RowTooLong
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tuning.machine import fixed_threads, machine_name, versions
from tuning.memory_watch import MemoryWatch
from tuning.plan import TuningPlan
from tuning.points import Mode, Point, Question
from tuning.shares import Share, folded, share_of
from tuning.workbench import Workbench, batch_plan

FOLDING = ("tiny", "small")
"""Models whose vocabulary stays as small as they are."""

_LONG_S = 20.0
_MOST_REPEATS = 5

Progress = Callable[[int, int], None]
"""Hears the repeat under way, from 1, and how many there are; repeat 0 is the warm-up."""


class Bench:
    """A model, its optimizer and a batch on one device, ready to be timed."""

    def __init__(self, plan: TuningPlan, rows: Rows) -> None:
        self.plan = plan
        self.bench = Workbench(rows, PrefixOrder.of(rows))
        self.device = torch.device(plan.device)
        if self.device.type == "cpu":
            torch.set_num_threads(fixed_threads())
        self.memory = MemoryWatch(self.device, plan.memory_budget_gib)
        largest = int(rows.tokens.max(initial=0)) + 1
        folds = plan.model.lower() in FOLDING
        self.model: TreeLM = build_model(
            plan.model,
            vocab_at_least=0 if folds else largest,
            dtype=plan.dtype,
            device=plan.device,
            gradient_checkpointing=plan.gradient_checkpointing,
        )
        vocabulary = int(self.model.config.vocab_size)
        self.notes: tuple[str, ...] = ()
        self.read = rows
        if largest > vocabulary:
            self.read = folded(rows, vocabulary)
            self.notes = (f"token ids folded into a vocabulary of {vocabulary:,}",)
        self.optimizer: StepOptimizer = adamw(
            self.model, dtype=getattr(torch, plan.optimizer_dtype)
        )
        random = np.random.default_rng(0)
        # Old log-probabilities near a random model's, advantages of both signs: an ordinary update.
        old = np.full(rows.n_tokens, -np.log(vocabulary), dtype=np.float32)
        advantage = np.repeat(random.standard_normal(len(rows)), rows.lengths)
        self.data = StepData.of(self.read, old, advantage)
        self._warm = False

    def question(self, mode: Mode, cap: int) -> Question:
        data, machine = self.bench.rows.fingerprint, machine_name(self.device)
        return Question.of(self.plan, mode, cap, data, machine, torch.__version__)

    def share(self, mode: Mode, cap: int) -> Share:
        """Raises RowTooLong, or ValueError and RuntimeError in AReaL's words."""
        chain = self.bench.chain(batch_plan(self.plan, cap))
        return share_of(self.read, self.bench.order, chain, mode, self.plan.packer)

    def measure(
        self,
        mode: Mode,
        cap: int,
        limit_s: float = math.inf,
        repeat_s: float = math.inf,
        progress: Progress = lambda repeat, of: None,
    ) -> Point:
        """Time whole steps after a warm-up, or a part of one where a step exceeds ``limit_s``.

        As many steps as ``repeat_s`` seconds allow: at most five, at least two, or one where a step
        takes more than 20 s.
        """
        blank = Point(
            self.question(mode, cap),
            "refused",
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(self.device),
            notes=self.notes,
        )
        begun = time.perf_counter()
        try:
            share = self.share(mode, cap)
        except (RowTooLong, ValueError, RuntimeError) as error:
            return replace(blank, message=str(error))
        except MemoryError:
            return self._out_of_memory(blank, "packing")
        packing_s = time.perf_counter() - begun
        blank = replace(
            blank,
            original_tokens=self.bench.rows.n_tokens,
            tree_tokens=share.tree_tokens,
            n_trees=share.n_trees,
            padded_tokens=int(share.features["padded_tokens"]),
            features=share.features,
        )
        try:
            with self.memory.peak() as peak:
                point, steps = self._time(blank, share, packing_s, (limit_s, repeat_s), progress)
        except StepOutOfMemory as error:
            where = f"{error.phase} of micro-batch {error.micro_batch + 1}"
            return self._out_of_memory(blank, where)
        except MemoryError:
            return self._out_of_memory(blank, "the step")
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
                _of_steps(point, own, point.phases_s["packing"]),
                measured_at=now,
                versions=versions(self.device),
            )
            for point, own in zip(points, steps, strict=True)
        ]

    def _time(
        self,
        blank: Point,
        share: Share,
        packing_s: float,
        limits_s: tuple[float, float],
        progress: Progress,
    ) -> tuple[Point, list[StepResult]]:
        limit_s, repeat_s = limits_s
        first = int(np.argmax(_work(share)))
        warm = self._warm_up(share, first, progress)
        needed_s = packing_s + (warm[-1].total_s * _scale(share, [first])[1] if warm else 0)
        if needed_s > limit_s and len(share.batches) > 1:
            chosen, ran = self._sample(share, first, warm[-1], limit_s - packing_s, progress)
            low, middle, high = (packing_s + ran.total_s * x for x in _scale(share, chosen))
            point = replace(
                blank,
                outcome="estimated",
                step_s=middle,
                p20_s=low,
                p80_s=high,
                message=f"{len(chosen):,} of {len(share.batches):,} micro-batches were run "
                f"({ran.total_s:.1f} s); the rest is scaled by their tokens and attention.",
            )
            return point, [*warm, ran]
        steps: list[tuple[StepResult, ...]] = []
        repeats = 1
        while len(steps) < repeats:
            progress(len(steps) + 1, repeats)
            steps.append(self._step(share))
            if len(steps) == 1:
                repeats = _repeats(sum(s.total_s for s in steps[0]), repeat_s)
        point = _of_steps(blank, steps, packing_s)
        return point, [*warm, *(s for done in steps for s in done)]

    def _warm_up(self, share: Share, first: int, progress: Progress) -> list[StepResult]:
        """One micro-batch; on CUDA twice, for the first run compiles and tunes kernels."""
        cuda = self.device.type == "cuda"
        if self._warm and not cuda and len(share.batches) == 1:
            return []  # it would be the whole step again, and a CPU has nothing to compile
        progress(0, 0)
        self._warm = True
        return [self._part(share, [first]) for _ in range(1 + cuda)]

    def _sample(
        self, share: Share, heaviest: int, warm: StepResult, room_s: float, progress: Progress
    ) -> tuple[list[int], StepResult]:
        """As many micro-batches, evenly spread by their work, as fit into ``room_s``."""
        each = warm.total_s * _scale(share, [heaviest])[1] / len(share.batches)
        count = int(np.clip(room_s / max(each, 1e-9) - 1, 0, len(share.batches) - 1))
        if count < 2:
            return [heaviest], warm
        by_work = np.argsort(_work(share))
        at = (np.arange(count) + 0.5) * len(by_work) / count
        chosen = sorted(set(by_work[at.astype(np.int64)].tolist()))
        progress(1, 1)
        return chosen, self._part(share, chosen)

    def _part(self, share: Share, chosen: Sequence[int]) -> StepResult:
        return self._train([share.batches[i] for i in chosen])

    def _step(self, share: Share) -> tuple[StepResult, ...]:
        return tuple(self._train(minibatch) for minibatch in share.minibatches)

    def _train(self, batches: Sequence[MicroBatch]) -> StepResult:
        options = StepOptions(chunk_size=self.plan.head_chunk)
        return train_step(self.model, self.optimizer, batches, self.data, options)

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


def _work(share: Share) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Tokens and attention of each micro-batch, each as a part of the step's."""
    tokens = np.array([b.padded_tokens for b in share.batches], dtype=np.float64)
    areas = np.array(share.areas, dtype=np.float64)
    work: np.ndarray[tuple[int], np.dtype[np.float64]] = (
        tokens / max(tokens.sum(), 1) + areas / max(areas.sum(), 1)
    ) / 2
    return work


def _scale(share: Share, chosen: Sequence[int]) -> tuple[float, float, float]:
    """How much longer the step is than ``chosen``: least, middle, most (by tokens, by area)."""
    tokens = np.array([b.padded_tokens for b in share.batches], dtype=np.float64)
    areas = np.array(share.areas, dtype=np.float64)
    ratios = [tokens.sum() / tokens[chosen].sum()]
    if areas[chosen].sum():
        ratios.append(areas.sum() / areas[chosen].sum())
    return float(min(ratios)), float(np.mean(ratios)), float(max(ratios))


def _of_steps(blank: Point, steps: Sequence[tuple[StepResult, ...]], packing_s: float) -> Point:
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


def _repeats(step_s: float, repeat_s: float) -> int:
    least = 1 if step_s > _LONG_S else 2
    return int(np.clip(repeat_s / max(step_s, 1e-9) - 0.5, least, _MOST_REPEATS))


def _median_phases(steps: Sequence[tuple[StepResult, ...]]) -> dict[str, float]:
    phases: dict[str, list[float]] = {}
    for done in steps:
        batches = [b for s in done for b in s.micro_batches]
        for name in ("inputs", "mask", "forward", "backward"):
            phases.setdefault(name, []).append(sum(getattr(b, f"{name}_s") for b in batches))
        phases.setdefault("optimizer", []).append(sum(s.optimizer_s for s in done))
    return {name: float(np.median(values)) for name, values in phases.items()}
