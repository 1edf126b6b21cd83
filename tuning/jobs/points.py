"""A measurement as a question and its answer; what the store keeps and the pages draw."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from tuning.jobs.checked import read_own
from tuning.plan.plan import Layout, StepOf, TuningPlan

Outcome = Literal["measured", "estimated", "out-of-memory", "refused", "crashed"]

_OF_THE_PLAN = (
    "model", "dtype", "optimizer_dtype", "gradient_checkpointing", "head_chunk", "dp_size",
    "ppo_n_minibatches", "dispatch", "memory_budget_gib", "step_of",
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """What is timed: one step of a plan's batch, in a mode, at a cap.

    data:    fingerprint of the batch's rows
    machine: device name, and on a CPU its number of threads
    torch:   version
    step_of: whose step; ours where an older history does not say
    """

    data: str
    mode: Layout
    max_tokens_per_mb: int
    packer: str
    model: str
    dtype: str
    optimizer_dtype: str
    gradient_checkpointing: bool
    head_chunk: int
    dp_size: int
    ppo_n_minibatches: int
    dispatch: str
    memory_budget_gib: float
    machine: str
    torch: str
    step_of: StepOf = "espalier"

    @classmethod
    def of(
        cls, plan: TuningPlan, mode: Layout, cap: int, data: str, machine: str, torch: str
    ) -> Question:
        return cls(
            data=data,
            mode=mode,
            max_tokens_per_mb=cap,
            packer=plan.packer if mode == "tree" else mode,
            machine=machine,
            torch=torch,
            **{name: getattr(plan, name) for name in _OF_THE_PLAN},
        )

    @property
    def key(self) -> str:
        """16 hex digits: the same question has the same key, in an older history too."""
        ours = {"step_of"} if self.step_of == "espalier" else set()
        told = {name: value for name, value in asdict(self).items() if name not in ours}
        text = json.dumps(told, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Point:
    """The answer to a question. A step is ``ppo_update`` of one rank's share of the batch.

    outcome:      "measured": whole steps were run; "estimated": some micro-batches of one were,
                  and the rest is scaled from them
    step_s:       median seconds of a whole step, packing included; p20_s, p80_s its spread over
                  ``repeats`` (of an estimate: the band, and ``repeats`` is 0)
    logp_s:       median seconds of AReaL's ``compute_logp`` pass over the whole share, forward
                  only, packing included, as often as the step; None where no whole step was timed
    phases_s:     median seconds by phase: packing, inputs, mask, forward, backward, optimizer
    memory_bytes: peak of the process or device during a step; memory_kind says which
    memory_parts: on CUDA the peaks of the first and of a later micro-batch, and what was reserved
    features:     what the cost model reads: micro-batches, padded tokens, areas, nodes
    loss:         of the last step; None where not all micro-batches were run
    message:      what happened where no whole step was timed: out of memory, refused, in part
    notes:        sentences that belong to the figure
    host:         fingerprint of the machine; empty where an older Espalier measured
    """

    question: Question
    outcome: Outcome
    step_s: float | None = None
    p20_s: float | None = None
    p80_s: float | None = None
    repeats: int = 0
    logp_s: float | None = None
    logp_p20_s: float | None = None
    logp_p80_s: float | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    original_tokens: int = 0
    tree_tokens: int = 0
    padded_tokens: int = 0
    n_trees: int = 0
    memory_bytes: int | None = None
    memory_kind: str = ""
    memory_parts: Mapping[str, int] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)
    loss: float | None = None
    message: str = ""
    measured_at: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    host: str = ""

    @property
    def tokens_per_s(self) -> float | None:
        """Original tokens per second: never packed ones."""
        return self.original_tokens / self.step_s if self.step_s else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Point:
        """Raises CheckError; fields that only a newer Espalier knows are passed over."""
        return read_own(cls, value, "the point")


def plan_of(value: object) -> TuningPlan:
    """A plan that was kept; fields that only a newer Espalier knows are passed over.

    Raises PlanError or SourceError.
    """
    known = {one.name for one in fields(TuningPlan)}
    own = {n: v for n, v in value.items() if n in known} if isinstance(value, Mapping) else value
    return TuningPlan.from_json(own)


def installed_versions(*packages: str) -> dict[str, str]:
    """Versions of those packages that are installed, without importing them."""
    found = {}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def answers(point: Point, plan: TuningPlan, layout: Layout | None = None) -> bool:
    """Whether a point is of this plan, at any cap, on a machine that the plan's device may be.

    layout: of one layout alone, where given

    A step on a CPU says nothing of a GPU, nor the other way round; a GPU that is only estimated
    for ("h100-80") has no measured step at all.
    """
    asked = point.question
    same = Question.of(
        plan, layout or asked.mode, asked.max_tokens_per_mb, asked.data, asked.machine, asked.torch
    )
    kind = {"cpu": True, "cuda": False}.get(plan.device.partition(":")[0])
    return asked == same and kind is asked.machine.startswith("cpu")


def steps_at(points: Iterable[Point], plan: TuningPlan, data: str) -> dict[Layout, Point]:
    """The step of each layout at the plan's cap: measured before estimated, then the newest.

    points: newest first; data: fingerprint of the batch's rows. All are of one machine, that of the
    newest step: times of two machines are not set side by side.
    """
    timed = [
        point
        for point in points
        if point.step_s
        and point.question.data == data
        and point.question.max_tokens_per_mb == plan.max_tokens_per_mb
        and answers(point, plan)
    ]
    here = [point for point in timed if point.question.machine == timed[0].question.machine]
    steps: dict[Layout, Point] = {}
    for point in sorted(here, key=lambda point: point.outcome != "measured"):
        steps.setdefault(point.question.mode, point)
    return steps
