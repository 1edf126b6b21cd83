"""Text of the dataset in the report, only where it was asked for; it is not trusted."""

from __future__ import annotations

from collections.abc import Iterable

from packing.batch.divergence import Divergence
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tuning.plan.batch import Batch
from tuning.plan.numbers import many
from tuning.report.escape import esc
from tuning.report.markup import paragraph, section
from tuning.workspace.workspace import Workspace

_TEXT = 400
_BREAKS_SHOWN = 5
_SAMPLES = 3


def breaks_text(workspace: Workspace) -> str:
    """What stands before, at and after the places where rows almost share."""
    if workspace.rows is None:
        return ""
    batch = Batch(workspace.rows, PrefixOrder.of(workspace.rows))
    found = batch.divergences(workspace.plan)[:_BREAKS_SHOWN]
    return "".join(_break(workspace.rows, one) for one in found)


def samples(workspace: Workspace) -> str:
    """How the first rows of the batch begin and end."""
    rows = workspace.rows
    if rows is None or not len(rows):
        return ""
    parts = []
    for nth in range(min(_SAMPLES, len(rows))):
        ids = rows[nth].tolist()
        text = rows.text(ids)
        if len(text) > 2 * _TEXT:
            text = f"{text[:_TEXT]} … {text[-_TEXT:]}"
        title = f"Row {nth}, {many(len(ids), 'token')}"
        parts.append(f'<h3>{title}</h3><p><span class="piece">{esc(text)}</span></p>')
    return section(
        "Samples of the text",
        paragraph("The first rows of the batch, as they are trained:"),
        *parts,
    )


def _break(rows: Rows, one: Divergence) -> str:
    pieces = "".join(
        f'<li><span class="piece">{esc(_shown(rows, piece)) or "(nothing)"}</span></li>'
        for piece in one.pieces
    )
    return (
        f"<h3>After {many(one.position, 'token')}</h3>"
        f'<p>… <span class="piece">{esc(_shown(rows, one.before))}</span> then one of</p>'
        f"<ul>{pieces}</ul>"
        f'<p>and in all of them <span class="piece">{esc(_shown(rows, one.after))}</span> …</p>'
    )


def _shown(rows: Rows, ids: Iterable[int]) -> str:
    text = rows.text(list(ids))
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
