"""Small workspaces for tests: a few rows that share prefixes, points, a sweep."""

from __future__ import annotations

from dataclasses import replace

from packing.rows import Rows
from packing.sources.loaded import Provenance
from packing.sources.spec import SourceSpec
from tuning.jobs.points import Point, Question
from tuning.plan.plan import Layout, TuningPlan
from tuning.sweep.result import Candidate, Pick, SweepResult
from tuning.workspace.workspace import SavedPoint, Workspace

PLAN = TuningPlan(source=SourceSpec("file", "rollouts.jsonl"), max_tokens_per_mb=512)
PROVENANCE = Provenance(
    "rollouts.jsonl", "jsonl", 1, 10, "c" * 16, None, 8, "bundled", "f" * 16, ("a note",)
)


def rows(extra: int = 0) -> Rows:
    """Two prompts of four rows each: 100 tokens shared, then tails of their own."""
    lists, group = [], []
    for prompt in range(2):
        trunk = [prompt * 7 + 1] * 100
        for sample in range(4):
            tail = [500 + 10 * sample + prompt] * (40 + 30 * sample + extra)
            lists.append(trunk + tail)
            group.append(prompt)
    masks = [[0] * 100 + [1] * (len(row) - 100) for row in lists]
    return Rows.from_lists(lists, group, masks)


def point(mode: Layout, cap: int, step_s: float, data: str, plan: TuningPlan = PLAN) -> Point:
    question = Question.of(plan, mode, cap, data, "cpu x86, 2 threads", "2.13.0")
    return Point(
        question,
        "measured",
        step_s=step_s,
        p20_s=step_s * 0.95,
        p80_s=step_s * 1.1,
        repeats=3,
        phases_s={"forward": step_s / 3},
        original_tokens=1480,
        tree_tokens=880,
        padded_tokens=1024,
        n_trees=2,
        memory_bytes=2**30,
        memory_kind="peak of the process",
        memory_parts={"reserved": 2**31},
        features={"nodes": 10.0},
        loss=0.5,
        measured_at="2026-11-30T10:00:00+00:00",
        versions={"torch": "2.13.0"},
        notes=("folded",),
    )


def sweep(pick: Pick | None = None) -> SweepResult:
    points = (
        Candidate(384, 3, 0.66, 0.78, 1152, True, 1.2, "measured", 1.1, 1.3, 1.21, 1.1, 1.3, 3,
                  1200.0, 2**30, "measured"),
        Candidate(512, 2, 0.6, 0.69, 1024, True, 1.0, "measured", 0.95, 1.1, 1.02, 0.9, 1.1, 3,
                  1480.0, 2**30, "measured"),
        Candidate(640, 2, 0.6, 0.86, 1280, True, 1.3, "estimated", 1.2, 1.4, 1.3, 1.2, 1.4),
        Candidate(8192, 1, 0.6, 5.5, 8192, False, message="needs 99.00 GiB"),
    )  # fmt: skip
    flat = Candidate(512, step_s=1.8, step_kind="measured", low_s=1.7, high_s=1.9, repeats=3)
    return SweepResult(
        points,
        {"flat": flat, "padded": None},
        pick or Pick("tree", 512, "512 is the fastest. It uses 1.00 GiB.", 1.8, 1.0, "measured"),
        0.04,
        "tiny, 2 layers",
        "cpu x86, 2 threads",
        1480,
        230,
        2 * 2**30,
        "peak of the process",
        ("a note on figures",),
        True,
    )


def workspace(
    with_sweep: bool = True, plan: TuningPlan = PLAN, own: Rows | None = None
) -> Workspace:
    own = rows() if own is None else own
    points = [
        SavedPoint("run1", plan, point("tree", 512, 1.0, own.fingerprint, plan)),
        SavedPoint("run1", plan, point("flat", 512, 1.8, own.fingerprint, plan)),
    ]
    made = Workspace.of(plan, own, points, sweep() if with_sweep else None, PROVENANCE)
    return replace(made, made_at="2026-11-30T11:00:00+00:00")
