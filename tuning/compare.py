"""Two datasets, plans or runs side by side: the same measures, and their differences as numbers.

Notable:
- exact figures are compared as they are; times only with what they were measured on beside them
- a measure that one side lacks is listed without a difference, never guessed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tuning.commands import rows_argument
from tuning.plan import TuningPlan
from tuning.report.steps import step_of
from tuning.workspace import Workspace

Better = Literal["less", "more", ""]

_GIB = 2**30


@dataclass(frozen=True)
class Measure:
    """One figure of a side. better: whether less or more of it is good; empty: neither."""

    name: str
    value: float | int | None
    kind: str = "exact"
    better: Better = ""


@dataclass(frozen=True)
class Side:
    """What is compared.

    settings: plan fields as text; where: machine and model of its times, empty where none
    """

    title: str
    measures: tuple[Measure, ...]
    settings: Mapping[str, str]
    where: str = ""


@dataclass(frozen=True)
class Line:
    """A measure of both sides. difference: b − a; ratio: b / a; None where a side lacks it.

    winner: "a", "b", or nothing where neither is better
    """

    name: str
    a: float | int | None
    b: float | int | None
    kind_a: str
    kind_b: str
    difference: float | int | None
    ratio: float | None
    winner: str


@dataclass(frozen=True)
class Compared:
    """The comparison as plain values.

    changed: settings that differ: name, a's, b's; notes: what to keep in mind while reading it
    """

    a: str
    b: str
    lines: tuple[Line, ...]
    changed: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """For a terminal."""
        rows = [("", "a", "b", "b − a", "b ÷ a")]
        rows += [
            (
                line.name,
                _written(line.a, line.kind_a),
                _written(line.b, line.kind_b),
                _written(line.difference, signed=True),
                "–" if line.ratio is None else f"{line.ratio:.3f}",
            )
            for line in self.lines
        ]
        widths = [max(len(row[at]) for row in rows) for at in range(5)]
        shown = [
            "  ".join(
                cell.ljust(width) if at == 0 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        head = [f"a: {self.a}", f"b: {self.b}", ""]
        changed = [f"{name}: {one} → {other}" for name, one, other in self.changed]
        tail = ["", *changed] if changed else []
        return "\n".join([*head, *shown, *tail, *(["", *self.notes] if self.notes else [])])


def compare(a: Side, b: Side) -> Compared:
    """Measures in the order of ``a``, then those that only ``b`` has."""
    mine = {one.name: one for one in a.measures}
    theirs = {one.name: one for one in b.measures}
    names = [*mine, *(name for name in theirs if name not in mine)]
    lines = tuple(_line(name, mine.get(name), theirs.get(name)) for name in names)
    keys = [*a.settings, *(key for key in b.settings if key not in a.settings)]
    changed = tuple(
        (key, a.settings.get(key, "–"), b.settings.get(key, "–"))
        for key in keys
        if a.settings.get(key) != b.settings.get(key)
    )
    return Compared(a.title, b.title, lines, changed, tuple(_notes(a, b, lines)))


def side_of(workspace: Workspace, title: str = "") -> Side:
    """A workspace's batch, plan and times as a side."""
    plan, batch = workspace.plan, workspace.batch
    measures: list[Measure] = []
    if batch is not None:
        measures += [
            Measure("rows", batch.rows),
            Measure("prompt groups", batch.groups),
            Measure("tokens", batch.tokens),
            Measure("longest row", batch.longest),
            Measure("median row", batch.median),
            Measure("tokens of one trie", batch.trie_tokens, better="less"),
        ]
    if batch is not None and batch.picture is not None:
        total = max(batch.picture.original_tokens, 1)
        panels = {panel.mode: panel for panel in batch.picture.panels}
        tree = panels["tree"]
        measures += [
            Measure("trees, all ranks", batch.trees, better="less"),
            Measure("dummy trees", batch.dummy_trees, better="less"),
            Measure("tree_token_ratio", (tree.first + tree.again) / total, better="less"),
            Measure("paid ratio, trees", tree.tokens / total, better="less"),
        ]
        measures += [
            Measure(f"paid ratio, {mode}", panels[mode].tokens / total, better="less")
            for mode in ("flat", "padded")
            if mode in panels
        ]
    measures += _times(workspace)
    return Side(
        title or rows_argument(plan.source), tuple(measures), _settings(plan), _where(workspace)
    )


def _times(workspace: Workspace) -> list[Measure]:
    found = []
    for mode in ("tree", "flat", "padded"):
        step = step_of(workspace, mode)
        if step is not None:
            found.append(Measure(f"step s, {mode}", step.seconds, step.kind, "less"))
    tree = step_of(workspace, "tree")
    tokens = workspace.batch.tokens if workspace.batch else None
    if tree is not None and tokens:
        found.append(Measure("tokens/s, tree", tokens / tree.seconds, tree.kind, "more"))
    sweep = workspace.sweep
    cap = workspace.plan.max_tokens_per_mb
    points = sweep.points if sweep else ()
    memory = next((p for p in points if p.max_tokens_per_mb == cap and p.memory_bytes), None)
    if memory is not None and memory.memory_bytes:
        size = memory.memory_bytes / _GIB
        found.append(Measure("memory GiB", size, memory.memory_kind or "", "less"))
    return found


def _where(workspace: Workspace) -> str:
    if workspace.sweep is not None:
        return f"{workspace.sweep.machine}, {workspace.plan.model}"
    point = next((one.point for one in workspace.points if one.point.step_s), None)
    return f"{point.question.machine}, {workspace.plan.model}" if point else ""


def _settings(plan: TuningPlan) -> dict[str, str]:
    plain = TuningPlan().to_json() | plan.to_json() | {"source": rows_argument(plan.source)}
    default = {name: getattr(plan, name) for name in vars(plan) if name not in plain}
    return {name: str(value) for name, value in (default | plain).items()}


def _line(name: str, a: Measure | None, b: Measure | None) -> Line:
    one, other = (None if side is None else side.value for side in (a, b))
    difference, ratio, winner = None, None, ""
    if one is not None and other is not None:
        difference = other - one
        ratio = other / one if one else None
        better = next((side.better for side in (a, b) if side is not None), "")
        if better and difference:
            winner = "b" if (difference < 0) == (better == "less") else "a"
    kinds = ["" if side is None or side.value is None else side.kind for side in (a, b)]
    return Line(name, one, other, kinds[0], kinds[1], difference, ratio, winner)


def _notes(a: Side, b: Side, lines: tuple[Line, ...]) -> list[str]:
    notes = []
    timed = [line for line in lines if line.name.startswith("step") and line.ratio is not None]
    if timed and a.where != b.where:
        notes.append(
            f"The times are of different machines or models ({a.where}; {b.where}): they compare "
            "those too."
        )
    if any(line.kind_a != line.kind_b for line in timed):
        notes.append("A measured time stands against an estimated one; see the kinds.")
    tokens = next((line for line in lines if line.name == "tokens"), None)
    if timed and tokens is not None and tokens.difference:
        notes.append("The batches differ in tokens: compare tokens/s, not the seconds of a step.")
    return notes


def _written(value: float | int | None, kind: str = "", signed: bool = False) -> str:
    if value is None:
        return "–"
    sign = "+" if signed else ""
    shown = f"{value:{sign},}" if isinstance(value, int) else f"{value:{sign},.4g}"
    return shown if kind in ("", "exact") else f"{shown} {kind}"
