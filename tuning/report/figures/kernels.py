"""How long each attention backend takes, and how far packed is from row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from tuning.plan.numbers import milliseconds
from tuning.report.figures.style import BLUE, GREEN, GREY, ORANGE, RED, styled

NAMES = {
    "triton": "Triton (ours)",
    "cascade": "cascade (ours)",
    "flex": "FlexAttention",
    "dense": "dense mask",
    "rows": "rows one by one",
}
"""Backends as people read them; "rows" is flat attention, nothing shared."""

_PHASES = (("forward", BLUE, ""), ("backward", ORANGE, "/"))


def backend_name(backend: str) -> str:
    return NAMES.get(backend, backend)


def row_name(row: Mapping[str, Any]) -> str:
    """The backend of a "row" event; one whose time is scaled from a sample says so."""
    return backend_name(row["backend"]) + (" (estimated)" if "scaled" in row else "")


def with_spread(time: Mapping[str, float]) -> str:
    """``12.3 ms (11.9–14)``: the median of a phase, and p20–p80 where there are several runs."""
    if time["n"] == 1:
        return f"{milliseconds(time['median_ms'])} (one run)"
    low, high = (milliseconds(time[f"{p}_ms"]).removesuffix(" ms") for p in ("p20", "p80"))
    return f"{milliseconds(time['median_ms'])} ({low}–{high})"


def attention_bars(rows: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Forward and backward milliseconds by backend, p20–p80 behind them.

    The fastest is on top, and those without a backward pass at the bottom.

    rows: "row" events of ``kernel_runs``; those without a time are left out.
    """
    timed = [row for row in rows if "forward" in row]
    timed.sort(key=lambda row: ("backward" in row, -_total(row)))
    figure = go.Figure()
    for phase, color, hatch in _PHASES:
        shown = [row for row in timed if phase in row]
        times = [row[phase] for row in shown]
        figure.add_bar(
            x=[t["median_ms"] for t in times],
            y=[row_name(row) for row in shown],
            orientation="h",
            name=phase,
            marker={
                "color": color,
                "line": {"width": 0},
                "pattern": {
                    "shape": hatch,
                    "bgcolor": color,
                    "fgcolor": "rgba(255,255,255,0.5)",
                    "size": 6,
                },
            },
            text=[with_spread(t) for t in times],
            textposition="outside",
            cliponaxis=False,
            customdata=[[t["p20_ms"], t["p80_ms"], t["n"]] for t in times],
            hovertemplate=f"%{{y}}, {phase}: %{{x:,.3g}} ms"
            "<br>p20–p80 %{customdata[0]:,.3g}–%{customdata[1]:,.3g} ms, "
            "%{customdata[2]} runs<extra></extra>",
        )
    names = [row_name(row) for row in timed]
    figure.update_layout(barmode="group", bargap=0.3, bargroupgap=0.06)
    figure.update_layout(legend_traceorder="normal")
    longest = max((t["median_ms"] for row in timed for t in _times(row)), default=1.0)
    # Room for the label behind the longest bar, on a narrow screen too.
    figure.update_xaxes(title="milliseconds (median)", range=[0, 1.5 * longest], tickformat=",")
    styled(figure, 90 + 62 * max(len(timed), 1))
    figure.update_yaxes(categoryorder="array", categoryarray=names, gridcolor="rgba(0,0,0,0)")
    return figure


def _times(row: Mapping[str, Any]) -> list[Mapping[str, float]]:
    return [row[phase] for phase, _, _ in _PHASES if phase in row]


def _total(row: Mapping[str, Any]) -> float:
    return sum(time["median_ms"] for time in _times(row))


def layer_errors(result: Mapping[str, Any]) -> go.Figure:
    """Largest and mean relative error of log-probabilities and of each layer's gradients.

    result: the "result" event of ``equivalence_runs``. Errors of exactly 0 have no place on a
    logarithmic axis; their marks stand at its lower end.
    """
    lines = [("log-probabilities", result["logprobs"], result["logprob_tolerance"])]
    lines += [
        (_layer_name(layer["layer"]), layer, result["gradient_tolerance"])
        for layer in result["layers"]
    ]
    names = [name for name, _, _ in lines]
    floor = 1e-12
    figure = go.Figure()
    for key, color, symbol in (("maximum", GREEN, "circle"), ("mean", GREY, "diamond-open")):
        values = [float(line[key]) for _, line, _ in lines]
        figure.add_scatter(
            x=[max(value, floor) for value in values],
            y=names,
            mode="markers",
            name=f"{key} error",
            marker={
                "symbol": symbol,
                "size": 9,
                "color": [
                    color if value <= tolerance or key == "mean" else RED
                    for value, (_, _, tolerance) in zip(values, lines, strict=True)
                ],
            },
            customdata=values,
            hovertemplate=f"%{{y}}: {key} error %{{customdata:.2e}}<extra></extra>",
        )
    figure.add_scatter(
        x=[tolerance for _, _, tolerance in lines],
        y=names,
        mode="lines",
        name="tolerance",
        line={"color": RED, "width": 1.5, "dash": "dash"},
        hovertemplate="tolerance %{x:.0e}<extra></extra>",
    )
    figure.update_xaxes(type="log", title="relative error", exponentformat="power", dtick=1)
    styled(figure, min(100 + 24 * len(lines), 900))
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def _layer_name(layer: str) -> str:
    return layer.removeprefix("model.").removesuffix(".weight")
