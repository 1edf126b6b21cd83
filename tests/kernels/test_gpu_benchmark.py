"""The GPU benchmark as far as a CPU can go: its proofs, its trees, its batches, its imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import benchmarks.gpu_steps as gpu_steps
from benchmarks.gpu import main
from benchmarks.gpu_attention import PROVIDERS, rows_of_area
from benchmarks.gpu_trees import golden_trees, random_nodes, synthetic_trees, tree_of_nodes
from kernels.attention.mask import TreeMask
from packing.rows import Rows
from tests.kernels.forests import subtree_end_of, visible

ROOT = Path(__file__).resolve().parents[2]
# A machine with a GPU need have none of these.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("streamlit", "datasets", "plotly", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


@pytest.mark.process
def test_the_dry_run_proves_the_kernels_with_few_packages(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    arguments = ["--check-only", "--device", "cpu", "--out", str(out)]
    code = f"{WITHOUT}\nfrom benchmarks.gpu import main\nsys.exit(main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    report = json.loads(out.read_text())
    ours = [row for row in report["checks"] if row["backend"] == "triton"]
    assert len(ours) >= 3 and all(row["ok"] is True for row in ours)
    assert all(row["reason"] for row in report["checks"] if row["ok"] is None)
    assert report["machine"]["packages"]["torch"] and report["attention"] == report["steps"] == []


@pytest.mark.process
def test_every_stage_imports_with_few_packages() -> None:
    code = f"{WITHOUT}\nimport benchmarks.gpu_attention, benchmarks.gpu_steps"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "gpu.json")]) == 2
    assert "no CUDA device" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--device", "cpu"])


def test_trees_are_those_of_their_nodes() -> None:
    nodes = [(-1, 3), (0, 2), (1, 4), (1, 1), (0, 5), (-1, 2)]
    tree = tree_of_nodes("t", nodes)
    assert tree.subtree_end.tolist() == subtree_end_of(nodes).tolist()
    assert tree.row_lengths.tolist() == [9, 6, 8, 2]
    many = random_nodes("many", 60, 2)
    area = TreeMask.from_subtree_end(many.subtree_end).mask_area
    assert area == visible(many.subtree_end).sum()


def test_synthetic_trees_span_the_sizes() -> None:
    sizes = [len(tree.subtree_end) for tree in synthetic_trees()]
    assert min(sizes) <= 8_192 and 60_000 < max(sizes) <= 65_536
    for tree in synthetic_trees():
        mask = TreeMask.from_subtree_end(tree.subtree_end)
        rows_area = int((tree.row_lengths * (tree.row_lengths + 1) // 2).sum())
        assert mask.mask_area <= rows_area
        assert (mask.mask_area == rows_area) == tree.name.startswith("chain")


@pytest.mark.parametrize("area", [1, 7, 100, 12_345])
def test_rows_of_equal_area(area: int) -> None:
    rows = rows_of_area(np.array([9, 4, 17]), area)
    assert set(rows[:-1].tolist()) <= {9, 4, 17} and rows.min() > 0
    total = int((rows * (rows + 1) // 2).sum())
    assert total <= area < total + 18


def test_golden_trees(shared_dir: Path) -> None:
    path = shared_dir / "golden" / "gsm8k_solutions.npz"
    trees = golden_trees([path])
    assert [tree.name for tree in trees] == ["gsm8k_solutions_16k", "gsm8k_solutions_64k"]
    for tree, cap in zip(trees, (16_384, 65_536), strict=True):
        assert 0.9 * cap < len(tree.subtree_end) <= cap
        assert tree.row_lengths.sum() > len(tree.subtree_end)


def test_steps_run_the_same_rows_in_every_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 900, 20)
    lists = [np.append(prompt, rng.integers(0, 900, 9)) for _ in range(6)]
    rows = Rows.from_lists(lists, [0] * 6)
    monkeypatch.setattr(gpu_steps, "step_rows", lambda golden: rows)
    batches = gpu_steps.step_batches(rows, cap=128)
    monkeypatch.setattr(gpu_steps, "step_batches", lambda rows: batches)
    monkeypatch.setattr(gpu_steps, "MODES", {"tree_cascade": "cascade", "flat_dense": "dense"})
    found = gpu_steps.time_steps("tiny", [], torch.device("cpu"), {"dense"}, float("inf"))
    tree, flat = found
    assert tree["tokens"] == flat["tokens"] == 6 * 29
    assert tree["computed_tokens"] == 128 and flat["computed_tokens"] > 6 * 29
    assert tree["tokens_per_s"] > 0 and 0 < tree["loss"] < 10
    assert flat["reason"] == "failed its checks" and "step_s_p50" not in flat
    assert gpu_steps.time_steps("tiny", [], torch.device("cpu"), set(), 0.0)[0]["reason"] == (
        "no time left in the budget"
    )


def test_made_up_rows_fill_several_trees() -> None:
    rows = gpu_steps.step_rows([])
    batches = gpu_steps.step_batches(rows)
    assert rows.n_tokens > 2 * sum(batch.layout.n_tokens for batch in batches["tree"])
    assert sum(batch.layout.n_tokens for batch in batches["flat"]) == rows.n_tokens


def test_every_provider_has_a_backend_to_check() -> None:
    assert {name.split("_")[0] for name in PROVIDERS} >= {"triton", "flex", "cascade", "flash"}
