"""The report's tables as plain values: the page shows them, and each can be a CSV file.

Steps are those of the workspace's sweep or of its points.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuning.jobs.points import Point
from tuning.plan.commands import rows_argument
from tuning.plan.numbers import gib, moment, number, rounded, seconds
from tuning.plan.plan import STEP_NAMES, Layout
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
    """Points of the plan at any cap, newest first."""
    return [timed(_counted(point), point, False, None) for point in workspace.steps(mode)]


def _counted(point: Point) -> Candidate:
    tokens = point.original_tokens
    return Candidate(
        point.question.max_tokens_per_mb,
        n_trees=point.n_trees,
        tree_token_ratio=point.tree_tokens / tokens if tokens else 1.0,
        padded_token_ratio=point.padded_tokens / tokens if tokens else None,
        paid_tokens=point.padded_tokens or None,
    )


_GIB = 2**30
_NAMES = {"padded": "padded", "flat": "packed flat", "tree": "as trees"}


@dataclass(frozen=True)
class Cell:
    """A value, how it is known ("exact", "measured", "estimated", or ""), how it is written."""

    value: str | int | float | None
    kind: str = ""
    form: str = ""

    @property
    def text(self) -> str:
        if isinstance(self.value, str):
            return self.value
        if self.form or isinstance(self.value, int):
            return number(self.value, self.form or ",d")
        return rounded(self.value, 4)


@dataclass(frozen=True)
class Table:
    """name: of its CSV file; mark: the row to be set off, -1 for none.

    below: columns of long text, which the page sets below the table as numbered notes
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    mark: int = -1
    below: tuple[str, ...] = ()


def tables_of(workspace: Workspace) -> tuple[Table, ...]:
    """Every table of the report that has a row."""
    made = (
        data_table(workspace),
        packing_table(workspace),
        candidates_table(workspace),
        modes_table(workspace),
        breaks_table(workspace),
        evidence_table(workspace),
    )
    return tuple(table for table in made if table.rows)


def data_table(workspace: Workspace) -> Table:
    rows: list[tuple[str, Cell]] = [("source", Cell(rows_argument(workspace.plan.source)))]
    rows += [("kind of rows", Cell(tag)) for tag in workspace.tags]
    known = workspace.provenance
    if known is not None:
        rows += [
            ("format", Cell(known.format)),
            ("records read", Cell(known.records, "exact")),
            ("tokenizer", Cell(known.tokenizer or "none: token ids as they are")),
            ("content hash", Cell(known.content)),
        ]
        if known.revision:
            rows.append(("revision", Cell(known.revision)))
    batch = workspace.batch
    if batch is not None:
        rows += [
            ("rows of the batch", Cell(batch.rows, "exact")),
            ("prompt groups", Cell(batch.groups, "exact")),
            ("tokens", Cell(batch.tokens, "exact")),
            ("longest row", Cell(batch.longest, "exact")),
            ("median row", Cell(batch.median, "exact", ",.0f")),
            ("tokens of one trie of all rows", Cell(batch.trie_tokens, "exact")),
        ]
    if workspace.fingerprint:
        rows.append(("fingerprint of the batch", Cell(workspace.fingerprint)))
    return Table("data", ("what", "value"), tuple((Cell(name), cell) for name, cell in rows))


def packing_table(workspace: Workspace) -> Table:
    columns = (
        "packer", "trees", "tree tokens", "tree_token_ratio", "prefix reuse ×", "paid tokens",
        "paid ratio", "fill",
    )  # fmt: skip
    batch = workspace.batch
    if batch is None or not batch.packed:
        return Table("packing", columns, ())
    names = {"areal": "AReaL, first fit", "prefix-aware": "Espalier"}
    rows = [
        (
            Cell(names.get(p.packer, p.packer)),
            Cell(p.trees, "exact"),
            Cell(p.tree_tokens, "exact"),
            Cell(p.tree_token_ratio, "exact", ".4f"),
            Cell(p.prefix_reuse, "exact", ".2f"),
            Cell(p.paid_tokens, "exact"),
            Cell(p.padded_token_ratio, "exact", ".4f"),
            Cell(p.fill, "exact", ".1%"),
        )
        for p in batch.packed
    ]
    least = (Cell("no packer needs fewer than"), Cell(batch.bound_trees, "exact"))
    rest = (Cell(batch.bound_tokens, "exact"), *(Cell(None) for _ in range(5)))
    return Table("packing", columns, (*rows, (*least, *rest)))


