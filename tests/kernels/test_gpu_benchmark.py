"""The GPU benchmark as far as a CPU can go: its proofs, its trees, its batches, its imports."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import benchmarks.gpu as gpu
import benchmarks.gpu_steps as gpu_steps
from benchmarks.gpu_device import DryDevice
from benchmarks.gpu_libraries import CannotRun, DryLibraries, Libraries, torch_varlen
from benchmarks.gpu_providers import PROVIDERS, inputs, paths_of_nodes, rows_of_area
from benchmarks.gpu_reference import SampledReference
from benchmarks.gpu_trees import (
    golden_trees,
    random_nodes,
    synthetic_trees,
    tree_of_nodes,
    trees_to_time,
)
from kernels.attention.mask import TreeMask
from kernels.attention.registry import BACKENDS, tree_attention
from kernels.triton.configs import PASSES
from tests.kernels.forests import caterpillar, random_forest, subtree_end_of, visible
from tuning.measure.gpu_run import GpuRunError, load_gpu_run, read_gpu_run

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
STAGES = gpu.stages([], dry=True)
KERNELS = (*PASSES, "dqkv")


def dry_run(folder: Path, *arguments: str) -> dict[str, Any]:
    out = folder / "gpu.json"
    gpu.main(["--dry-run", "--budget", "20000", "--out", str(out), *arguments])
    report: dict[str, Any] = json.loads(out.read_text())
    return report


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_dry_run_goes_through_every_stage(tmp_path: Path) -> None:
    report = dry_run(tmp_path)
    assert report["ended"] == STAGES and report["machine"]["dry_run"]
    assert {row["provider"] for row in report["attention"]} == set(PROVIDERS)
    assert {row["mode"] for row in report["steps"]} == set(gpu_steps.MODES)
    assert len(report["attention"]) == 2 * len(PROVIDERS)
    for table in ("compile", "attention", "steps"):
        assert not [row for row in report[table] if "reason" in row], table
    left_out = [row for row in report["checks"] if row["ok"] is None]
    assert all(row["reason"].startswith("left out: Flex") for row in left_out)
    assert all(row["ok"] for row in report["checks"] if row not in left_out)
    assert {row["backend"] for row in report["checks"] if row["ok"]} == {
        "triton",
        "cascade",
        "flex",
    }
    for row in report["attention"]:
        compared = row["provider"].split("_")[0] not in ("flash", "causal")
        assert compared == ("dk_error" in row)
        assert row["both_tflops"] > 0 and row["times_flex"] > 0 and row["of_flash"] > 0
        ours = row["provider"].startswith("triton")
        assert ours == ("kernel_forward_ms" in row)
    losses = {row["mode"]: row["loss"] for row in report["steps"]}
    assert max(losses.values()) - min(losses.values()) < 1e-4
    with pytest.raises(GpuRunError, match="dry run, made on a CPU"):
        load_gpu_run(tmp_path / "gpu.json")
    # The same rows, had a GPU made them, are read: each of our kernels, each provider as a whole.
    report["machine"] |= {"dry_run": False, "device": "NVIDIA H200"}
    found = read_gpu_run(json.dumps(report), "gpu.json").efficiencies()
    assert {one.provider for one in found if one.kernel == "both"} == set(PROVIDERS)
    assert {one.kernel for one in found if one.provider == "triton"} == {"both", *PASSES}
    ours = [one for one in found if one.kernel in KERNELS]
    assert ours and all(one.tile and 0 < (one.block_efficiency or 0) <= 1 for one in ours)


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_a_fault_in_each_stage_loses_only_that_stage(tmp_path: Path) -> None:
    kinds = ("raise", "die")
    faults = [f"{stage}={kinds[n % 2]}" for n, stage in enumerate(STAGES)]
    report = dry_run(tmp_path, "--break", *faults)
    assert report["ended"] == []
    failed = [row for name in ("compile", "checks", "attention", "steps") for row in report[name]
              if row.get("stage_failed")]  # fmt: skip
    assert len(failed) == len(STAGES) - 1 and all("ended with" in row["reason"] for row in failed)
    # Each stage kept the row before its fault, and the next stage ran.
    assert {row["tree"] for row in report["attention"] if "both_tflops" in row} == {
        tree.name for tree in trees_to_time([], True)
    }
    assert {row["mode"] for row in report["steps"] if "loss" in row} == set(gpu_steps.MODES)
    assert report["checks"][0]["ok"] and report["compile"][0]["seconds"] > 0


def test_a_stage_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over as soon as it has written its first row, and hangs."""
    out = tmp_path / "gpu.json"
    rows_file = out.with_suffix(".rows.jsonl")

    class Impatient(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            while timeout is not None and not gpu.read_rows(rows_file):
                time.sleep(0.05)
            return super().wait(timeout and 0.1)

    monkeypatch.setattr(gpu, "stages", lambda golden, dry: ["machine"])
    monkeypatch.setattr(subprocess, "Popen", Impatient)
    gpu.main(["--dry-run", "--out", str(out), "--break", "machine=hang"])
    machine = json.loads(out.read_text())["machine"]
    assert machine["device"].startswith("none: a dry run")
    assert any("ended after" in row.get("reason", "") for row in gpu.read_rows(rows_file))


def test_stages_are_the_trees_and_modes_that_there_are() -> None:
    whole = gpu.stages([], dry=False)
    trees = [stage.removeprefix("attention:") for stage in whole if stage.startswith("attention")]
    assert trees == [tree.name for tree in synthetic_trees()]
    assert whole[3:5] == ["attention:agent_32k", "attention:prompts_64k"]
    modes = [stage.removeprefix("steps:") for stage in whole if stage.startswith("steps")]
    assert modes == list(gpu_steps.MODES)


def test_half_a_row_is_no_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"stage": "checks", "ok": true}\n{"stage": "che')
    gpu._append(file, {"stage": "checks", "reason": "died"})
    report = gpu.collated({}, gpu.read_rows(file))
    assert report["checks"] == [{"ok": True}, {"reason": "died", "stage_failed": True}]


def test_what_there_is_no_time_for_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "stages", lambda golden, dry: ["attention:agent_32k", "steps:x"])
    report_file = tmp_path / "gpu.json"
    assert gpu.main(["--dry-run", "--budget", "0.1", "--out", str(report_file)]) == 1
    report = json.loads(report_file.read_text())
    assert report["attention"][0]["reason"] == "no time left in the budget"
    assert report["attention"][0]["tree"] == "agent_32k" and report["steps"][0]["mode"] == "x"


