"""The sweep: real steps at the caps that matter, a cost model for the others, and the pick.

Notable:
- ends first, then around the best predicted: each measured step refits the model; the fastest few
  and the best rival without trees are timed again in turn at the end
- what the history knows is not measured again, so a sweep that was stopped goes on where it was
- a step that cannot be timed whole within the budget is run in part and stays an estimate
- a point is kept the moment it is measured; the result so far follows it
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tuning.jobs.points import Point
from tuning.jobs.task import Task
from tuning.plan.gpus import gpu_named
from tuning.plan.plan import Layout
from tuning.sweep.batches import LEAST_CANDIDATES, OtherBatches, candidate_caps
from tuning.sweep.board import Board
from tuning.sweep.headroom import with_headroom
from tuning.sweep.pick import advice_for
from tuning.sweep.result import SweepResult
from tuning.sweep.roofline import estimate_sweep

if TYPE_CHECKING:
    from tuning.measure.ranks import RankBench
    from tuning.measure.step import Bench

DEFAULT_BUDGET_S = 600.0
# parts of the budget: what a whole step may take of what is left, or of all for the baselines
_STEP_PART = 0.35
_LEAST_STEP_PART = 0.05
_BASELINE_PARTS: dict[Layout, float] = {"flat": 0.25, "padded": 0.1}
_RUN_OFF_PART = 0.35
_RUN_OFF_TREES = 5
_RUN_OFF_WITHIN = 1.08
_LEAST_ROUNDS, _MOST_ROUNDS = 2, 5
_CLOSE = 2.0
_CRASHES = 2
_MANY_BEYOND = 3


def run(task: Task) -> str:
    """A job of kind "sweep"; arguments: ``budget_s``, ``longest_row`` of all the data."""
    longest = int(task.arguments.get("longest_row", 0))
    gpu = gpu_named(task.plan.device)
    if gpu is not None:
        task.emit("progress", message=f"estimating for {gpu.name}")
        return _told(
            task,
            estimate_sweep(
                task.rows,
                task.plan,
                gpu,
                longest,
                task.others,
                efficiencies=task.arguments.get("efficiencies"),
                timed=task.arguments.get("timed"),
            ),
        )
    from tuning.measure.areal import bench_for

    task.emit("progress", message="building the model, packing every candidate")
    bench = bench_for(task.plan, task.rows, str(task.arguments.get("areal_python") or ""))
    bench.memory.enforce()
    budget_s = float(task.arguments.get("budget_s", DEFAULT_BUDGET_S))
    return Sweep(task, bench, budget_s, longest).run()


def _told(task: Task, result: SweepResult) -> str:
    task.emit("result", result=result.to_json())
    return result.pick.reason if result.pick else "no candidate could be timed"


class Sweep:
    """One sweep under way on one device."""

    def __init__(
        self, task: Task, bench: Bench | RankBench, budget_s: float, longest_row: int = 0
    ) -> None:
        self._task, self._bench, self._budget_s = task, bench, budget_s
        self._deadline = time.monotonic() + budget_s
        self._longest_row = longest_row
        self._others = OtherBatches.of(task.plan, task.others)
        blank = self._others.blank(
            bench.batch,
            longest_row,
            model=bench.description,
            machine=bench.question("tree", 0).machine,
            budget_bytes=bench.memory.budget,
            notes=bench.notes,
        )
        self.board = Board(blank, bench.memory.budget, bench.gradient_bytes)
        self._consider(candidate_caps(bench.batch, task.plan, longest_row))

    def _consider(self, caps: list[int]) -> None:
        """Count each cap's trees, and what its step's time depends on."""
        board, bench = self.board, self._bench
        board.candidates = {
            cap: board.candidates.get(cap)
            or self._others.candidate(bench.batch, cap, self._longest_row)
            for cap in caps
        }
        board.features = {
            cap: board.features.get(cap) or bench.share("tree", cap).features
            for cap, one in board.candidates.items()
            if not one.refused
        }
        board.other_features = {
            cap: board.other_features.get(cap) or self._others.features(cap)
            for cap in board.features
        }

    def _narrow(self) -> None:
        """Spread the candidates over what fits, where memory ends well before the range does."""
        board, plan = self.board, self._task.plan
        largest = board.memory().largest
        beyond = [cap for cap in board.features if largest is not None and cap > largest]
        if plan.caps or len(beyond) < _MANY_BEYOND:
            return
        caps = candidate_caps(self._bench.batch, plan, self._longest_row, largest)
        self._consider(sorted({*caps, *board.trees(), min(beyond)}))

    def run(self) -> str:
        """All of it; returns the pick's reason."""
        board = self.board
        _told(self._task, board.result())
        if board.features:
            self._ask("tree", min(board.features))
            fitting = [c for c in board.features if board.memory().fits(c) is not False]
            self._ask("tree", max(fitting, default=max(board.features)))
            self._narrow()
            for mode, part in _BASELINE_PARTS.items():
                self._ask(mode, self._baseline_cap(), self._budget_s * part)
            while (cap := self._next_cap()) is not None and self._affordable(cap):
                self._ask("tree", cap)
            self._run_off()
            plan, points = self._task.plan, board.result().points
            board.advice = tuple(advice_for(self._bench.batch, plan, points))
        result = board.result(finished=True)
        pick = with_headroom(
            result.pick,
            self._bench.batch,
            self._task.plan,
            board.memory().predict,
            board.budget_bytes,
            self._longest_row,
        )
        return _told(self._task, replace(result, pick=pick))

    def _ask(self, mode: Layout, cap: int, limit_s: float | None = None) -> None:
        """Answer from the history, or measure; the limit is what a whole step may take."""
        if limit_s is None:
            limit_s = max(self._left() * _STEP_PART, self._budget_s * _LEAST_STEP_PART)
        question, store = self._bench.question(mode, cap), self._task.store
        known = self._task.known(question)
        if known is not None and (known.outcome != "estimated" or (known.step_s or 0) > limit_s):
            self._keep(mode, cap, known, known=True)
            return
        crashes = store.crashes(question.key)
        if crashes >= _CRASHES:
            message = f"not tried again: its worker died {crashes} times"
            self._keep(mode, cap, Point(question, "crashed", message=message), known=True)
            return
        self._task.asking(Point(question, "crashed"))
        wanted = max(LEAST_CANDIDATES - len(self.board.answers), 1) + 2
        name = f"cap {cap:,}" if mode == "tree" else f"{mode} rows"

        def progress(repeat: int, of: int) -> None:
            self._say(f"{name} · " + (f"repeat {repeat} of {of}" if repeat else "warm-up"))

        point = self._bench.measure(mode, cap, limit_s, self._left() / wanted, progress)
        self._keep(mode, cap, point)

    def _keep(self, mode: Layout, cap: int, point: Point, known: bool = False) -> None:
        self.board.answers[mode, cap] = (point, known)
        self._task.answer(point, known)
        _told(self._task, self.board.result())

    def _next_cap(self) -> int | None:
        """The best predicted, or its neighbours, or any, until enough is measured."""
        board = self.board
        done, memory = board.trees(), board.memory()
        left = [
            cap
            for cap in board.features
            if cap not in done and not board.ran_out_below(cap) and memory.fits(cap) is not False
        ]
        if not left:
            return None
        timed = board.timed()
        if len(timed) < 3:
            middle = (min(board.features) * max(board.features)) ** 0.5
            return min(left, key=lambda cap: abs(cap - middle))
        expected = {cap: board.expected_s(cap) for cap in left} | timed
        best = min(expected, key=lambda cap: (expected[cap], cap))
        if best in left:
            return best
        order = sorted(expected)
        place = order.index(best)
        beside = [cap for cap in order[max(place - 1, 0) : place + 2] if cap in left]
        if not beside and len(done) >= LEAST_CANDIDATES:
            return None
        return min(beside or left, key=lambda cap: expected[cap])

    def _affordable(self, cap: int) -> bool:
        """Whether there is time for a step and for the run-off; the first step is always tried."""
        left = self._left() - self._budget_s * _RUN_OFF_PART
        return not self.board.timed() or self.board.expected_s(cap) <= left

    def _run_off(self) -> None:
        """The fastest few and their rival again, in turn: a busy spell then decides nothing.

        Near the fastest as measured, or as the cost model has them: what was timed in a busy spell
        is heard again. Whole steps only; as many as two rounds have time for, five rounds at most.
        """
        in_turn = self._bench.in_turn
        if in_turn is None:
            return
        answers = self.board.answers
        timed = {
            key: point.step_s
            for key, (point, _) in answers.items()
            if point.outcome == "measured" and point.step_s
        }
        likely = {
            key: min(seconds, self.board.expected_s(key[1]))
            for key, seconds in timed.items()
            if key[0] == "tree"
        }
        trees = sorted(likely, key=likely.__getitem__)
        if not trees:
            return
        best = min(trees, key=timed.__getitem__)
        others = [key for key in trees if key != best]
        near = [key for key in others if likely[key] <= _RUN_OFF_WITHIN * timed[best]]
        rivals = sorted(timed.keys() - likely.keys(), key=timed.__getitem__)[:1]
        wanted = [best, *rivals, *(near or others[:1])]
        limit_s, left = _CLOSE * timed[best], self._left()
        keys: list[tuple[Layout, int]] = []
        for key in wanted[: _RUN_OFF_TREES + 1]:
            round_s = sum(timed[one] for one in [*keys, key])
            if timed[key] <= limit_s and _LEAST_ROUNDS * round_s <= left:
                keys.append(key)
        if len(keys) < 2 or all(answers[key][1] for key in keys):
            return
        rounds = min(int(left / sum(timed[key] for key in keys)), _MOST_ROUNDS)

        def progress(number: int, of: int) -> None:
            self._say(f"the fastest {len(keys)} in turn · round {number} of {of}")

        points = in_turn([answers[key][0] for key in keys], rounds, progress)
        for (mode, cap), point in zip(keys, points, strict=True):
            self._keep(mode, cap, point)

    def _baseline_cap(self) -> int:
        """What is run today: the plan's cap where rows fit it, else the smallest that works."""
        return max(self._task.plan.max_tokens_per_mb, min(self.board.features))

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _say(self, doing: str) -> None:
        left = max(self._left(), 0.0)
        self._task.emit("progress", message=f"{doing} · {_about(left)}", left_s=left)


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(round(seconds, -1), 10):.0f} s left"
    return f"about {seconds / 60:.0f} min left"
