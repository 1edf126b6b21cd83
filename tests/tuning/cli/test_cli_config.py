"""``check`` and ``export --base``: exit codes, JSON in any case, a user's file tuned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.tuning.configs import BASE, WHOLE, config
from tuning.cli import app

OWN = BASE[BASE.index("my_own:") :]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))


def run(*words: object, given: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(w) for w in words], input=given)


def test_check_reads_standard_input_and_lists_what_it_looked_at() -> None:
    done = run("check", "-", "--json", given=BASE.replace(OWN, ""))
    found = json.loads(done.stdout)
    assert done.exit_code == found["exit_code"] == 0 and found["green"] is True
    assert len(found["checked"]) >= 4 and found["not_checked"]
    done = run("check", "-", given=BASE)
    assert done.exit_code == 0 and "no fault found; not checked: keys of your own" in done.stdout
    assert "Checked:" in done.stdout and "Not checked:" in done.stdout


@pytest.mark.parametrize("text", ["a: [", "", "- 1\n", "a: ${b\n", "\x00"])
def test_json_is_printed_also_where_nothing_can_be_read(text: str) -> None:
    done = run("check", "-", "--json", given=text)
    found = json.loads(done.stdout)
    assert done.exit_code == found["exit_code"] == 1
    assert not found["green"] and found["not_checked"] == ["everything"] and found["error"]


def test_options_that_cannot_be_used_are_json_too() -> None:
    for words in (("--version", "9"), ("--areal", "/nowhere")):
        done = run("check", "-", "--json", *words, given=BASE)
        assert done.exit_code == 1 and json.loads(done.stdout)["error"]


def test_versions_by_name_differ() -> None:
    main_only = config(("  kl_ctl: 0.0", "  kl_ctl: 0.0\n  logprobs_chunk_size: 512"))
    wheel_only = config(("  kl_ctl: 0.0", "  kl_ctl: 0.0\n  optimizer_dtype: bfloat16"))
    codes = {
        version: [run("check", "-", "--version", version, given=t).exit_code for t in texts]
        for texts in [(main_only, wheel_only)]
        for version in ("1.0.4", "v1.0.4", "2.0.0", "main")
    }
    assert codes == {"1.0.4": [1, 0], "v1.0.4": [1, 1], "2.0.0": [1, 0], "main": [0, 0]}


def test_a_users_file_is_tuned_and_keeps_its_minibatches(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(config(("ppo_n_minibatches: 1", "ppo_n_minibatches: 4")))
    done = run("export", "sample:math-grpo", "--cap", 4096, "--base", file, "--diff")
    assert done.exit_code == 0, done.output
    assert "+    max_tokens_per_mb: 4096   # by hand" in done.stdout
    assert "ppo_n_minibatches: 1" not in done.stdout and "Before: " in done.stderr
    asked = run(
        "export", "sample:math-grpo", "--cap", 4096, "--base", file, "--diff", "--set-minibatches"
    )
    assert "+  ppo_n_minibatches: 1" in asked.stdout
    off = run("export", "sample:math-grpo", "--cap", 4096, "--base", file, "--diff", "--no-trees")
    assert "+  enable_tree_training: false" in off.stdout
    assert "+  pad_to_maximum: false" in off.stdout


def test_a_file_that_trees_do_not_serve_is_given_back(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    skypilot = "resources: {accelerators: H100:8}\nrun: python train.py\n"
    for text in (WHOLE["sft"], WHOLE["dpo"], skypilot, 'rollout: {backend: "sglang:d4"}\n'):
        file.write_text(text)
        done = run("export", "sample:math-grpo", "--cap", 4096, "--base", file)
        assert done.exit_code == 0 and done.stdout == text


def test_trees_that_lose_by_the_count_are_left_off(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    lines = [json.dumps({"input_ids": [n] * 40, "group": n}) for n in range(8)]
    rows.write_text("\n".join(lines) + "\n")
    done = run("export", rows, "--cap", 1024)
    assert done.exit_code == 0, done.output
    assert "enable_tree_training: false" in done.stdout and "left off" in done.stderr
    asked = run("export", rows, "--cap", 1024, "--trees")
    assert "enable_tree_training: true" in asked.stdout
