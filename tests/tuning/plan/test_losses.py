"""Losses: the steps from all tokens to paid ones add up, whatever the plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.batch.refusal import BatchRefused
from packing.rows import Rows
from tests.packing.strategies import any_rows
from tuning.plan.batch import Batch, mended
from tuning.plan.losses import losses
from tuning.plan.plan import PACKERS, TuningPlan

plans = st.builds(
    TuningPlan,
    prompts_per_step=st.sampled_from([0, 2, 4]),
    dp_size=st.sampled_from([1, 2, 4]),
    ppo_n_minibatches=st.sampled_from([1, 2, 3]),
    dispatch=st.sampled_from(["controller", "spmd"]),
    max_tokens_per_mb=st.sampled_from([128, 256, 512]),
    packer=st.sampled_from(PACKERS),
)


@settings(max_examples=60, deadline=None)
@given(any_rows, st.integers(1, 30), plans, st.integers(0, 2**31))
def test_the_steps_add_up_to_what_is_paid(
    lists: list[list[int]], longer: int, plan: TuningPlan, seed: int
) -> None:
    """Every step's total is a figure that somebody else counts."""
    groups = np.random.default_rng(seed).integers(0, 4, len(lists))
    rows = Rows.from_lists([row * longer for row in lists], group=groups)
    batch = Batch.of(rows, plan)
    try:
        paid = batch.simulation(plan)
    except BatchRefused:
        return
    steps = losses(batch, plan)
    assert [step.total for step in steps] == np.cumsum([step.tokens for step in steps]).tolist()
    assert steps[-1].total == paid.paid_tokens
    by_name = {step.name: step for step in steps}
    assert by_name["all tokens"].total == batch.rows.n_tokens
    assert by_name["shared beginnings"].total == batch.trie.n_tokens
    assert by_name["copies over trees"].tokens >= 0 and by_name["padding"].tokens >= 0
    whole = replace(plan, ppo_n_minibatches=1)
    assert by_name["ranks"].total == batch.simulation(whole).paid_tokens
    alone = batch.simulation(replace(whole, dp_size=1))
    assert by_name["padding"].total == alone.paid_tokens
    assert by_name["copies over trees"].total == alone.tree_tokens
    for step in steps:
        if step.lever:
            mend = mended(plan, step.lever)
            assert getattr(plan, next(iter(step.lever))) > 1
            assert batch.simulation(mend).paid_tokens > 0
