"""The report's tables as plain values: the page shows them, and each can be a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuning.jobs.points import Point
from tuning.plan.commands import rows_argument
from tuning.report.steps import MODES, candidates, step_of
from tuning.sweep.result import Candidate
from tuning.workspace.workspace import Workspace

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
        if self.value is None:
            return "–"
        if isinstance(self.value, str):
            return self.value
        return format(self.value, self.form or (",d" if isinstance(self.value, int) else ",.4g"))


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
    kind = one.step_kind or ""
    remark = one.message
    if one.refused:
        remark = f"AReaL refuses it: {one.message}"
    elif one.fits is False:
        remark = f"does not fit{': ' + one.message if one.message else ''}"
    elif one.known_from:
        remark = f"from the history, {one.known_from}"
    counted = one.n_trees > 0
    return (
        Cell(one.max_tokens_per_mb),
        Cell(one.n_trees or None, "exact" if counted else ""),
        Cell(one.tree_token_ratio if counted else None, "exact" if counted else "", ".4f"),
        Cell(one.padded_token_ratio, "exact" if one.padded_token_ratio else "", ".4f"),
        Cell(one.step_s, kind, ",.4g"),
        Cell(one.low_s, "" if one.low_s is None else kind, ",.4g"),
        Cell(one.high_s, "" if one.high_s is None else kind, ",.4g"),
        Cell(one.tokens_per_s, kind if one.tokens_per_s else "", ",.0f"),
        Cell(_gib(one.memory_bytes), one.memory_kind or "", ",.2f"),
        Cell(remark),
    )


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
        counted: list[Cell] = [Cell(None)] * 6
        if panel is not None and picture is not None:
            ratio = panel.tokens / max(picture.original_tokens, 1)
            counted = [
                Cell(panel.lines, "exact"),
                Cell(panel.tokens, "exact"),
                Cell(ratio, "exact", ".3f"),
                Cell(panel.first, "exact"),
                Cell(panel.again, "exact"),
                Cell(panel.padding, "exact"),
            ]
        times = None
        kind = ""
        if step and flat:
            times = flat.seconds / step.seconds
            kind = "measured" if step.kind == flat.kind == "measured" else "estimated"
        seconds = Cell(step.seconds, step.kind, ",.4g") if step else Cell("not measured")
        rows.append((Cell(_NAMES[mode]), *counted, seconds, Cell(times, kind, ".2f")))
    return Table("before_and_after", columns, tuple(rows))


def breaks_table(workspace: Workspace) -> Table:
    columns = (
        "after tokens", "places", "rows", "prompt groups", "tokens lost in one trie",
        "tokens in trees", "without the break", "paid tokens", "paid without the break",
    )  # fmt: skip
    found = workspace.batch.breaks if workspace.batch else ()
    rows = [
        tuple(
            Cell(value, "exact")
            for value in (
                b.position,
                b.places,
                b.rows,
                b.groups,
                b.tokens_saved,
                b.tree_tokens,
                b.tree_tokens_to,
                b.paid_tokens,
                b.paid_tokens_to,
            )  # fmt: skip
        )
        for b in found
    ]
    return Table("breaks", columns, tuple(rows))


def evidence_table(workspace: Workspace) -> Table:
    columns = (
        "mode", "max_tokens_per_mb", "outcome", "step s", "low s", "high s", "runs",
        "memory GiB", "memory is", "machine", "versions", "measured at", "remark",
    )  # fmt: skip
    rows = tuple(_point_row(one.point) for one in workspace.points)
    return Table("evidence", columns, rows, below=("memory is", "machine", "versions", "remark"))


def _point_row(point: Point) -> tuple[Cell, ...]:
    kind = point.outcome if point.step_s else ""
    remarks = [*([point.message] if point.message else []), *point.notes]
    remarks += [f"{name} {_gib(size):,.2f} GiB" for name, size in point.memory_parts.items()]
    spread: Sequence[float | None] = (point.p20_s, point.p80_s)
    return (
        Cell(point.question.mode),
        Cell(point.question.max_tokens_per_mb),
        Cell(point.outcome),
        Cell(point.step_s, kind, ",.4g"),
        *(Cell(value, "" if value is None else kind, ",.4g") for value in spread),
        Cell(point.repeats or None),
        Cell(_gib(point.memory_bytes), "measured" if point.memory_bytes else "", ",.2f"),
        Cell(point.memory_kind),
        Cell(point.question.machine),
        Cell(", ".join(f"{name} {version}" for name, version in point.versions.items())),
        Cell(point.measured_at.replace("T", " ").replace("+00:00", " UTC")),
        Cell("; ".join(remarks)),
    )


def _gib(size: int | None) -> float | None:
    return None if size is None else size / _GIB
