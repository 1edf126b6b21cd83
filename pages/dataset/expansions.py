"""One row a conversation or a turn: what each makes of the first records, side by side."""

from __future__ import annotations

import streamlit as st

from packing.sources.expansions import Expansion, either_way, has_a_choice
from packing.sources.loaded import Loaded
from pages.shared import data


def draw_expansions(loaded: Loaded) -> None:
    """Both counts, where rows come from conversations of several turns."""
    if not has_a_choice(loaded):
        return
    both = []
    for spec in either_way(loaded.spec):
        task = data.task_of(spec)
        data.follow(task, f"cancel_{spec.expand}")
        if task.result is None:
            return  # the other way has no rows; the load that is shown has
        both.append(_expansion(task.result.rows.fingerprint, spec.expand, task.result))
    records = min(spec.limit or 0, loaded.provenance.records)
    st.caption(f"What the first {records:,} records are, either way:")
    st.dataframe(
        [
            {
                "one row a": e.expand,
                "rows": e.rows,
                "tokens": e.tokens,
                "in the trie they share": e.tree_tokens,
                "prefix reuse": f"{e.tokens / max(e.tree_tokens, 1):.1f} ×",
                "longest row": e.longest,
            }
            for e in both
        ],
        hide_index=True,
    )


@st.cache_data(show_spinner=False, max_entries=16)
def _expansion(fingerprint: str, expand: str, _loaded: Loaded) -> Expansion:
    return Expansion.of(_loaded)
