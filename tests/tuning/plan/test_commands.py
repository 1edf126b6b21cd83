"""A plan's command line is one that the command line takes, and asks the same question."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from packing.sources.spec import Kind, Simulate, SourceSpec, parse_rows
from tuning.cli import app
from tuning.cli.common import RowOptions
from tuning.plan.commands import command_line, rows_argument, source_options
from tuning.plan.plan import TuningPlan

PLAN = TuningPlan(
    source=SourceSpec("sample", "agent-turns", expand="turn", roles=(("prompt", "q a"),)),
    prompts_per_step=8,
    samples_per_prompt=2,
    dp_size=2,
    tp_size=2,
    ppo_n_minibatches=2,
    engine="archon",
    dispatch="spmd",
    max_tokens_per_mb=4096,
    packer="prefix-aware",
    model="small",
    dtype="bfloat16",
    gradient_checkpointing=True,
    memory_budget_gib=12.5,
    caps=(4096, 8192),
)


@pytest.mark.parametrize("name", ["rows", "pack", "chain", "sweep", "prove", "kernels", "export"])
@pytest.mark.parametrize("plan", [PLAN, TuningPlan()])
def test_every_option_is_known(name: str, plan: TuningPlan) -> None:
    import typer.main

    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    words = shlex.split(command_line(name, plan))
    assert words[:4] == ["python", "-m", "tuning", name]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_what_differs_is_said() -> None:
    line = command_line("sweep", PLAN)
    for words in (
        "sample:agent-turns",
        "--expand turn",
        "--role 'prompt=q a'",
        "--prompts 8",
        "--dispatch spmd",
        "--packer prefix-aware",
        "--gradient-checkpointing",
        "--caps 4096,8192",
        "--memory 12.5",
    ):
        assert words in line
    assert command_line("pack", TuningPlan()) == (
        "python -m tuning pack sample:math-grpo --cap 8192 --json"
    )


@pytest.mark.parametrize(
    "source",
    [
        SourceSpec("sample", "math-grpo"),
        SourceSpec("file", "logs/a b.jsonl"),
        SourceSpec("hub", "openai/gsm8k", revision="main", split="test"),
        SourceSpec("hub", "openai/gsm8k", config="main", limit=50, streaming=True),
        SourceSpec("sample", "math-grpo", simulate=Simulate(samples=4, median=99.0)),
        SourceSpec("sample", "agent-turns", expand="turn", keep_thinking=False, tokenizer="a b"),
        SourceSpec("file", "a.jsonl", expand="turn", style="concat", limit=3, versions=("v1",)),
    ],
)
def test_rows_are_read_back(source: SourceSpec) -> None:
    words = [rows_argument(source), *source_options(source)]
    given: dict[str, Any] = {}
    for option, value in zip(words[1::2], words[2::2], strict=True):
        name = option.removeprefix("--")
        given[name] = [value] if name == "version" else int(value) if name == "limit" else value
    assert RowOptions(words[0], **given).spec() == source


@given(st.sampled_from(["sample", "hub", "file"]), st.text(min_size=1))
@example("file", "{")
@example("file", "hub:")
@example("file", "-v.jsonl")
def test_rows_of_any_name_are_read_back(kind: Kind, location: str) -> None:
    assume("\0" not in location)
    source = SourceSpec(kind, location)
    argument = rows_argument(source)
    assert parse_rows(argument) == source and not argument.startswith("-")
