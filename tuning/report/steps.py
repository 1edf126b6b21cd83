"""A step's time in each mode, from a workspace's sweep or its points."""

from dataclasses import dataclass

from tuning.jobs.points import Point
from tuning.plan.numbers import number, seconds
from tuning.plan.plan import Layout
from tuning.sweep.result import Candidate, timed
from tuning.workspace.workspace import Workspace, answers

MODES: tuple[Layout, ...] = ("padded", "flat", "tree")


@dataclass(frozen=True)
class ReportStep:
    """Seconds of one step with its spread or band; cap: the ``max_tokens_per_mb`` it was run at."""

    seconds: float
    kind: str
    cap: int
    low: float | None = None
    high: float | None = None

    def text(self, at_cap: int) -> str:
        """``1.82 s measured``, and at which cap where that is not ``at_cap``."""
        where = "" if self.cap == at_cap else f" at {number(self.cap)}"
        return f"{seconds(self.seconds)} {self.kind}{where}"


def candidates(workspace: Workspace) -> tuple[Candidate, ...]:
    """The sweep's candidates; without a sweep, the newest measured tree point of each cap."""
    if workspace.sweep is not None:
        return workspace.sweep.points
    found: dict[int, Candidate] = {}
    for one in _own_points(workspace, "tree"):
        cap = one.question.max_tokens_per_mb
        if cap not in found:
            found[cap] = timed(_counted(one), one, False, None)
    return tuple(found[cap] for cap in sorted(found))


def step_of(workspace: Workspace, mode: Layout) -> ReportStep | None:
    """The time of a step of the plan in a mode, or None where there is none.

    From the sweep, or the newest point; a whole measured step goes before an estimated one.
    """
    cap = workspace.plan.max_tokens_per_mb
    if workspace.sweep is not None:
        if mode == "tree":
            points = workspace.sweep.points
            found = next((p for p in points if p.max_tokens_per_mb == cap), None)
        else:
            found = workspace.sweep.baselines.get(mode)
        if found is None or found.step_s is None or found.step_kind is None:
            return None
        return ReportStep(
            found.step_s, found.step_kind, found.max_tokens_per_mb, found.low_s, found.high_s
        )
    known = [p for p in _own_points(workspace, mode) if p.step_s]
    known = [p for p in known if p.question.max_tokens_per_mb == cap]
    known.sort(key=lambda p: p.outcome != "measured")
    if not known:
        return None
    one = known[0]
    return ReportStep(one.step_s or 0.0, one.outcome, cap, one.p20_s, one.p80_s)


def _own_points(workspace: Workspace, mode: Layout) -> list[Point]:
    """Points of the plan at any cap, newest first, of the machine that measured last."""
    mine = [one.point for one in workspace.points if answers(one.point, workspace.plan, mode)]
    machine = next((p.question.machine for p in mine), None)
    return [p for p in mine if p.question.machine == machine]


def _counted(point: Point) -> Candidate:
    tokens = point.original_tokens
    return Candidate(
        point.question.max_tokens_per_mb,
        n_trees=point.n_trees,
        tree_token_ratio=point.tree_tokens / tokens if tokens else 1.0,
        padded_token_ratio=point.padded_tokens / tokens if tokens else None,
        paid_tokens=point.padded_tokens or None,
    )
