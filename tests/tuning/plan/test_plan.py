"""TuningPlan: one value for links, history and command line; links are untrusted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.sources.spec import SourceSpec
from tuning.areal.backend import Engine
from tuning.plan.plan import NETWORKS, STEPS, Dispatch, Dtype, Packer, PlanError, Step, TuningPlan

plans = st.builds(
    TuningPlan,
    source=st.sampled_from(
        [
            SourceSpec("sample", "agent-turns"),
            SourceSpec("file", "my data/ü & x.jsonl", roles=(("prompt", "q"),), expand="turn"),
        ]
    ),
    prompts_per_step=st.integers(0, 512),
    dp_size=st.integers(1, 64),
    engine=st.sampled_from(get_args(Engine)),
    dispatch=st.sampled_from(get_args(Dispatch)),
    packer=st.sampled_from(get_args(Packer)),
    step=st.sampled_from(STEPS),
    network=st.sampled_from(NETWORKS),
    dtype=st.sampled_from(get_args(Dtype)),
    max_tokens_per_mb=st.integers(1, 1024).map(lambda n: 128 * n),
    gradient_checkpointing=st.booleans(),
    memory_budget_gib=st.floats(0, 200),
    caps=st.lists(st.integers(1, 99).map(lambda n: 128 * n), max_size=4).map(tuple),
    model=st.sampled_from(["tiny", "Qwen/Qwen3-8B"]),
)


@given(plans)
def test_links_and_json_bring_the_plan_back(plan: TuningPlan) -> None:
    assert TuningPlan.from_query(plan.to_query()) == (plan, [])
    assert TuningPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@given(plans, plans)
def test_the_key_tells_plans_apart(a: TuningPlan, b: TuningPlan) -> None:
    assert (a.key == b.key) == (a == b)


def test_defaults_leave_no_trace_in_a_link() -> None:
    assert TuningPlan().to_query() == {}
    assert replace(TuningPlan(), max_tokens_per_mb=4096).to_query() == {"cap": "4096"}


@pytest.mark.parametrize(
    "query",
    [
        {"cap": "abc"},
        {"cap": "-3"},
        {"dp": "0"},
        {"engine": "deepspeed"},
        {"data": "{broken"},
        {"data": '{"kind": "pickle", "location": "x"}'},
        {"mem": "nan-ish"},
        {"caps": "128,x"},
        {"dp": "9" * 30},
    ],
)
def test_a_bad_parameter_is_named_and_the_rest_is_kept(query: dict[str, str]) -> None:
    plan, refused = TuningPlan.from_query({"model": "small"} | query)
    assert plan == replace(TuningPlan(), model="small")
    assert len(refused) == 1 and next(iter(query)) + "=" in refused[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "a plan is an object"),
        ({"speed": 1}, "speed is no field of a plan"),
        ({"dp_size": True}, "dp_size is True; it must be a whole number, at least 1"),
        ({"caps": [1.5]}, "caps must be a list of whole numbers"),
        ({"gradient_checkpointing": 1}, "must be true or false"),
    ],
)
def test_from_json_names_the_field(value: object, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        TuningPlan.from_json(value)


def test_problems_say_what_to_choose() -> None:
    assert TuningPlan().problems() == []
    plan = TuningPlan(max_tokens_per_mb=8000, prompts_per_step=30, dp_size=8)
    unaligned, undivided = plan.problems()
    assert "choose a multiple of 128, such as 8064" in unaligned
    assert "30 prompts a step do not divide over 8" in undivided
    assert "multiple of 384" in TuningPlan(tp_size=3).problems()[0]
    assert (
        "dp_size is 0; it must be a whole number, at least 1." in TuningPlan(dp_size=0).problems()
    )


@pytest.mark.parametrize(
    ("device", "packer", "step", "timed", "exported"),
    [
        ("cpu", "areal", "auto", "espalier", "areal"),
        ("cuda:1", "areal", "auto", "espalier", "areal"),
        ("h100-80", "areal", "auto", "areal", "areal"),
        ("h100-80", "prefix-aware", "auto", "areal-espalier", "areal-espalier"),
        ("gpu:1:2:3", "areal", "espalier", "espalier", "areal"),
        ("cpu", "areal", "areal-espalier", "areal-espalier", "areal-espalier"),
    ],
)
def test_whose_step_is_timed_and_whose_is_exported(
    device: str, packer: Packer, step: Step, timed: str, exported: str
) -> None:
    plan = TuningPlan(device=device, packer=packer, step=step)
    assert (plan.step_of, plan.exported_step) == (timed, exported)
    assert plan.problems() == []


def test_a_step_that_cannot_be_run_says_why_and_what_can() -> None:
    ours = TuningPlan(packer="prefix-aware", step="areal")
    (said,) = ours.problems()
    assert "own first fit" in said and "areal-espalier" in said and "packer areal" in said
    assert replace(ours, step="areal-espalier").problems() == []
    assert replace(ours, packer="areal").problems() == []
    archon = TuningPlan(engine="archon", step="areal-espalier")
    assert "engine fsdp, or step areal" in " ".join(archon.problems())
    (said,) = TuningPlan(step="areal").unmeasurable("/python")
    assert "no backward pass" in said and "areal-espalier" in said and "h100-80" in said
    inside = TuningPlan(step="areal-espalier")
    assert "--areal-python" in inside.unmeasurable()[0] and inside.unmeasurable("/python") == []
    assert "engine is archon" in replace(inside, engine="archon").unmeasurable("/python")[0]
    for free in (TuningPlan(), TuningPlan(step="areal", device="h100-80")):
        assert free.unmeasurable() == []
