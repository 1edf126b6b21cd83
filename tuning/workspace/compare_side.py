"""One side of a comparison: what is counted of a batch, and what is known of its steps.

Notable:
- counted from the rows, or taken from a workspace's summary: the same figures either way
- what AReaL refuses, and a cap that does not fit, has no speed
- a measured step goes before an estimated one; points of other machines are left out
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuning.plan.commands import rows_argument, source_options
from tuning.plan.plan import Layout, TuningPlan
from tuning.plan.summary import BatchSummary
from tuning.sweep.result import Candidate, timed
from tuning.workspace.workspace import Workspace

Better = Literal["less", "more", ""]

MODES: tuple[Layout, ...] = ("tree", "flat", "padded")
TOKENS = "tokens"
PAID = "paid tokens"
PAID_RATIO = "paid ÷ original, trees"
STEP = "step with trees, s"
SPEED = "tokens/s with trees"

_GIB = 2**30
_WAYS: Mapping[Layout, str] = {"tree": "with trees", "flat": "packed flat", "padded": "padded"}


@dataclass(frozen=True)
class Measure:
    """One figure of a side.

    kind:      "exact", "measured" or "estimated"
    better:    whether less or more of it is good; empty: neither
    same_rows: it says which side is better over the same rows only
    low, high: spread of a measured figure, band of an estimated one
    """

    name: str
    value: float | int | None
    kind: str = "exact"
    better: Better = ""
    same_rows: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class StepAt:
    """A step at a cap; kind: how its seconds are known, or why there are none."""

    mode: Layout
    max_tokens_per_mb: int
    seconds: float | None
    kind: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Side:
    """What is compared.

    settings: plan fields as text; where: machine of its times, empty where there are none
    data:     fingerprint of the batch's rows, empty where it is not known
    refused:  why this side cannot run, empty where nothing is known to stop it
    steps:    by mode and cap, ascending
    """

    title: str
    measures: tuple[Measure, ...]
    settings: Mapping[str, str]
    where: str = ""
    data: str = ""
    refused: str = ""
    steps: tuple[StepAt, ...] = ()

    def value(self, name: str) -> float | int | None:
        """A figure by name, None where this side lacks it."""
        return next((one.value for one in self.measures if one.name == name), None)


def side_of(workspace: Workspace, title: str = "", counted: BatchSummary | None = None) -> Side:
    """A workspace's batch, plan and times as a side.

    counted: where the rows have been counted already; else the workspace's summary tells
    """
    plan = workspace.plan
    counted = counted or workspace.batch
    refused = counted.refused if counted else ""
    refused = refused or " ".join(plan.problems())
    known = {} if refused else {mode: _known(workspace, mode) for mode in MODES}
    whose = f" ({workspace.origin})" if workspace.origin else ""
    measures = [*_counted(counted, plan), *_timed(known, plan, counted)]
    return Side(
        title or rows_argument(plan.source),
        tuple(measures),
        _settings(plan),
        workspace.machine + whose if any(known.values()) else "",
        counted.fingerprint if counted else workspace.fingerprint,
        refused,
        tuple(_step(mode, one) for mode, found in known.items() for one in found.values()),
    )


def _counted(counted: BatchSummary | None, plan: TuningPlan) -> list[Measure]:
    if counted is None:
        return []
    measures = [
        Measure("rows", counted.rows),
        Measure("prompt groups", counted.groups),
        Measure(TOKENS, counted.tokens),
        Measure("longest row", counted.longest),
        Measure("median row", counted.median),
        Measure("tokens of one trie", counted.trie_tokens, better="less", same_rows=True),
    ]
    packed = counted.of_packer(plan.packer)
    if packed is None:
        return measures
    measures += [
        Measure("trees", packed.trees),
        Measure("dummy trees", counted.dummy_trees),
        Measure("fill", packed.fill),
        Measure("tree_token_ratio", packed.tree_token_ratio, better="less"),
        Measure(PAID, packed.paid_tokens, better="less", same_rows=True),
        Measure(PAID_RATIO, packed.padded_token_ratio, better="less"),
    ]
    for name, tokens in (("flat", counted.flat), ("padded", counted.padded)):
        if tokens is not None and counted.tokens:
            ratio = tokens / counted.tokens
            measures.append(Measure(f"paid ÷ original, {name}", ratio, better="less"))
    return measures


def _timed(
    known: Mapping[Layout, Mapping[int, Candidate]], plan: TuningPlan, counted: BatchSummary | None
) -> list[Measure]:
    """Figures of the plan's own cap: of no other."""
    at_cap = {mode: found.get(plan.max_tokens_per_mb) for mode, found in known.items()}
    measures = []
    for mode, one in at_cap.items():
        if one is not None and one.step_s and one.step_kind and one.fits is not False:
            name = f"step {_WAYS[mode]}, s"
            measures.append(
                Measure(name, one.step_s, one.step_kind, "less", True, one.low_s, one.high_s)
            )
    tree = at_cap.get("tree")
    if tree is None:
        return measures
    runs = tree.fits is not False
    if runs and tree.step_s and tree.step_kind:
        tokens = counted.tokens if counted else (tree.tokens_per_s or 0.0) * tree.step_s
        speed, low, high = (
            tokens / s if s and tokens else None for s in (tree.step_s, tree.high_s, tree.low_s)
        )
        measures.append(Measure(SPEED, speed, tree.step_kind, "more", False, low, high))
    if runs and tree.logp_s:
        span = tree.logp_low_s, tree.logp_high_s
        measures.append(
            Measure("compute_logp with trees, s", tree.logp_s, "measured", "less", True, *span)
        )
    if tree.memory_bytes and tree.memory_kind:
        gib = tree.memory_bytes / _GIB
        measures.append(Measure("memory, GiB", gib, tree.memory_kind, "less", True))
    return measures


def _known(workspace: Workspace, mode: Layout) -> dict[int, Candidate]:
    """What is known of a step at each cap, ascending."""
    sweep = workspace.sweep
    found: dict[int, Candidate] = {}
    if sweep is not None:
        baseline = sweep.baselines.get(mode)
        shown = sweep.points if mode == "tree" else () if baseline is None else (baseline,)
        found = {one.max_tokens_per_mb: one for one in shown}
    newest = {point.question.max_tokens_per_mb: point for point in reversed(workspace.steps(mode))}
    for cap, point in newest.items():
        if cap not in found or found[cap].step_kind != "measured":
            found[cap] = timed(Candidate(cap), point, False, _budget(workspace))
    return dict(sorted(found.items()))


def _budget(workspace: Workspace) -> int | None:
    own = int(workspace.plan.memory_budget_gib * _GIB)
    return own or (workspace.sweep.budget_bytes if workspace.sweep else None)


def _step(mode: Layout, one: Candidate) -> StepAt:
    if one.step_s and one.step_kind and one.fits is not False:
        return StepAt(mode, one.max_tokens_per_mb, one.step_s, one.step_kind, one.low_s, one.high_s)
    why = "refused" if one.refused else "does not fit" if one.fits is False else "not timed"
    return StepAt(mode, one.max_tokens_per_mb, None, why)


def _settings(plan: TuningPlan) -> dict[str, str]:
    source = " ".join([rows_argument(plan.source), *source_options(plan.source)])
    return {name: str(value) for name, value in vars(plan).items()} | {"source": source}
