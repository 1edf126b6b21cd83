"""A run of ``benchmarks.gpu`` as tables, for the Kernels page and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuning.measure.gpu_run import GpuRun, figure
from tuning.report.markup import below, paragraph, section, table
from tuning.report.tables import Cell, Table

_ATTENTION = {
    "both ms": ("both_ms_p50", ",.3f"),
    "mask ms": ("mask_ms", ",.3f"),
    "TFLOP/s": ("both_tflops", ",.0f"),
    "of the peak": ("share_of_peak", ".0%"),
    "× FlexAttention": ("times_flex", ".2f"),
    "of flash on rows": ("of_flash", ".0%"),
}
_STEPS = {
    "step s": ("step_s_p50", ",.3f"),
    "tokens/s": ("tokens_per_s", ",.0f"),
    "peak GiB": ("peak_gib", ",.1f"),
}


def gpu_tables(run: GpuRun) -> dict[str, Table]:
    """By heading: attention by provider and tree, our kernels one by one, whole steps."""
    kernels = tuple(
        (
            Cell(one.provider),
            Cell(one.kernel),
            Cell(one.tree),
            Cell(one.head_dim),
            Cell(one.tile),
            Cell(one.milliseconds, "measured", ",.3f"),
            Cell(one.share, "measured", ".0%"),
            Cell(one.share_of_tiles, "measured", ".0%"),
        )
        for one in run.efficiencies()
        if one.kernel != "both"
    )
    columns = ("provider", "kernel", "tree", "D", "tile", "ms", "of the peak", "by whole tiles")
    return {
        "Attention by tree": _table(
            "gpu_attention", ("tree", "provider"), _ATTENTION, run.attention
        ),
        "Our kernels one by one": Table("gpu_kernels", columns, kernels),
        "Whole steps": _table("gpu_steps", ("mode", "model"), _STEPS, run.steps),
    }


def _table(
    name: str,
    words: tuple[str, ...],
    figures: Mapping[str, tuple[str, str]],
    rows: Sequence[Mapping[str, Any]],
) -> Table:
    lines: list[tuple[Cell, ...]] = []
    for row in rows:
        known = [(figure(row, column), form) for column, form in figures.values()]
        cells = [Cell(value, "measured" if value else "", form) for value, form in known]
        said = [Cell(str(row.get(word, ""))) for word in words]
        lines.append((*said, *cells, Cell(str(row.get("reason", "")))))
    return Table(name, (*words, *figures, "remark"), tuple(lines), below=("remark",))


def gpu_section(run: GpuRun) -> str:
    """The report's section of a run."""
    parts = (below(title, table(made)) for title, made in gpu_tables(run).items())
    return section("Attention on a GPU", paragraph(f"Measured: {run.provenance}."), *parts)