def test_ratios_are_of_the_same_tree() -> None:
    def row(tree: str, provider: str, ms: float, tflops: float) -> dict[str, Any]:
        times = {"both_ms_p50": ms, "mask_ms": 1.0, "both_tflops": tflops}
        return {"stage": f"attention:{tree}", "tree": tree, "provider": provider, **times}

    rows = [row("a", "triton", 2.0, 50.0), row("b", "triton", 3.0, 10.0)]
    rows += [row("a", "flex_ours", 5.0, 20.0), row("a", "flash_rows", 1.0, 100.0)]
    first, second, *_ = gpu.collated({}, rows)["attention"]
    assert first["times_flex"] == 2.5 and first["of_flash"] == 0.5
    assert first["times_flex_with_mask"] == 2.0
    assert "times_flex" not in second and "of_flash" not in second


@pytest.mark.process
def test_every_stage_imports_with_few_packages() -> None:
    code = f"{WITHOUT}\nimport benchmarks.gpu_attention, benchmarks.gpu_steps, benchmarks.gpu_warm"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--out", str(tmp_path / "gpu.json")]) == 2
    assert "no CUDA device" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        gpu.main(["--break", "checks=die"])


@pytest.mark.parametrize("kv_head", [0, -1])
def test_the_sampled_reference_is_dense_attention(kv_head: int) -> None:
    device = DryDevice()
    end = random_forest(np.random.default_rng(0), 12, 9, padding=5)
    mask = TreeMask.from_subtree_end(end)
    q, k, v, dout = inputs(mask.n, device)
    out = tree_attention(q, k, v, mask, backend="dense")
    right = (out.detach(), *torch.autograd.grad(out, (q, k, v), dout))
    reference = SampledReference.of(q, k, v, dout, mask, kv_head)
    assert max(reference.errors(*right).values()) < 1e-5
    for name, place in zip(("out", "dq", "dk", "dv"), range(4), strict=True):
        wrong = [x.clone() for x in right]
        wrong[place] = wrong[place] * 1.01
        errors = reference.errors(*wrong)
        assert errors.pop(name) > 5e-3 and max(errors.values()) < 1e-5
    assert reference.errors(right[0] * float("nan"), *right[1:])["out"] == float("inf")


