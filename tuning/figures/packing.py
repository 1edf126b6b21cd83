"""What a cap buys and what is paid for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from tuning.figures.style import BLUE, GREY, SERIES, cap_axis, mark_cap, styled
from tuning.workbench import CurvePoint


def cap_curve(
    curves: Mapping[str, Sequence[CurvePoint]], original_tokens: int, cap: int
) -> go.Figure:
    """Paid tokens (thick) and tree tokens (thin), over original tokens, at each cap.

    curves: points by packer ("areal", "prefix-aware", "flat"); the dashed line at 1 is the
    tokens of the rows themselves.
    """
    figure = go.Figure()
    for packer, points in curves.items():
        color, dash, name = SERIES[packer]
        caps = [p.max_tokens_per_mb for p in points]
        trees = [f"{p.n_trees:,} trees" if p.n_trees else "" for p in points]
        figure.add_scatter(
            x=caps,
            y=[p.paid_tokens / original_tokens for p in points],
            name=f"{name}: paid",
            mode="lines",
            line={"color": color, "dash": dash, "width": 2.5},
            text=trees,
            hovertemplate="%{y:.3f} paid at %{x:,} · %{text}<extra>" + name + "</extra>",
        )
        if packer != "flat":
            figure.add_scatter(
                x=caps,
                y=[p.tree_tokens / original_tokens for p in points],
                name=f"{name}: tree_token_ratio",
                mode="lines",
                line={"color": color, "dash": dash, "width": 1},
                opacity=0.75,
                hovertemplate="%{y:.3f} tree_token_ratio at %{x:,}<extra>" + name + "</extra>",
            )
    figure.add_hline(y=1, line={"color": GREY, "width": 1, "dash": "dot"})
    known = [p.max_tokens_per_mb for points in curves.values() for p in points]
    cap_axis(figure, min(known, default=cap), max(known, default=cap))
    figure.update_yaxes(title="tokens ÷ original tokens", rangemode="tozero")
    styled(figure, 340)
    mark_cap(figure, cap, "now")
    return figure


def tree_fill(tokens_per_tree: npt.NDArray[np.int64], max_tokens_per_mb: int) -> go.Figure:
    """Each tree's tokens under its padding, in order of creation.

    More than 250 trees are averaged in equal runs; the hover label says how many.
    """
    trees = len(tokens_per_tree)
    run = max(-(-trees // 250), 1)
    edges = np.arange(0, trees, run)
    counts = np.diff(np.append(edges, trees))
    tokens = np.add.reduceat(tokens_per_tree, edges) / counts if trees else np.empty(0)
    label = [
        f"tree {a:,}" if n == 1 else f"trees {a:,}–{a + n - 1:,} (mean)"
        for a, n in zip(edges.tolist(), counts.tolist(), strict=True)
    ]
    figure = go.Figure()
    figure.add_bar(
        x=edges,
        y=tokens,
        name="tokens",
        marker={"color": BLUE, "line": {"width": 0}},
        text=label,
        textposition="none",
        hovertemplate="%{text}: %{y:,.0f} tokens<extra></extra>",
    )
    figure.add_bar(
        x=edges,
        y=max_tokens_per_mb - tokens,
        name="padding",
        marker={"color": "rgba(128,128,128,0.28)", "line": {"width": 0}},
        text=label,
        textposition="none",
        hovertemplate="%{text}: %{y:,.0f} padding<extra></extra>",
    )
    figure.update_layout(barmode="stack", bargap=0.08)
    figure.update_xaxes(title="tree", tickformat=",d")
    figure.update_yaxes(title="tokens", tickformat=",")
    return styled(figure, 240)
