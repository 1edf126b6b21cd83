"""The command line: right figures, sentences for errors, nothing heavy imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from packing.batch.pipeline import simulate
from packing.batch.spec import BatchSpec
from packing.packers.naive import pack_naive
from packing.rows import Rows
from tuning.cli import app

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))


LISTS = [[1] * 100, [1] * 90 + [4] * 60, [9] * 70, [1] * 100 + [5] * 20, [8] * 60, [7] * 120]
GROUPS = [0, 0, 1, 0, 2, 3]


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    rows = Rows.from_lists(LISTS, group=GROUPS)
    path = tmp_path / "rows.npz"
    np.savez(path, tokens=rows.tokens, offsets=rows.offsets, groups=rows.group)
    return path


def run(*words: object) -> Any:
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_pack_in_the_order_of_the_file(npz: Path) -> None:
    out = run("pack", npz, "--cap", 256, "--order", "file", "--json")
    trees, tokens = pack_naive(LISTS, 256)
    assert out["tree_of_row"] == trees and out["tokens_per_tree"] == tokens
    assert out["n_trees"] == len(tokens) and out["order"] == "file"
    total = sum(map(len, LISTS))
    assert out["original_tokens"] == total and out["tree_tokens"] == sum(tokens)
    assert out["tree_token_ratio"] == sum(tokens) / total
    assert out["padded_token_ratio"] == 256 * len(tokens) / total
    words = ("pack", npz, "--cap", 256, "--order", "file", "--packer", "prefix-aware", "--json")
    ours = run(*words)
    assert ours["bound_trees"] <= ours["n_trees"] <= out["n_trees"]


def test_pack_follows_the_plan(npz: Path) -> None:
    out = run("pack", npz, "--cap", 256, "--dp", 2, "--ppo-n-minibatches", 2, "--json")
    spec = BatchSpec(256, dp_size=2, ppo_n_minibatches=2)
    expected = simulate(Rows.from_lists(LISTS, GROUPS), spec).figures()
    assert {key: out[key] for key in expected} == json.loads(json.dumps(expected))
    assert set(out["rank_of_tree"]) == set(out["minibatch_of_tree"]) == {0, 1}


def test_pack_a_part_of_the_prompts(npz: Path) -> None:
    out = run("pack", npz, "--cap", 256, "--prompts", 1, "--samples", 2, "--json")
    assert out["rows"] == 2 and out["original_tokens"] == 250
    cut = run("pack", npz, "--cap", 128, "--max-new-tokens", 50, "--json")
    assert cut["original_tokens"] == 6 * 50


def test_chain(npz: Path) -> None:
    out = run("chain", npz, "--cap", 256, "--dp", 2, "--json")
    packed = run("pack", npz, "--cap", 256, "--dp", 2, "--json")
    assert out["plan"]["ppo_n_minibatches"] == 1, "as 59 of 60 of AReaL's examples set it"
    assert out["padded_ratio_ppo_update"] == packed["padded_token_ratio"]
    assert out["ratio_ppo_update"] == packed["tree_token_ratio"]
    assert len(out["ranks"]) == 2 and out["summary"]["original_tokens"] == 620
    old = run("chain", npz, "--cap", 256, "--dp", 2, "--mode", "spmd", "--json")
    assert old == run("chain", npz, "--cap", 256, "--dp", 2, "--dispatch", "spmd", "--json")


def test_a_config_is_a_plan_and_options_go_before_it(npz: Path, tmp_path: Path) -> None:
    config = tmp_path / "grpo.yaml"
    text = (ROOT / "examples" / "grpo.yaml").read_text()
    config.write_text(text.replace("8192", "256").replace("fsdp:d4", "archon:d2"))
    plan = run("chain", npz, "--config", config, "--max-new-tokens", 0, "--json")["plan"]
    assert (plan["max_tokens_per_mb"], plan["dp_size"], plan["ppo_n_minibatches"]) == (256, 2, 1)
    assert plan["padding"]["batch_align_to"], "as Archon pads"
    own = run("chain", npz, "--config", config, "--max-new-tokens", 0, "--dp", 1, "--json")
    assert own["plan"]["dp_size"] == 1 and own["plan"]["max_tokens_per_mb"] == 256
    told = CliRunner().invoke(app, ["pack", str(npz)])
    assert told.exit_code == 1 and "name a cap with --cap, or a --config" in told.stderr
    broken = CliRunner().invoke(app, ["pack", str(npz), "--config", str(npz)])
    assert broken.exit_code == 1 and "Traceback" not in broken.output + broken.stderr


@pytest.mark.parametrize("command", ["pack", "chain"])
def test_what_areal_refuses_has_a_mend_in_json_too(npz: Path, command: str) -> None:
    words = [command, str(npz), "--cap", "256", "--dp", "3"]
    done = CliRunner().invoke(app, [*words, "--json"])
    refused = json.loads(done.stdout)
    assert done.exit_code == 1
    assert refused["fixes"][:2] == [{"dp_size": 2}, {"dp_size": 4}]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 1 and refused["refused"] in told.stderr
    assert refused["mend"] in told.stderr and not told.stdout


def test_rows_are_saved_as_they_were_loaded(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"prompt": "a", "completion": c}) + "\n" for c in "xy"))
    out = run("rows", path, "--save", tmp_path / "out.npz", "--json")
    again = run("rows", tmp_path / "out.npz", "--json")
    assert out["fingerprint"] == again["fingerprint"]
    assert again["origins"] == {"as generated": 2} and out["origins"] == {"re-tokenised": 2}


def test_what_is_made_up_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": "a"}) + "\n")
    simulated = ["--simulate", 4, "--simulate-median", 20]
    assert run("rows", path, *simulated, "--json")["simulated"]
    assert run("pack", path, *simulated, "--cap", 4096, "--json")["simulated"]


def test_odd_records_and_speakers_by_option(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    talks = [[("user", "a"), ("assistant", "b")], [("wizard", "a"), ("assistant", "b")]]
    path.write_text(
        "".join(
            json.dumps({"messages": [{"role": r, "content": c} for r, c in talk]}) + "\n"
            for talk in talks
        )
    )
    out = run("rows", path, "--leave-out-odd", "--json")
    assert (out["rows"], out["left_out"]["records"], out["odd_records"][0]["row"]) == (1, 1, 1)
    assert run("rows", path, "--speaker", "wizard=user", "--json")["rows"] == 2


def test_rows_of_text(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    lines = [{"prompt": "2 + 2 =", "completion": c} for c in (" 4", " four", " 5")]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    out = run("rows", path, "--json")
    assert (out["rows"], out["groups"]) == (3, 1)
    assert out["roles"]["prompt"] == "prompt" and not out["simulated"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pack", "NPZ", "--cap", "128"], "Row 1 has 150 tokens: choose max_tokens_per_mb 256"),
        (["pack", "NPZ", "--cap", "128", "--order", "file"], "choose max_tokens_per_mb 256"),
        (["pack", "NPZ", "--cap", "300", "--order", "file"], "Choose max_tokens_per_mb 256 or 384"),
        (["pack", "NPZ", "--cap", "300"], "Choose max_tokens_per_mb 256 or 384."),
        (["pack", "NPZ", "--cap", "0"], "max_tokens_per_mb is 0; it must be a whole number"),
        (["chain", "NPZ", "--cap", "-128"], "it must be a whole number, at least 1"),
        (["pack", "NPZ", "--cap", "256", "--packer", "best"], "choose one of areal, prefix-aware"),
        (["pack", "NPZ", "--cap", "256", "--order", "x"], "--order is plan or file"),
        (["chain", "NPZ", "--cap", "256", "--dp", "3"], "4 prompts do not divide over 3"),
        (["chain", "NPZ", "--cap", "256", "--mode", "x"], "choose one of controller, spmd"),
        (["pack", "missing.jsonl", "--cap", "128"], "missing.jsonl"),
        (["rows", "NPZ", "--role", "prompt"], "write ROLE=COLUMN"),
        (["pack", "sample:nothing", "--cap", "8"], "nothing"),
    ],
)
def test_errors_are_sentences(npz: Path, words: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, [str(npz) if w == "NPZ" else w for w in words])
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert "Traceback" not in result.output + result.stderr


@pytest.mark.process
@pytest.mark.parametrize("command", [["pack", "--cap", "256"], ["chain", "--cap", "256"]])
def test_packing_imports_nothing_heavy(npz: Path, command: list[str]) -> None:
    code = (
        "import sys\nfrom tuning.cli import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'streamlit', 'plotly', 'pandas', 'transformers', 'datasets'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    words = [command[0], str(npz), *command[1:]]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_the_golden_command(shared_dir: Path) -> None:
    out = run(
        "pack",
        shared_dir / "golden" / "gsm8k_solutions.npz",
        "--cap",
        8192,
        "--order",
        "file",
        "--json",
    )
    assert out["n_trees"] == 112
