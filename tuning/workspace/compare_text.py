"""A comparison for a terminal, and the command that makes it: a plan is named by its link."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode

from tuning.plan.commands import PROGRAM, rows_argument
from tuning.plan.plan import PlanError, TuningPlan
from tuning.workspace.compare import Compared, percent, written


def text_of(compared: Compared) -> str:
    """The sentence, the measures, the steps cap by cap, and what differs in the settings."""
    head = [compared.sentence, "", f"A: {compared.a}", f"B: {compared.b}", ""]
    rows = [("", "A", "B", "B − A", "%", "better")]
    rows += [
        (
            line.name,
            _with_kind(written(line.a), line.kind_a),
            _with_kind(written(line.b), line.kind_b),
            written(line.difference, signed=True),
            percent(line),
            line.winner.upper() or line.note,
        )
        for line in compared.lines
    ]
    parts = [[*head, *aligned_columns(rows)]]
    if compared.caps:
        steps = [("step, s", "cap", "A", "B", "B ÷ A", "")]
        steps += [
            (
                one.mode,
                f"{one.max_tokens_per_mb:,}",
                _with_kind(written(one.a_s) if one.a_s else "", one.a_kind),
                _with_kind(written(one.b_s) if one.b_s else "", one.b_kind),
                "–" if one.ratio is None else f"{one.ratio:.2f}x",
                "",
            )
            for one in compared.caps
        ]
        parts.append(aligned_columns(steps))
    parts.append([f"{name}: {one} → {other}" for name, one, other in compared.changed])
    parts.append(list(compared.notes))
    return "\n\n".join("\n".join(part) for part in parts if part)


def compare_line(a: TuningPlan | str, b: TuningPlan | str) -> str:
    """``python -m tuning compare A B`` for two plans, or two runs by name."""
    words = [side if isinstance(side, str) else _link(side) for side in (a, b)]
    return shlex.join([*PROGRAM.split(), "compare", *words])


def plan_of_link(text: str) -> TuningPlan:
    """The plan of a link of the app, or of its query: what comes after ``?``.

    Raises PlanError naming a parameter that cannot be used.
    """
    query = dict(parse_qsl(text.partition("?")[2].partition("#")[0], keep_blank_values=True))
    plan, refused = TuningPlan.from_query(query)
    if refused:
        raise PlanError(" ".join(refused))
    return plan


def _link(plan: TuningPlan) -> str:
    """The query of a plan, its rows and cap always named."""
    named = {"data": rows_argument(plan.source), "cap": str(plan.max_tokens_per_mb)}
    return "?" + urlencode(named | plan.to_query(), safe=":,/")


def _with_kind(shown: str, kind: str) -> str:
    return shown if kind in ("", "exact") else f"{shown} {kind}".strip()


def aligned_columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of a table for a terminal; all columns but the first and the last end alike."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at in (0, len(widths) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
