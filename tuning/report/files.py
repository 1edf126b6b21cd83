"""The report's figures and tables as files: SVG, PNG and CSV, in a folder or a zip."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

from tuning.plan.commands import rows_argument
from tuning.plan.foreign import cell
from tuning.report import sections
from tuning.report.figures.svg_figure import standalone
from tuning.report.tables import Table, tables_of
from tuning.workspace.workspace import Workspace

_PNG_ZOOM = 2.0


def figures_of(workspace: Workspace) -> dict[str, str]:
    """Each figure that there is, by name, as SVG that says where its numbers are from."""
    drawn = {
        "sweep": sections.sweep_figure(workspace),
        "before_after": sections.before_after_figure(workspace),
    }
    tags = f" ({', '.join(workspace.tags)})" if workspace.tags else ""
    caption = f"{rows_argument(workspace.plan.source)}{tags} · plan {workspace.plan.key}"
    return {name: standalone(svg, caption) for name, svg in drawn.items() if svg}


def csv_text(table: Table) -> str:
    """A table as CSV; a column of figures is followed by how each is known."""
    known = [any(row[at].kind for row in table.rows) for at in range(len(table.columns))]
    out = io.StringIO()
    write = csv.writer(out).writerow
    pairs = zip(table.columns, known, strict=True)
    write(text for name, kind in pairs for text in [name, f"{name}, known as"][: 1 + kind])
    for row in table.rows:
        cells = zip(row, known, strict=True)
        write(v for one, kind in cells for v in [cell(one.value), one.kind][: 1 + kind])
    return out.getvalue()


def png_of(svg: str) -> bytes:
    """A figure as a picture of twice its size in pixels, sharp on a slide."""
    import resvg_py  # here: a box that only measures need not have it

    return resvg_py.svg_to_bytes(svg_string=svg, zoom=_PNG_ZOOM)


def write_figures(workspace: Workspace, folder: Path) -> list[Path]:
    """One SVG and one PNG file a figure."""
    return _written(folder, _figure_files(workspace))


def write_tables(workspace: Workspace, folder: Path) -> list[Path]:
    """One CSV file a table, UTF-8."""
    return _written(folder, _table_files(workspace))


def zipped(workspace: Workspace) -> bytes:
    """All figures and tables in one zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in (_figure_files(workspace) | _table_files(workspace)).items():
            file.writestr(name, content)
    return out.getvalue()


def _figure_files(workspace: Workspace) -> dict[str, bytes]:
    drawn = figures_of(workspace).items()
    return {f"{name}.svg": svg.encode() for name, svg in drawn} | {
        f"{name}.png": png_of(svg) for name, svg in drawn
    }


def _table_files(workspace: Workspace) -> dict[str, bytes]:
    return {f"{one.name}.csv": csv_text(one).encode() for one in tables_of(workspace)}


def _written(folder: Path, files: dict[str, bytes]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]