def test_a_provider_that_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    import benchmarks.gpu_attention as gpu_attention

    def wrong(tree: Any, device: Any, libraries: Any) -> Any:
        ready = PROVIDERS["dense"](tree, device, libraries)
        return replace(ready, attend=lambda: ready.attend() * 1.001)

    def missing(tree: Any, device: Any, libraries: Any) -> Any:
        raise CannotRun("not installed: flash_attn")

    def broken(tree: Any, device: Any, libraries: Any) -> Any:
        raise KeyError("x")

    few = {"dense": PROVIDERS["dense"], "wrong": wrong, "flash": missing, "broken": broken}
    monkeypatch.setattr(gpu_attention, "PROVIDERS", few)
    tree = trees_to_time([], True)[0]
    rows = gpu_attention.time_attention(tree, DryDevice(), DryLibraries(), set(), float("inf"))
    by_name = {row["provider"]: row for row in rows}
    assert by_name["dense"]["both_tflops"] > 0 and "reason" not in by_name["dense"]
    assert "wrong on this tree" in by_name["wrong"]["reason"]
    assert "both_tflops" not in by_name["wrong"]
    assert by_name["flash"]["reason"] == "not installed: flash_attn"
    assert by_name["broken"]["reason"].startswith("KeyError")
    late = gpu_attention.time_attention(tree, DryDevice(), DryLibraries(), {"dense"}, 0.0)
    reasons = [row["reason"] for row in late]
    assert reasons == ["failed its checks", *["no time left in the budget"] * 3]


def test_old_and_new_signatures_of_varlen_attn() -> None:
    seen: list[dict[str, Any]] = []

    def old(q, k, v, cu_q, cu_k, max_q, max_k, is_causal=False):
        seen.append({"is_causal": is_causal, "heads": k.shape[1]})
        return q

    def new(q, k, v, cu_q, cu_k, max_q, max_k, *, window_size=None, enable_gqa=False):
        seen.append({"window_size": window_size, "gqa": enable_gqa, "heads": k.shape[1]})
        return q

    q, k = torch.zeros(5, 4, 8), torch.zeros(5, 2, 8)
    for function in (old, new):
        torch_varlen(function)(q, k, k, torch.zeros(2), torch.zeros(2), 5, 5)
    assert seen == [
        {"is_causal": True, "heads": 4},
        {"window_size": (-1, 0), "gqa": True, "heads": 2},
    ]


def test_a_library_that_is_missing_says_so() -> None:
    with pytest.raises(CannotRun, match="not installed"):
        Libraries().varlen("flash3")


def test_paths_of_nodes() -> None:
    mask = TreeMask.from_subtree_end(caterpillar(turns=3, turn=4, branch=2, branch_first=True))
    paths, cu_q, cu_k, longest_q, longest_k = paths_of_nodes(mask)
    seen = visible(mask.on_host)
    queries, keys = cu_q.tolist(), cu_k.tolist()
    for node in range(len(queries) - 1):
        last = queries[node + 1] - 1
        assert paths[keys[node] : keys[node + 1]].tolist() == np.flatnonzero(seen[last]).tolist()
    assert (longest_q, longest_k) == (6, 14)  # the last turn and its only branch are one node


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


def test_flash_refuses_a_tree() -> None:
    gpu_steps._add_flash(DryLibraries())
    try:
        mask = TreeMask.from_subtree_end(subtree_end_of([(-1, 3), (0, 2), (0, 2)]))
        q, k, v, _ = inputs(mask.n, DryDevice())
        with pytest.raises(ValueError, match="flat rows only"):
            tree_attention(q, k, v, mask, backend="flash")
    finally:
        del BACKENDS["flash"]


def test_made_up_rows_fill_several_trees() -> None:
    rows = gpu_steps.step_rows([])
    batches = gpu_steps.step_batches(rows)
    assert rows.n_tokens > 2 * sum(batch.layout.n_tokens for batch in batches["tree"])
    assert sum(batch.layout.n_tokens for batch in batches["flat"]) == rows.n_tokens
