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

from packing.packers.naive import pack_naive
from packing.rows import Rows
from tuning.cli import app

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    rows = Rows.from_lists([[1, 2, 3], [1, 2, 4, 5], [9, 9], [1, 2, 3]], group=[0, 0, 1, 0])
    path = tmp_path / "rows.npz"
    np.savez(path, tokens=rows.tokens, offsets=rows.offsets, groups=rows.group)
    return path


def run(*words: object) -> Any:
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_pack(npz: Path) -> None:
    out = run("pack", npz, "--cap", 5, "--json")
    trees, tokens = pack_naive([[1, 2, 3], [1, 2, 4, 5], [9, 9], [1, 2, 3]], 5)
    assert out["tree_of_row"] == trees and out["tokens_per_tree"] == tokens
    assert out["n_trees"] == len(tokens) == 2
    assert out["original_tokens"] == 12 and out["tree_tokens"] == 7
    assert out["tree_token_ratio"] == 7 / 12 and out["padded_token_ratio"] == 10 / 12
    ours = run("pack", npz, "--cap", 5, "--packer", "prefix-aware", "--json")
    assert ours["n_trees"] <= 2 and ours["bound_trees"] == 2


def test_pack_a_part_of_the_prompts(npz: Path) -> None:
    out = run("pack", npz, "--cap", 5, "--prompts", 1, "--samples", 2, "--json")
    assert out["rows"] == 2 and out["original_tokens"] == 7


def test_chain(npz: Path) -> None:
    out = run("chain", npz, "--cap", 128, "--dp", 2, "--ppo-n-minibatches", 1, "--json")
    assert out["trees_per_rank_ppo_update_after_dp_sync"] == 1
    assert out["padded_ratio_ppo_update"] == 2 * 128 / 12
    assert len(out["ranks"]) == 2 and out["summary"]["original_tokens"] == 12


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
        (["pack", "NPZ", "--cap", "3"], "row 1: Sequence length 4 exceeds max_tokens_per_tree 3"),
        (["pack", "NPZ", "--cap", "8", "--packer", "best"], "--packer is areal or prefix-aware"),
        (["chain", "NPZ", "--cap", "8", "--dp", "3"], "Number of items (2) must be >= K (3)"),
        (["chain", "NPZ", "--cap", "8", "--mode", "x"], "--mode is controller or spmd"),
        (["pack", "missing.jsonl", "--cap", "8"], "missing.jsonl"),
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
@pytest.mark.parametrize("command", [["pack", "--cap", "128"], ["chain", "--cap", "128"]])
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
    out = run("pack", shared_dir / "golden" / "gsm8k_solutions.npz", "--cap", 8192, "--json")
    assert out["n_trees"] == 112
