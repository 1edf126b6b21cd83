"""One plan, one figure: whatever shows a plan shows the same numbers, refusals included.

Plans are drawn at random; the oracle is the simulation of the plan's batch, which has its own tests
against AReaL's results.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from packing.batch.refusal import BatchRefused
from packing.sources.load import load
from packing.sources.spec import SourceSpec
from pages.shared import background, waiting
from tests.pages.test_pages import FRAME
from tuning.advice import advise
from tuning.cli import app
from tuning.cli.common import plan_options
from tuning.export.evidence import evidence_of
from tuning.export.export import render
from tuning.plan.batch import Batch
from tuning.plan.commands import SCOPES, command_fields, command_line
from tuning.plan.plan import PACKERS, TuningPlan, options
from tuning.report import render_report
from tuning.sweep.batches import counted
from tuning.workspace.workspace import Workspace

SOURCES = (
    SourceSpec("sample", "math-grpo"),
    SourceSpec("sample", "agent-turns", expand="turn"),
    SourceSpec("sample", "preference-pairs"),
)

plans = st.builds(
    TuningPlan,
    source=st.sampled_from(SOURCES),
    prompts_per_step=st.sampled_from([0, 4, 6]),
    samples_per_prompt=st.sampled_from([0, 3]),
    max_new_tokens=st.sampled_from([0, 900]),
    dp_size=st.sampled_from([1, 2, 3, 4]),
    tp_size=st.sampled_from([1, 2]),
    ppo_n_minibatches=st.sampled_from([1, 2, 4]),
    engine=st.sampled_from(["fsdp", "megatron", "archon"]),
    dispatch=st.sampled_from(["controller", "spmd"]),
    max_tokens_per_mb=st.sampled_from([640, 1664, 4096, 6144, 8192, 8200]),
    packer=st.sampled_from(PACKERS),
    model=st.sampled_from(["tiny", "Qwen/Qwen3-8B"]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
QUICK = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@cache
def rows_of(source: SourceSpec) -> Any:
    return load(source).rows


@cache
def batch_of(plan: TuningPlan) -> Batch:
    return Batch.of(rows_of(plan.source), plan)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh history; a page is drawn once, and its curve over other caps is not at stake."""
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setattr(waiting, "redraw", lambda: None)
    monkeypatch.setattr(background, "caps_in_view", lambda batch, plan: [plan.max_tokens_per_mb])


def printed(name: str, plan: TuningPlan) -> Any:
    """The JSON of the very line that a page prints, run."""
    words = shlex.split(command_line(name, plan))
    assert words[:3] == ["python", "-m", "tuning"]
    done = CliRunner().invoke(app, words[3:])
    assert "Traceback" not in done.output
    return json.loads(done.stdout)


@QUICK
@given(plans)
def test_the_printed_commands_give_the_plans_figures(plan: TuningPlan) -> None:
    packed, chain = printed("pack", plan), printed("chain", plan)
    try:
        simulation = batch_of(plan).simulation(plan)
    except BatchRefused as refused:
        for told in (packed, chain):
            assert (told["refused"], told["mend"]) == (refused.words, refused.mend)
        assert counted(batch_of(plan), plan, plan.max_tokens_per_mb).message == str(refused)
        return
    figures = json.loads(json.dumps(simulation.figures()))
    assert {key: packed[key] for key in figures} == figures
    assert chain["ratio_ppo_update"] == figures["tree_token_ratio"]
    assert chain["padded_ratio_ppo_update"] == figures["padded_token_ratio"]
    assert chain["paid_ppo_update"]["tree"] == figures["paid_tokens"]
    assert chain["paid_ppo_update"]["flat"] == figures["paid_flat"]
    assert chain["dummy_trees_ppo_update"] == figures["n_dummy_trees"]
    trees = [one["n_trees"] for rank in chain["ranks"] for one in rank["ppo_update"]]
    assert sum(trees) == figures["n_trees"]
    candidate = counted(batch_of(plan), plan, plan.max_tokens_per_mb)
    assert candidate.n_trees == figures["n_trees"]
    assert candidate.paid_tokens == figures["paid_tokens"]
    assert candidate.tree_token_ratio == figures["tree_token_ratio"]
    assert candidate.padded_token_ratio == figures["padded_token_ratio"]


