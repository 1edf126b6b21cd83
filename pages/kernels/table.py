"""What a run of the kernels found: bars, a table, the conditions, and why what could not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages.kernels import jobs as kernel_jobs
from pages.shared.text import Markdown, plain
from pages.shared.widgets import chart, table
from tuning.jobs.jobs import JobView
from tuning.plan.numbers import moment
from tuning.plan.plan import TuningPlan
from tuning.report.figures.kernels import attention_bars, backend_name, row_name, with_spread


def draw_runs(plan: TuningPlan, tree: int, job: JobView | None) -> None:
    """Bars and a table of the newest run, whole or as far as it is."""
    if job is None:
        st.info(
            "Nothing has been timed yet. Run checks every backend against a float64 reference on "
            "this tree and times its forward and backward pass.",
            icon=":material/timer:",
        )
        return
    kernel_jobs.draw_ending(job)
    problem = job.last("problem")
    rows = {event["backend"]: event for event in job.events if event["type"] == "row"}
    if problem is None:
        return
    kernel_jobs.draw_changed(job.plan, plan, "model", "dtype", "device")
    if problem["tree"] != tree:
        st.caption(f":material/info: This was measured on tree {problem['tree']:,}.")
    if any("forward" in row for row in rows.values()):
        chart(
            attention_bars(list(rows.values())),
            "attention",
            "Milliseconds of a forward and a backward pass by backend.",
        )
    _draw_table(rows)
    st.caption(_conditions(job, problem))
    for name, row in rows.items():
        _draw_reasons(name, row)


def _draw_table(rows: Mapping[str, Mapping[str, Any]]) -> None:
    flat = rows.get("rows", {})
    lines = []
    for row in rows.values():
        errors = row.get("errors", {})
        line: dict[str, Any] = {"backend": row_name(row), "right": _rightness(row)}
        worst = max(errors, key=errors.__getitem__, default=None)
        line["largest error"] = f"{errors[worst]:.1e} ({worst})" if worst else "—"
        for phase in ("forward", "backward"):
            time = row.get(phase)
            line[phase] = with_spread(time) if time else "—"
        line["runs"] = str(row["forward"]["n"]) if "forward" in row else "—"
        line["speed, forward · backward"] = _speeds(row)
        line["against rows"] = _against(row, flat)
        memory = row.get("memory_bytes")
        line["memory"] = f"{memory / 2**20:,.0f} MiB" if memory else "—"
        for name_of in ("out", "dq", "dk", "dv"):
            line[f"error {name_of}"] = f"{errors[name_of]:.1e}" if name_of in errors else "—"
        tile = row.get("tile")
        line["tile"] = f"{tile[0]}×{tile[1]}" if tile else "—"
        line["visited pairs"] = f"{row['visited_area']:,}" if "visited_area" in row else "—"
        efficiency = row.get("block_efficiency")
        line["efficiency"] = f"{efficiency:.1%}" if efficiency is not None else "—"
        lines.append(line)
    table(lines)


def _rightness(row: Mapping[str, Any]) -> str:
    if "right" not in row:
        return "—"
    word = "right" if row["right"] else "WRONG"
    return f"{word} (interpreter)" if "interpreter" in row else word


def _speeds(row: Mapping[str, Any]) -> str:
    parts = []
    for phase in ("forward", "backward"):
        if phase in row:
            speed, share = row[phase]["tflops"], row[phase]["peak_share"]
            text = f"{speed:,.0f} TFLOP/s" if speed >= 10 else f"{1e3 * speed:,.3g} GFLOP/s"
            parts.append(text + (f" ({share:.0%} of peak)" if share else ""))
    return " · ".join(parts) or "—"


def _against(row: Mapping[str, Any], flat: Mapping[str, Any]) -> str:
    """How many times as fast as the rows one by one, forward and backward together."""
    phases = ("forward", "backward")
    if row is flat or not all(phase in one for phase in phases for one in (row, flat)):
        return "—"
    mine, theirs = (sum(one[phase]["median_ms"] for phase in phases) for one in (row, flat))
    return f"{theirs / mine:.2f}×"


def _draw_reasons(name: str, row: Mapping[str, Any]) -> None:
    for key in ("reason", "backward_reason", "scaled", "interpreter_failed"):
        if key in row:
            st.caption(f"**{plain(backend_name(name))}**: {plain(row[key])}.")
    interpreted = row.get("interpreter")
    if interpreted:
        st.caption(
            f"**{plain(backend_name(name))}** was proven in Triton's interpreter, in float32, on a "
            f"small tree with the branches of this one ({interpreted['tokens']:,} tokens, "
            f"{interpreted['nodes']:,} nodes, {interpreted['query_heads']:,} query heads). The "
            "interpreter shows no speed."
        )


def _conditions(job: JobView, problem: Mapping[str, Any]) -> Markdown:
    versions = ", ".join(f"{name} {value}" for name, value in problem["versions"].items())
    measured = f"{problem['machine']} ({versions}), {moment(job.created_at)}"
    of = f"({problem['model']}), {problem['dtype']}"
    return (
        f"Measured on {plain(measured)}. "
        f"Tree {problem['tree']:,}: {problem['tokens']:,} tokens, {problem['nodes']:,} nodes, "
        f"{problem['rows']:,} rows; "
        f"{problem['query_heads']:,} query and {problem['key_heads']:,} key heads of "
        f"{problem['head_dim']:,} {plain(of)}. Speed counts the {problem['mask_area']:,} visible "
        f"pairs only. Errors are against {plain(problem['reference'])}, relative to its "
        "largest entry."
    )
