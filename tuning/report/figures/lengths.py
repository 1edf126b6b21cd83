"""How long rows are, and which are over the cap."""

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from tuning.report.figures.style import BLUE, RED, mark_cap, styled

_BINS = 60


def length_histogram(
    lengths: npt.NDArray[np.int64], cap: int | None = None, unit: str = "tokens in a row"
) -> go.Figure:
    """Rows by length, binned here so that a million rows weigh as much as a hundred.

    lengths: int64 ``(rows,)``. Bars beyond ``cap`` are red: those rows cannot be packed.
    """
    top = max(int(lengths.max(initial=1)), 1)
    edges = np.unique(np.linspace(0, top + 1, min(_BINS, top + 1) + 1).astype(np.int64))
    counts, _ = np.histogram(lengths, edges)
    over = edges[:-1] >= cap if cap else np.zeros(len(counts), dtype=bool)
    figure = go.Figure(
        go.Bar(
            x=(edges[:-1] + edges[1:]) / 2,
            y=counts,
            width=np.diff(edges),
            marker={"color": np.where(over, RED, BLUE).tolist(), "line": {"width": 0}},
            customdata=np.stack([edges[:-1], edges[1:] - 1], axis=1),
            hovertemplate="%{y:,} rows of %{customdata[0]:,}–%{customdata[1]:,} tokens"
            "<extra></extra>",
        )
    )
    figure.update_xaxes(title=unit, tickformat=",")
    figure.update_yaxes(title="rows", tickformat=",")
    styled(figure, 260, legend=False)
    # A cap far to the right of every row would squeeze them into a corner.
    if cap and cap <= 1.6 * top:
        figure.update_layout(margin_t=28)
        mark_cap(figure, cap)
    return figure
