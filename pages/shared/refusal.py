"""Where AReaL stops at the plan: its words, our mend, and a button for each change that helps."""

from __future__ import annotations

import streamlit as st

from packing.batch.refusal import BatchRefused
from packing.trie import Forest
from pages.shared import state
from pages.shared.text import plain
from tuning.plan.batch import Batch, plan_fields
from tuning.plan.plan import TuningPlan

_WORDS = {
    "max_tokens_per_mb": "Use max_tokens_per_mb {:,}",
    "dp_size": "Use {:,} ranks",
    "ppo_n_minibatches": "Use ppo_n_minibatches {:,}",
    "prompts_per_step": "Use {:,} prompts a step",
}


def draw(refused: BatchRefused, key: str) -> None:
    """The box, and the changes that mend it; ``key`` tells the buttons of pages apart."""
    st.error(plain(refused), icon=":material/block:")
    with st.container(horizontal=True):
        for nth, fix in enumerate(refused.fixes):
            fields = plan_fields(fix)
            ((name, value),) = fields.items()
            st.button(
                plain(_WORDS[name].format(value)),
                on_click=state.update,
                kwargs=fields,
                type="primary" if nth == 0 else "secondary",
                key=f"{key}_fix_{name}_{value}",
            )


def forest(batch: Batch, plan: TuningPlan, key: str) -> Forest:
    """The trees of one update; the page stops where AReaL stops, and where there is no tree."""
    if refused := batch.refusal(plan):
        draw(refused, key)
        st.stop()
    trees = batch.simulation(plan).forest
    if not len(trees):
        st.info(
            "All rows are empty: AReaL runs one empty tree on every rank. Choose other data on the "
            "Dataset page."
        )
        st.stop()
    return trees
