"""Any plan on any rows: ranks, order, minibatches, trees, dummies and refusals are AReaL's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packing.batch.pipeline import simulate
from packing.batch.refusal import BatchRefused
from packing.batch.spec import BatchSpec
from packing.packers.flat import PaddingRule
from packing.rows import Rows
from tests.areal.worker import Refused, Worker


@pytest.fixture(scope="module")
def areal(start: Callable[..., Worker]) -> Worker:
    """AReaL's chain; its tiles are of one token, so that small caps are caps."""
    return start("tests.areal.chain", AREAL_FLEX_ATTENTION_BLOCK_SIZE="1")


@st.composite
def batches(draw: st.DrawFn) -> list[list[list[int]]]:
    """Groups of rows: a prompt's answers, growing turns, copies, prefixes, strangers."""
    tokens = st.lists(st.integers(0, 3), min_size=1, max_size=9)
    groups = []
    for _ in range(draw(st.integers(1, 8))):
        rows = [draw(tokens)]
        for _ in range(draw(st.integers(0, 5))):
            stem = draw(st.sampled_from(rows))
            row = stem[: draw(st.integers(0, len(stem)))] + draw(st.lists(st.integers(0, 3)))
            rows.append(row[:24] or [0])
        groups.append(rows)
    return groups


plans = st.fixed_dictionaries(
    {
        "dp_size": st.integers(1, 4),
        "ppo_n_minibatches": st.integers(1, 4),
        "mode": st.sampled_from(["controller", "spmd"]),
        "max_tokens_per_mb": st.integers(2, 80),
        "packing_algorithm": st.sampled_from(["ffd", "kk"]),
        "n_mbs": st.integers(1, 4),
        "granularity": st.integers(1, 3),
        "n_mbs_divisor": st.integers(1, 3),
        "pad_to_maximum": st.booleans(),
    }
)


def ours(groups: list[list[list[int]]], pad_to_maximum: bool, **plan: Any) -> dict[str, Any]:
    rows = Rows.from_lists(
        [row for group in groups for row in group],
        [number for number, group in enumerate(groups) for _ in group],
    )
    plan["dispatch"] = plan.pop("mode")
    spec = BatchSpec(**plan, block_size=1, padding=PaddingRule(pad_to_maximum))
    chain: dict[str, Any] = json.loads(json.dumps(simulate(rows, spec).to_json()))
    return {"dp_parts": chain["dp_parts"], "ranks": chain["ranks"]}


@pytest.mark.process
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(groups=batches(), plan=plans)
def test_a_plan_is_areals(areal: Worker, groups: list[list[list[int]]], plan: Any) -> None:
    try:
        theirs: Any = areal.ask(groups=groups, **plan)
    except Refused as refused:
        theirs = refused.args[1]
    try:
        mine: Any = ours(groups, **plan)
    except BatchRefused as refused:
        mine = refused.words
    if isinstance(mine, dict) and isinstance(theirs, dict):
        _forget_refused(mine["ranks"], theirs["ranks"])
    assert mine == theirs


def _forget_refused(mine: list[Any], theirs: list[Any]) -> None:
    """Where a rank's flat micro-batches are refused, alone or in step, ours has none of any rank.

    AReaL's ranks are asked one by one here: they are to refuse too, or to need to come in step.
    """
    for place in ("baseline_full_batch", *range(len(mine[0]["ppo_update"]))):
        ours, areals = (
            [
                (rank, place) if isinstance(place, str) else (rank["ppo_update"][place], "baseline")
                for rank in ranks
            ]
            for ranks in (mine, theirs)
        )
        if any(update[key] is None for update, key in ours):
            alone = [update[key] and update[key]["n_mbs"] for update, key in areals]
            assert None in alone or len(set(alone)) > 1
            for update, key in (*ours, *areals):
                update[key] = None
