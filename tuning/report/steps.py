"""A step's time in each mode, from a workspace's sweep or its points."""

from __future__ import annotations

from tuning.jobs.points import Point, answers
from tuning.plan.numbers import number, seconds
from tuning.plan.plan import Layout
from tuning.sweep.result import Candidate, timed
from tuning.workspace.workspace import Workspace

MODES: tuple[Layout, ...] = ("padded", "flat", "tree")


def candidates(workspace: Workspace) -> tuple[Candidate, ...]:
    """The sweep's candidates; without a sweep, the newest measured tree point of each cap."""
    if workspace.sweep is not None:
        return workspace.sweep.points
    # The newest comes first: of one cap the last one written here is the newest.
    found = {one.max_tokens_per_mb: one for one in reversed(_own_steps(workspace, "tree"))}
    return tuple(found[cap] for cap in sorted(found))


def step_of(workspace: Workspace, mode: Layout) -> Candidate | None:
    """The step of the plan in a mode, with its time; None where it has none.

    From the sweep, or the newest point; a whole measured step goes before an estimated one.
    """
    cap, sweep = workspace.plan.max_tokens_per_mb, workspace.sweep
    if sweep is not None and mode != "tree":
        known = [one for one in [sweep.baselines.get(mode)] if one]  # whatever their cap
    else:
        steps = sweep.points if sweep is not None else _own_steps(workspace, mode)
        known = [one for one in steps if one.max_tokens_per_mb == cap]
    have = [one for one in known if one.step_s]
    return min(have, key=lambda one: one.step_kind != "measured", default=None)


def step_text(step: Candidate, at_cap: int) -> str:
    """``1.82 s measured``, and at which cap where that is not ``at_cap``."""
    cap = step.max_tokens_per_mb
    return f"{seconds(step.step_s)} {step.step_kind}" + f" at {number(cap)}" * (cap != at_cap)


def speedup(step: Candidate | None, flat: Candidate | None) -> tuple[float | None, str]:
    """How many times as fast as flat, and how that is known."""
    if not (step and flat and step.step_s and flat.step_s):
        return None, ""
    measured = step.step_kind == flat.step_kind == "measured"
    return flat.step_s / step.step_s, "measured" if measured else "estimated"


def _own_steps(workspace: Workspace, mode: Layout) -> list[Candidate]:
    """Points of the plan at any cap, newest first, of the machine that measured last."""
    mine = [one.point for one in workspace.points if answers(one.point, workspace.plan, mode)]
    same = [p for p in mine if p.question.machine == mine[0].question.machine]
    return [timed(_counted(point), point, False, None) for point in same]


def _counted(point: Point) -> Candidate:
    tokens = point.original_tokens
    return Candidate(
        point.question.max_tokens_per_mb,
        n_trees=point.n_trees,
        tree_token_ratio=point.tree_tokens / tokens if tokens else 1.0,
        padded_token_ratio=point.padded_tokens / tokens if tokens else None,
        paid_tokens=point.padded_tokens or None,
    )
