"""A plan's command line is one that the command line takes, and asks the same question."""

from __future__ import annotations

import shlex

import pytest

from packing.sources.spec import SourceSpec, parse_rows
from tuning.cli import app
from tuning.commands import command_line, rows_argument
from tuning.plan import TuningPlan

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


@pytest.mark.parametrize("name", ["rows", "pack", "chain", "sweep", "export"])
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
        "--mode spmd",
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
    ],
)
def test_rows_are_read_back(source: SourceSpec) -> None:
    assert parse_rows(rows_argument(source)) == source
