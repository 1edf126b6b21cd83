"""HTML of text, figures and tables; everything that comes in as text goes out escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuning.report.escape import esc
from tuning.report.tables import Cell, Table


def paragraph(text: str, css: str = "") -> str:
    """Nothing at all where there is no text."""
    name = f' class="{css}"' if css else ""
    return f"<p{name}>{esc(text)}</p>" if text else ""


def bullets(items: Iterable[str]) -> str:
    inside = "".join(f"<li>{esc(item)}</li>" for item in items)
    return f"<ul>{inside}</ul>" if inside else ""


def code(text: str) -> str:
    return f"<pre><code>{esc(text)}</code></pre>"


def section(title: str, *parts: str) -> str:
    """Nothing at all where no part holds anything."""
    inside = "".join(parts)
    return f"<section><h2>{esc(title)}</h2>{inside}</section>" if inside else ""


def below(title: str, inside: str) -> str:
    """A part of a section with a heading of its own, where it holds anything."""
    return f"<h3>{esc(title)}</h3>{inside}" if inside else ""


def table(made: Table) -> str:
    """A table; where a whole column is known in one way, its head says so instead of every cell."""
    if not made.rows:
        return ""
    beside = [at for at, name in enumerate(made.columns) if name not in made.below]
    columns = {at: [row[at] for row in made.rows] for at in beside}
    kinds = {at: _common(column) for at, column in columns.items()}
    css = {at: ' class="n"' if _numeric(column) else "" for at, column in columns.items()}
    head = "".join(f"<th{css[at]}>{esc(made.columns[at])}{mark(kinds[at])}</th>" for at in beside)
    notes = _notes(made)
    numbered = list(dict.fromkeys(note for note in notes if note))
    differ = bool(numbered) and len(set(notes)) > 1
    head += "<th>note</th>" if differ else ""
    body = []
    for number, row in enumerate(made.rows):
        cells = "".join(
            f"<td{css[at]}>{esc(row[at].text)}{'' if kinds[at] else dot(row[at].kind)}</td>"
            for at in beside
        )
        if differ:
            note = numbered.index(notes[number]) + 1 if notes[number] else ""
            cells += f"<td>{note}</td>"
        body.append(f"<tr{' class=mark' if number == made.mark else ''}>{cells}</tr>")
    said = "".join(f"<li>{esc(note)}</li>" for note in numbered)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
        + (f'<ol class="notes">{said}</ol>' if said else "")
    )


def _notes(made: Table) -> list[str]:
    """For each row what its columns of long text say, in one line."""
    long = [at for at, name in enumerate(made.columns) if name in made.below]
    return [" · ".join(row[at].text for at in long if row[at].value) for row in made.rows]


def strip(items: Sequence[tuple[str, Cell]]) -> str:
    """Key figures beside each other."""
    inside = ""
    for name, cell in items:
        title = esc(name).replace("_", "_<wbr>") + mark(cell.kind)
        inside += f"<div><dt>{title}</dt><dd>{esc(cell.text)}</dd></div>"
    return f'<dl class="strip">{inside}</dl>'


def mark(kind: str) -> str:
    """How a figure is known, in a word."""
    return f' <span class="k {esc(kind)}">{esc(kind)}</span>' if kind else ""


def dot(kind: str) -> str:
    """The same as the chart's dot: filled where measured, hollow where estimated."""
    sign = {"measured": "●", "estimated": "○"}.get(kind)
    return f' <span class="k {esc(kind)}" title="{esc(kind)}">{sign}</span>' if sign else mark(kind)


def _common(column: Sequence[Cell]) -> str:
    kinds = {cell.kind for cell in column if cell.value is not None}
    return kinds.pop() if len(kinds) == 1 else ""


def _numeric(column: Sequence[Cell]) -> bool:
    """Figures, and at most short words among them."""
    known = [cell.value for cell in column if cell.value is not None]
    return bool(known) and not isinstance(known[0], str)