@QUICK
@given(plans, st.booleans(), st.integers(1, 4096), st.sampled_from(["cpu", "h100-80"]))
def test_every_printed_command_keeps_every_field(
    plan: TuningPlan, checkpointing: bool, head_chunk: int, device: str
) -> None:
    """Each command, parsed as the shell would, means the plan that printed it."""
    import typer.main

    plan = replace(
        plan,
        gradient_checkpointing=checkpointing,
        head_chunk=head_chunk,
        optimizer_dtype="bfloat16" if checkpointing else "float32",
        device=device,
        memory_budget_gib=12.5 if checkpointing else 0.0,
        caps=(1024, 2048) if checkpointing else (),
    )
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(SCOPES) <= set(commands)
    for name in SCOPES:
        words = shlex.split(command_line(name, plan))[4:]
        parsed = commands[name].make_context(name, list(words)).params
        if name == "rows":
            continue
        kind = plan_options(name)
        given = {key: value for key, value in parsed.items() if key in kind.__dataclass_fields__}
        read = kind(**given).plan()
        for field in ("source", *command_fields(name)):
            assert getattr(read, field) == getattr(plan, field), (name, field)
        left = set(options()) - set(command_fields(name))
        assert all(getattr(read, f) == getattr(TuningPlan(), f) for f in left)


@settings(parent=QUICK, max_examples=8)
@given(plans)
def test_export_and_report_show_the_plans_figures(plan: TuningPlan) -> None:
    batch = batch_of(plan)
    page = render_report(Workspace.of(plan, batch))
    try:
        simulation = batch.simulation(plan)
    except BatchRefused as refused:
        assert refused.mend.replace("“", "").split(":")[0] in page
        with pytest.raises(BatchRefused):
            evidence_of(batch, plan)
        return
    for words in (
        f"{simulation.n_trees:,}",
        f"{simulation.tree_token_ratio:.4f}",
        f"{simulation.padded_token_ratio:.4f}",
    ):
        assert words in page
    advice = advise(batch, plan)
    assert advice.headline in page and advice.sentence.replace("'", "&#x27;") in page
    if plan.problems():
        return
    text = render(plan, evidence_of(batch, plan))
    for words in (
        f"trees {simulation.n_trees:,}, dummy trees {simulation.n_dummy_trees:,}",
        f"tree_token_ratio {simulation.tree_token_ratio:.4f}",
        f"padded_token_ratio {simulation.padded_token_ratio:.4f}",
    ):
        assert words in text
    assert yaml.safe_load(text)["ppo_n_minibatches"] == plan.ppo_n_minibatches


SEEN = (
    TuningPlan(dp_size=4, ppo_n_minibatches=4),
    TuningPlan(dp_size=7),
    TuningPlan(SOURCES[1], max_tokens_per_mb=6144, ppo_n_minibatches=2, packer="prefix-aware"),
    TuningPlan(SOURCES[1], max_tokens_per_mb=6144, dp_size=8),
    TuningPlan(max_tokens_per_mb=1664, dispatch="spmd", dp_size=2),
    TuningPlan(SOURCES[2], max_tokens_per_mb=100),
)


@pytest.mark.parametrize("plan", SEEN, ids=lambda plan: plan.to_query().__repr__()[:60])
def test_strip_and_packing_page_show_the_plans_figures(
    plan: TuningPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = AppTest.from_file(FRAME, default_timeout=60)
    for name, value in plan.to_query().items():
        shown.query_params[name] = value
    shown.run()
    shown.switch_page("packing/page.py").run()
    strip = "".join(str(h.proto.body) for h in shown.get("html") if "summary" in h.proto.body)
    text = re.sub(r"<[^>]+>", " ", strip)
    told = {**{m.label: m.value for m in shown.metric}}
    try:
        simulation = batch_of(plan).simulation(plan)
    except BatchRefused as refused:
        assert refused.mend in text and not told
        assert str(refused) in [e.value for e in shown.error]
        return
    ratio, paid = f"{simulation.tree_token_ratio:.3f}", f"{simulation.padded_token_ratio:.3f}"
    assert ratio in text and paid in text and f"{simulation.n_trees:,}" in text
    assert told["trees"] == f"{simulation.n_trees:,}"
    assert (told["tree_token_ratio"], told["paid ÷ original"]) == (ratio, paid)
    flat = simulation.comparison.flat
    assert told["flat packing pays"] == f"{(flat or 0) / simulation.original_tokens:.3f}"
    (line,) = [c.value for c in shown.code if c.value.startswith("python -m tuning pack")]
    assert line == command_line("pack", plan)
