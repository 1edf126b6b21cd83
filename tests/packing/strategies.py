"""Hypothesis strategies: rows that share prefixes, nest, repeat, or do not."""

from __future__ import annotations

from hypothesis import strategies as st

token_rows = st.lists(st.lists(st.integers(1, 3), max_size=14), min_size=1, max_size=14)


@st.composite
def grown_rows(draw: st.DrawFn) -> list[list[int]]:
    """Rows grown from a few stems: copies, prefixes and extensions of earlier rows."""
    rows = [draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))]
    for _ in range(draw(st.integers(0, 16))):
        stem = draw(st.sampled_from(rows))
        keep = draw(st.integers(0, len(stem)))
        rows.append(stem[:keep] + draw(st.lists(st.integers(0, 2), max_size=8)))
    return rows


any_rows = st.one_of(token_rows, grown_rows())
