"""What a sweep knows at a moment: candidates, answers, the fits through them, the result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tuning.jobs.points import Point
from tuning.plan.plan import Layout
from tuning.sweep.batches import Features, judged, predicted
from tuning.sweep.costmodel import CostModel, MemoryFit
from tuning.sweep.pick import recommend
from tuning.sweep.result import Candidate, SweepResult, timed

_BUSY = 1.5


@dataclass
class Board:
    """Candidates and their answers.

    features: what the cost model reads, of each candidate that AReaL does not refuse
    answers:  a point of each mode and cap that was asked, and whether the history knew it
    other_features: features of the batches that are not measured, by cap
    gradient_bytes: of the model's gradients on one rank
    blank:    the result before anything is known
    """

    blank: SweepResult
    budget_bytes: int
    gradient_bytes: int
    candidates: Mapping[int, Candidate] = field(default_factory=dict)
    features: Mapping[int, Features] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    answers: dict[tuple[Layout, int], tuple[Point, bool]] = field(default_factory=dict)
    other_features: Mapping[int, tuple[Features, ...]] = field(default_factory=dict)

    def trees(self) -> dict[int, Point]:
        """Answers of tree packing, by cap."""
        return {cap: found for (mode, cap), (found, _) in self.answers.items() if mode == "tree"}

    def timed(self) -> dict[int, float]:
        """Seconds of the caps that have a time of their own."""
        return {cap: point.step_s for cap, point in self.trees().items() if point.step_s}

    def ran_out_below(self, cap: int) -> bool:
        """Whether this cap or a smaller one has run out of memory."""
        return any(p.outcome == "out-of-memory" and c <= cap for c, p in self.trees().items())

    def memory(self) -> MemoryFit:
        peaks = {cap: p.memory_bytes for cap, p in self.trees().items() if p.memory_bytes}
        return MemoryFit.of(peaks, self.budget_bytes)

    def cost_model(self) -> CostModel | None:
        """Fitted to whole steps; to parts of steps too where there are fewer than three."""
        trees = [point for point in self.trees().values() if point.step_s]
        whole = [point for point in trees if point.outcome == "measured"]
        used = whole if len(whole) >= 3 else trees
        if len(used) < 2:
            return None
        return CostModel.fit([(p.features, p.step_s) for p in used if p.step_s])

    def expected_s(self, cap: int) -> float:
        """Seconds to plan with: the model's, however far out, or those of the slowest step yet."""
        model = self.cost_model()
        if model is None:
            return max(self.timed().values(), default=0.0)
        return model.predict(self.features[cap], beyond=True).seconds

    def result(self, finished: bool = False) -> SweepResult:
        """All of it, as it stands."""
        model, memory = self.cost_model(), self.memory()
        points = tuple(self._candidate(one, model, memory) for one in self.candidates.values())
        modes: tuple[Layout, ...] = ("flat", "padded")
        baselines = {str(mode): self._baseline(mode) for mode in modes}
        kinds = sorted({p.memory_kind for p, _ in self.answers.values() if p.memory_kind})
        return replace(
            self.blank,
            points=points,
            baselines=baselines,
            pick=recommend(points, baselines, self.budget_bytes, self.advice),
            holdout_error=model.holdout_error if model else None,
            memory_note=kinds[0] if kinds else "",
            notes=(*self.blank.notes, *_busy(self.blank.machine)),
            finished=finished,
        )

    def _candidate(self, one: Candidate, model: CostModel | None, memory: MemoryFit) -> Candidate:
        if one.refused:
            return one
        cap = one.max_tokens_per_mb
        features, others = self.features[cap], self.other_features.get(cap, ())
        if model is not None:
            one = predicted(one, model, features, others)
        one = self._on_measured_batch(one, model, memory)
        return judged(one, features, others, self.gradient_bytes, self.budget_bytes)

    def _on_measured_batch(
        self, one: Candidate, model: CostModel | None, memory: MemoryFit
    ) -> Candidate:
        cap = one.max_tokens_per_mb
        if model is not None and model.outside(self.features[cap]) is None:
            predicted = model.predict(self.features[cap])
            one = replace(
                one,
                predicted_s=predicted.seconds,
                predicted_low_s=predicted.low,
                predicted_high_s=predicted.high,
            )
        answer = self.answers.get(("tree", cap))
        if answer is not None:
            return timed(one, *answer, self.budget_bytes)
        if self.ran_out_below(cap):
            return replace(one, fits=False, message="a smaller cap ran out of memory")
        one = replace(one, fits=memory.fits(cap), memory_bytes=memory.predict(cap))
        if one.memory_bytes is not None:
            one = replace(one, memory_kind="estimated")
        if one.fits is False or one.predicted_s is None or model is None:
            return one
        return replace(
            one,
            step_s=one.predicted_s,
            step_kind="estimated",
            low_s=one.predicted_low_s,
            high_s=one.predicted_high_s,
            message=f"by the cost model, from {model.points} steps",
            tokens_per_s=self.blank.original_tokens / max(one.predicted_s, 1e-9),
        )

    def _baseline(self, mode: Layout) -> Candidate | None:
        found = next((a for (m, _), a in self.answers.items() if m == mode), None)
        if found is None:
            return None
        point, known = found
        paid = point.padded_tokens or None
        blank = Candidate(
            point.question.max_tokens_per_mb,
            paid_tokens=paid,
            padded_token_ratio=paid / self.blank.original_tokens if paid else None,
        )
        return timed(blank, point, known, self.budget_bytes)


def _busy(machine: str) -> tuple[str, ...]:
    """A sentence where other work makes times on a CPU doubtful."""
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if not machine.startswith("cpu") or load < _BUSY * cores:
        return ()
    return (f"The machine is busy (load {load:.1f} on {cores} cores), so times vary.",)
