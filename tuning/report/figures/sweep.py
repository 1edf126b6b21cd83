"""The chart of a sweep: what each cap costs in time, tokens and memory, and the pick."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuning.report.figures.style import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, styled
from tuning.sweep.result import Candidate, SweepResult

_GIB = 2**30
_FAR = 3.0
_BASELINES = {"flat": (ORANGE, "dot", "flat, as today"), "padded": (GREY, "dashdot", "padded")}


def sweep_chart(result: SweepResult) -> go.Figure:
    """Step time, paid tokens and memory over ``max_tokens_per_mb``, one above the other.

    Dots are measured, the line and its band are the cost model's; caps that do not fit are shaded,
    those that AReaL refuses are hatched. A cap without a time has no dot.
    """
    figure = make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        row_heights=[0.56, 0.22, 0.22],
        vertical_spacing=0.05,
    )
    points = result.points
    _model_line(figure, points)
    _dots(figure, points)
    _paid(figure, points)
    _memory(figure, result)
    styled(figure, 620)
    _baselines(figure, result)
    _pick(figure, result)
    _regions(figure, result)
    figure.update_xaxes(type="log", tickformat=",d", dtick="D2")
    figure.update_xaxes(title="max_tokens_per_mb", row=3, col=1)
    figure.update_yaxes(title="seconds a step", range=[0, _top(result)], row=1, col=1)
    figure.update_yaxes(title="paid ÷ original", rangemode="tozero", row=2, col=1)
    figure.update_yaxes(title="GiB", rangemode="tozero", row=3, col=1)
    return figure


def _model_line(figure: go.Figure, points: Sequence[Candidate]) -> None:
    known = [p for p in points if p.predicted_s is not None and p.fits is not False]
    if not known:
        known = [p for p in points if p.step_s and p.step_kind == "estimated" and not p.repeats]
    if not known:
        return
    caps = [p.max_tokens_per_mb for p in known]
    middle = [p.predicted_s or p.step_s for p in known]
    low = [p.predicted_low_s or p.low_s for p in known]
    high = [p.predicted_high_s or p.high_s for p in known]
    figure.add_scatter(
        x=caps + caps[::-1],
        y=high + low[::-1],
        fill="toself",
        fillcolor="rgba(0,114,178,0.14)",
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        row=1,
        col=1,
    )
    figure.add_scatter(
        x=caps,
        y=middle,
        name="estimated, with its band",
        mode="lines",
        line={"color": BLUE, "width": 1.5},
        customdata=list(zip(low, high, strict=True)),
        hovertemplate="%{x:,}: %{y:.3f} s estimated (%{customdata[0]:.3f}–%{customdata[1]:.3f})"
        "<extra></extra>",
        row=1,
        col=1,
    )


def _dots(figure: go.Figure, points: Sequence[Candidate]) -> None:
    measured = [p for p in points if p.step_kind == "measured" and p.step_s]
    in_part = [p for p in points if p.step_kind == "estimated" and "were run" in p.message]
    for chosen, name, symbol in (
        (measured, "measured, with its spread", "circle"),
        (in_part, "run in part, scaled up", "circle-open"),
    ):
        if not chosen:
            continue
        steps = [p.step_s or 0.0 for p in chosen]
        figure.add_scatter(
            x=[p.max_tokens_per_mb for p in chosen],
            y=steps,
            name=name,
            mode="markers",
            marker={"color": BLUE, "size": 10, "symbol": symbol, "line": {"width": 1.5}},
            error_y={
                "array": [(p.high_s or s) - s for p, s in zip(chosen, steps, strict=True)],
                "arrayminus": [s - (p.low_s or s) for p, s in zip(chosen, steps, strict=True)],
                "color": BLUE,
                "thickness": 1.5,
            },
            customdata=[
                [p.n_trees, p.repeats, f"{p.tokens_per_s:,.0f}" if p.tokens_per_s else "?"]
                for p in chosen
            ],
            hovertemplate="%{x:,}: %{y:.3f} s, %{customdata[0]:,} trees, %{customdata[1]} repeats, "
            "%{customdata[2]} original tokens/s<extra></extra>",
            row=1,
            col=1,
        )


def _paid(figure: go.Figure, points: Sequence[Candidate]) -> None:
    counted = [p for p in points if p.padded_token_ratio is not None]
    figure.add_scatter(
        x=[p.max_tokens_per_mb for p in counted],
        y=[p.padded_token_ratio for p in counted],
        name="paid ÷ original (exact)",
        mode="lines+markers",
        line={"color": GREEN, "width": 2},
        marker={"size": 5},
        customdata=[p.n_trees for p in counted],
        hovertemplate="%{x:,}: pays %{y:.3f}, %{customdata:,} trees<extra></extra>",
        row=2,
        col=1,
    )


def _memory(figure: go.Figure, result: SweepResult) -> None:
    for kind, symbol in (("measured", "circle"), ("estimated", "circle-open")):
        chosen = [p for p in result.points if p.memory_kind == kind and p.memory_bytes]
        if chosen:
            figure.add_scatter(
                x=[p.max_tokens_per_mb for p in chosen],
                y=[(p.memory_bytes or 0) / _GIB for p in chosen],
                name=f"memory, {kind}",
                mode="markers",
                marker={"color": PINK, "size": 7, "symbol": symbol, "line": {"width": 1.5}},
                hovertemplate="%{x:,}: %{y:.2f} GiB " + kind + "<extra></extra>",
                row=3,
                col=1,
            )
    # A budget far above every peak would press them into the axis.
    most = max((p.memory_bytes or 0 for p in result.points), default=0)
    if result.budget_bytes and most and result.budget_bytes <= 4 * most:
        figure.add_hline(
            y=result.budget_bytes / _GIB,
            line={"color": RED, "width": 1.5, "dash": "dash"},
            annotation={"text": f"budget {result.budget_bytes / _GIB:,.1f} GiB", "font_color": RED},
            annotation_position="top left",
            row=3,
            col=1,
        )


def _baselines(figure: go.Figure, result: SweepResult) -> None:
    """Lines across the range; where one is far above all, its figure stands in the legend alone."""
    most = max((p.step_s or 0.0 for p in result.points), default=0.0)
    caps = [p.max_tokens_per_mb for p in result.points]
    for name, (color, dash, words) in _BASELINES.items():
        found = result.baselines.get(name)
        if found is None or not found.step_s or not caps:
            continue
        label = f"{words}: {found.step_s:,.2f} s ({found.step_kind})"
        far = bool(most) and found.step_s > _FAR * most
        figure.add_scatter(
            x=[min(caps), max(caps)],
            y=[None, None] if far else [found.step_s] * 2,
            name=label + (", above the chart" if far else ""),
            mode="lines",
            line={"color": color, "dash": dash, "width": 2},
            hovertemplate=label + "<extra></extra>",
            row=1,
            col=1,
        )


def _pick(figure: go.Figure, result: SweepResult) -> None:
    pick = result.pick
    if pick is None or pick.mode != "tree":
        return
    figure.add_scatter(
        x=[pick.max_tokens_per_mb],
        y=[pick.step_s],
        name=f"pick: {pick.max_tokens_per_mb:,}",
        mode="markers",
        marker={"color": RED, "size": 20, "symbol": "circle-open", "line": {"width": 3}},
        hovertemplate=f"pick: {pick.max_tokens_per_mb:,}, {pick.step_s:.3f} s<extra></extra>",
        row=1,
        col=1,
    )


def _regions(figure: go.Figure, result: SweepResult) -> None:
    caps = [p.max_tokens_per_mb for p in result.points]
    if not caps:
        return
    left = min(min(caps), max(result.longest_row, 1)) * 0.8
    right = max(caps) * 1.12
    refused = [p.max_tokens_per_mb for p in result.points if p.refused]
    edge = max([result.longest_row, *refused])
    # plotly hatches bars and filled traces, not shapes
    figure.add_scatter(
        x=[left, edge, edge, left],
        y=[0, 0, _top(result), _top(result)],
        fill="toself",
        mode="none",
        name="AReaL refuses: a row is longer",
        fillpattern={"shape": "/", "fgcolor": GREY, "bgcolor": "rgba(0,0,0,0)", "size": 8},
        hoverinfo="skip",
        row=1,
        col=1,
    )
    too_large = [p.max_tokens_per_mb for p in result.points if p.fits is False and not p.refused]
    if too_large:
        fitting = [p.max_tokens_per_mb for p in result.points if p.fits]
        start = (min(too_large) * max(fitting, default=min(too_large))) ** 0.5
        figure.add_vrect(
            x0=start,
            x1=right,
            fillcolor=SKY,
            opacity=0.18,
            line_width=0,
            annotation_text="does not fit",
            annotation_position="top right",
        )


def _top(result: SweepResult) -> float:
    """The upper end of the time axis: all that is drawn, but not the whole of a wide band."""
    times = [max(p.step_s, p.high_s or 0.0) for p in result.points if p.step_s and p.repeats]
    times += [1.2 * p.step_s for p in result.points if p.step_s]
    most = max((p.step_s for p in result.points if p.step_s), default=1.0)
    lines = [one.step_s for one in result.baselines.values() if one is not None and one.step_s]
    return 1.05 * max([*times, *(s for s in lines if s <= _FAR * most), 0.0]) or 1.0
