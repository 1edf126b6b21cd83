"""Rows, a task that records, and a bench whose steps cost what a formula says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tuning.jobs.points import Point, Question
from tuning.jobs.store import Store
from tuning.jobs.task import Task
from tuning.measure.shares import Share, share_of
from tuning.plan.batch import Batch
from tuning.plan.plan import Layout, TuningPlan


def grpo_rows(groups: int = 6, samples: int = 4, seed: int = 0, top: int = 900) -> Rows:
    """Prompts of 40 to 80 tokens, each with samples of 20 to 60."""
    random = np.random.default_rng(seed)
    rows, group = [], []
    for number in range(groups):
        prompt = random.integers(0, top, random.integers(40, 80)).tolist()
        for _ in range(samples):
            rows.append(prompt + random.integers(0, top, random.integers(20, 60)).tolist())
            group.append(number)
    return Rows.from_lists(rows, group)


class RecordingTask(Task):
    """Keeps points as the worker's does, and events in a list instead of standard output."""

    events: list[tuple[str, Mapping[str, Any]]]

    @classmethod
    def of(cls, plan: TuningPlan, rows: Rows, folder: Path) -> RecordingTask:
        task = cls("test", plan, rows, {}, Store(folder / "history.sqlite"))
        object.__setattr__(task, "events", [])
        return task

    def emit(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))

    def asking(self, point: Point) -> None:
        self.emit("asking", point=point.to_json())

    def answer(self, point: Point, known: bool = False) -> None:
        if not known:
            self.store.add(self.job, self.plan, point)
        self.emit("point", point=point.to_json(), known=known)


@dataclass
class _Memory:
    budget: int


Cost = Callable[[Layout, int, Mapping[str, float]], float]


@dataclass
class FormulaBench:
    """As ``measurement.Bench``, but a step costs ``cost(mode, cap, features)`` seconds.

    bytes_per_token: memory of a cap; more than ``budget`` is out of memory
    """

    plan: TuningPlan
    rows: Rows
    cost: Cost
    budget: int = 2**40
    bytes_per_token: int = 1000
    asked: list[tuple[Layout, int]] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    description: str = "a formula"
    gradient_bytes: int = 50_000

    def __post_init__(self) -> None:
        self.batch = Batch(self.rows, PrefixOrder.of(self.rows))
        self.memory = _Memory(self.budget)

    def question(self, mode: Layout, cap: int) -> Question:
        return Question.of(self.plan, mode, cap, self.rows.fingerprint, "formula", "0")

    def share(self, mode: Layout, cap: int) -> Share:
        return share_of(self.rows, self.batch.simulation(self.plan, cap), mode)

    def measure(
        self,
        mode: Layout,
        cap: int,
        limit_s: float = math.inf,
        repeat_s: float = math.inf,
        progress: Callable[[int, int], None] = lambda repeat, of: None,
    ) -> Point:
        progress(0, 0)
        self.asked.append((mode, cap))
        question = self.question(mode, cap)
        memory = cap * self.bytes_per_token
        if memory > self.budget:
            return Point(
                question, "out-of-memory", message="does not fit", measured_at="2026-01-01"
            )
        share = self.share(mode, cap)
        seconds = self.cost(mode, cap, share.features)
        whole = seconds <= limit_s
        return Point(
            question,
            "measured" if whole else "estimated",
            step_s=seconds,
            p20_s=seconds * 0.999,
            p80_s=seconds * 1.001,
            repeats=3 if whole else 0,
            phases_s={"packing": 0.0},
            original_tokens=self.rows.n_tokens,
            padded_tokens=int(share.features["padded_tokens"]),
            memory_bytes=memory,
            memory_kind="formula",
            features=share.features,
            measured_at="2026-01-01T00:00:00+00:00",
        )

    def in_turn(
        self,
        points: list[Point],
        rounds: int,
        progress: Callable[[int, int], None] = lambda repeat, of: None,
    ) -> list[Point]:
        progress(1, rounds)
        return [replace(point, repeats=rounds) for point in points]