def candidates_table(workspace: Workspace) -> Table:
    columns = (
        "max_tokens_per_mb", "trees", "tree_token_ratio", "paid ratio", "step s", "low s", "high s",
        "tokens/s", "memory GiB", "remark",
    )  # fmt: skip
    points = candidates(workspace)
    mark = workspace.plan.max_tokens_per_mb
    rows = tuple(_candidate_row(one) for one in points)
    marked = next((at for at, p in enumerate(points) if p.max_tokens_per_mb == mark), -1)
    return Table("candidates", columns, rows, marked, ("remark",))


def _candidate_row(one: Candidate) -> tuple[Cell, ...]:
    remark = one.message
    if one.refused:
        remark = f"AReaL refuses it: {one.message}"
    elif one.fits is False:
        remark = f"does not fit{': ' + one.message if one.message else ''}"
    elif one.known_from:
        remark = f"from the history, {one.known_from}"
    kind, ratio = one.step_kind or "", one.tree_token_ratio if one.n_trees else None
    return (
        Cell(one.max_tokens_per_mb),
        _known(one.n_trees or None, "exact"),
        _known(ratio, "exact", ".4f"),
        _known(one.padded_token_ratio, "exact", ".4f"),
        *(_known(value, kind) for value in (one.step_s, one.low_s, one.high_s)),
        _known(one.tokens_per_s, kind, ",.0f"),
        _known(_gib(one.memory_bytes), one.memory_kind or "", ",.2f"),
        Cell(remark),
    )


def _known(value: float | None, kind: str, form: str = "") -> Cell:
    """A figure; where there is none, nothing is known of it."""
    return Cell(value, kind if value is not None else "", form)


def modes_table(workspace: Workspace) -> Table:
    columns = (
        "mode", "lines", "tokens computed", "÷ original", "computed once", "computed again",
        "padding", "step s", "as fast as flat ×",
    )  # fmt: skip
    picture = workspace.batch.picture if workspace.batch else None
    panels = {p.mode: p for p in picture.panels} if picture else {}
    flat = step_of(workspace, "flat")
    rows = []
    for mode in MODES:
        panel, step = panels.get(mode), step_of(workspace, mode)
        if panel is None and step is None:
            continue
        counted = [Cell(None)] * 6
        if panel is not None and picture is not None:
            share = panel.tokens / max(picture.original_tokens, 1)
            parts = (panel.first, panel.again, panel.padding)
            figures = (panel.lines, panel.tokens, share, *parts)
            counted = [Cell(v, "exact", ".3f" if v is share else "") for v in figures]
        time = Cell(step.step_s, step.step_kind or "") if step else Cell("not measured")
        times = Cell(*speedup(step, flat), ".2f")
        rows.append((Cell(_NAMES[mode]), *counted, time, times))
    return Table("before_and_after", columns, tuple(rows))


def breaks_table(workspace: Workspace) -> Table:
    columns = (
        "after tokens", "places", "rows", "prompt groups", "tokens lost in one trie",
        "tokens in trees", "without the break", "paid tokens", "paid without the break",
    )  # fmt: skip
    fields = (
        "position", "places", "rows", "groups", "tokens_saved", "tree_tokens", "tree_tokens_to",
        "paid_tokens", "paid_tokens_to",
    )  # fmt: skip
    found = workspace.batch.breaks if workspace.batch else ()
    rows = [tuple(Cell(getattr(place, name), "exact") for name in fields) for place in found]
    return Table("breaks", columns, tuple(rows))


def evidence_table(workspace: Workspace) -> Table:
    columns = (
        "mode", "max_tokens_per_mb", "whose step", "outcome", "step s", "low s", "high s", "runs",
        "memory GiB", "memory is", "machine", "versions", "measured at", "remark",
    )  # fmt: skip
    rows = tuple(_point_row(one.point) for one in workspace.points)
    return Table("evidence", columns, rows, below=("memory is", "machine", "versions", "remark"))


def _point_row(point: Point) -> tuple[Cell, ...]:
    remarks = [*([point.message] if point.message else []), *point.notes]
    remarks += [f"{name} {gib(size)}" for name, size in point.memory_parts.items()]
    return (
        Cell(point.question.mode),
        Cell(point.question.max_tokens_per_mb),
        Cell(STEP_NAMES[point.question.step_of]),
        Cell(point.outcome),
        *(_known(value, point.outcome) for value in (point.step_s, point.p20_s, point.p80_s)),
        Cell(point.repeats or None),
        _known(_gib(point.memory_bytes), "measured", ",.2f"),
        Cell(point.memory_kind),
        Cell(point.question.machine),
        Cell(", ".join(f"{name} {version}" for name, version in point.versions.items())),
        Cell(moment(point.measured_at, "%Y-%m-%d %H:%M:%S")),
        Cell("; ".join(remarks)),
    )


def _gib(size: int | None) -> float | None:
    return None if size is None else size / _GIB
