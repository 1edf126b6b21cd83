"""AReaL 1.0.4 itself takes our exports, and our tables say what its classes say."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.areal_schema import SCHEMAS
from tests.tuning.configs import BASE, config
from tuning.areal.backend import Engine
from tuning.doctor import check as areal_check
from tuning.doctor.check import Areal, find_areal, parse_overrides, validate
from tuning.export.export import Evidence, override_lines, render
from tuning.plan.plan import TuningPlan

ROOT = Path(__file__).parents[3]
ENGINES: tuple[Engine, ...] = ("fsdp", "megatron", "archon")
PLAN = TuningPlan(dp_size=4, model="qwen3-8b", gradient_checkpointing=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_areal_takes_every_export(areal: Areal, engine: Engine) -> None:
    plan = replace(PLAN, engine=engine)
    text = render(plan, Evidence())
    answer = validate(text, class_name="PPOActorConfig", areal=areal)
    assert answer.accepted and answer.sentence == "Accepted by AReaL 1.0.4."
    fragment = render(plan, Evidence(), form="fragment", with_ref=True)
    names = ("backend: fsdp:d1", "experiment_name: e", "trial_name: t")
    body = "".join(f"  {line}\n" for line in names)
    whole = fragment.replace("actor:\n", f"actor:\n{body}").replace("ref:\n", f"ref:\n{body}")
    rest = BASE[BASE.index("train_dataset:") :] + "rollout: {backend: 'sglang:d1'}\n"
    rest += "experiment_name: e\ntrial_name: t\n"
    answer = validate(whole + rest, areal=areal)
    assert answer.accepted, answer.error
    assert answer.left_out == ("my_own",)


@pytest.mark.process
@pytest.mark.parametrize("engine", ENGINES)
def test_the_python_form_runs_against_areal(areal: Areal, engine: Engine) -> None:
    text = render(replace(PLAN, engine=engine), Evidence(), form="python")
    script = (
        "import dataclasses, json\n"
        "from tuning.doctor.probe import load_cli_args\n"
        f"load_cli_args({str(areal.root)!r})\n"
        f"{text}\n"
        "print(json.dumps(dataclasses.asdict(actor), default=str))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    made = json.loads(done.stdout.splitlines()[-1])
    assert made["enable_tree_training"] is True and made["pad_to_maximum"] is True
    assert made["mb_spec"]["max_tokens_per_mb"] == 8192
    assert made["ppo_n_minibatches"] == 1
    assert made["archon"]["enable_compile"] is (engine == "archon")


@pytest.mark.parametrize("engine", ENGINES)
def test_overrides_parse_in_hydras_grammar(engine: Engine) -> None:
    pytest.importorskip("hydra")
    assert parse_overrides(override_lines(replace(PLAN, engine=engine), with_ref=True)) == ""
    assert parse_overrides(["++actor.x=[1"]) != ""


def test_our_schema_is_what_areals_classes_say(areal: Areal) -> None:
    """Fields, types, defaults and what each field refuses, of every class."""
    script = (
        "import json\nfrom scripts.areal_schema import inspect\n"
        f"print(json.dumps(inspect({str(areal.root)!r})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert theirs == json.loads((SCHEMAS / "1.0.4.json").read_text())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("max_tokens_per_mb: 8192 ", "max_tokens_per_mb: 8k "),
        ("max_tokens_per_mb: 8192 ", "max_tokens_per_mb: 8192.0 "),
        ("pad_to_maximum: true", "pad_to_maximum: maybe"),
        ("enable_tree_training: true", "enable_tree_trainin: true"),
        ("  type: rl\n", ""),
    ],
)
def test_areal_and_our_tables_refuse_the_same(areal: Areal, before: str, after: str) -> None:
    actor = BASE[BASE.index("actor:") :]
    bad = config((before, after))
    assert not validate(bad).accepted and not validate(bad, areal=areal).accepted
    assert before in actor


@pytest.mark.parametrize("value", ['"8192"', "0x2000", "null"])
def test_areal_and_our_tables_take_the_same(areal: Areal, value: str) -> None:
    text = "experiment_name: e\ntrial_name: t\nbackend: fsdp:d1\n"
    text += f"mb_spec: {{max_tokens_per_mb: {value}}}\n"
    for who in (None, areal):
        answer = validate(text, areal=who)
        assert answer.accepted and answer.real == (who is not None)


def test_areal_and_our_tables_agree_on_published_configs(areal: Areal, shared_dir: Path) -> None:
    for name in ("tau2_config_8b_airline", "search_agent_local_1.5b_example", "math_gsm8k_sft"):
        text = (shared_dir / "data" / "areal_configs" / f"{name}.yaml").read_text()
        real, ours = validate(text, areal=areal), validate(text)
        assert real.accepted == ours.accepted, name


def test_an_areal_that_cannot_be_imported_is_a_sentence(tmp_path: Path) -> None:
    api = tmp_path / "areal" / "api"
    api.mkdir(parents=True)
    (api / "cli_args.py").write_text("raise RuntimeError('broken')\n")
    (tmp_path / "areal" / "version.py").write_text('__version__ = "2.0.0"\n')
    found = find_areal(tmp_path)
    assert found is not None and found.version == "2.0.0"
    assert found.speaks_for("main") and not found.speaks_for("1.0.4")
    with pytest.raises(areal_check.ProbeError, match=r"could not be imported: .*broken"):
        validate("backend: x\n", areal=found)


def test_a_folder_without_areal_is_none(tmp_path: Path) -> None:
    assert find_areal(tmp_path) is None
