"""Estimated memory against memory really used, and what must hold for every estimate."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from kernels.memory import MemoryCurve, MemoryEstimate, estimate_memory
from kernels.memory.live import LiveBytes
from kernels.memory.parts import FIRST, LATER, Layers, whole_step
from kernels.memory.trace import Target, TracedModel, TraceOptions, trace_step
from kernels.model import (
    PRESETS,
    DType,
    MicroBatch,
    ModelNotFound,
    StepData,
    StepOptions,
    TreeLM,
    UnsupportedModel,
    accumulate_gradients,
    adamw,
    build_model,
    flat_batches,
    train_step,
)
from packing.rows import Rows
from tests.kernels.layouts import one_tree

ROOT = Path(__file__).resolve().parents[3]
GIB = 2**30
QWEN3_8B = 8_190_735_360  # parameters, huggingface.co/Qwen/Qwen3-8B
TRUTH_TOKENS = 2_048
# half precision first: what oneDNN keeps belongs to the first steps that use it
CASES: list[tuple[DType, bool]] = [
    ("bfloat16", True), ("float32", False), ("float32", True)
]  # fmt: skip


def rows_of(n_tokens: int, branches: int = 1) -> Rows:
    """A prompt of a quarter of the tokens, if there are branches, and the rest divided."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(1, 1_000, n_tokens // 4 if branches > 1 else 0).tolist()
    rest = (n_tokens - len(prompt)) // branches
    return Rows.from_lists(
        [[*prompt, *rng.integers(1, 1_000, rest).tolist()] for _ in range(branches)]
    )


def data_of(rows: Rows) -> StepData:
    return StepData.of(rows, np.full(rows.n_tokens, -9.0), np.ones(rows.n_tokens))


def high_water_and_resident() -> tuple[int, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(found["VmHWM"]) * 1024, int(found["VmRSS"]) * 1024


def print_peaks() -> None:
    """What a process of its own really needs for the steps of ``small``, as the system says.

    A step of another model comes first: the libraries' code and buffers are no part of a step.
    """
    torch.set_num_threads(1)
    peaks = {}
    for dtype, checkpointing in CASES:
        rows = rows_of(TRUTH_TOKENS, branches=6)
        warm = rows_of(128, branches=2)
        model = build_model("tiny", dtype=dtype, gradient_checkpointing=checkpointing)
        batch = MicroBatch(one_tree(warm), 128)
        train_step(model, adamw(model, dtype=torch.float32), [batch, batch], data_of(warm))
        del model
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _, idle = high_water_and_resident()
        model = build_model("small", dtype=dtype, gradient_checkpointing=checkpointing)
        optimizer = adamw(model, dtype=torch.float32)
        train_step(model, optimizer, [batch], data_of(warm))  # the optimizer's states exist
        Path("/proc/self/clear_refs").write_text("5")
        batch = MicroBatch(one_tree(rows), TRUTH_TOKENS)
        train_step(model, optimizer, [batch, batch], data_of(rows))
        peaks[f"{dtype} {checkpointing}"] = high_water_and_resident()[0] - idle
        del model, optimizer
    print(json.dumps(peaks))


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_small_model_needs_what_is_estimated_within_ten_percent() -> None:
    # Freed blocks go back to the system at once, so that the allocator's spare ones do not count.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.memory.test_peak"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for dtype, checkpointing in CASES:
        estimate = estimate_memory(
            "small",
            TRUTH_TOKENS,
            dtype=dtype,
            gradient_checkpointing=checkpointing,
            device="cpu",
        )
        assert estimate.peak_bytes == pytest.approx(seen[f"{dtype} {checkpointing}"], rel=0.1)
        state = estimate.parts["parameters"] + estimate.parts["optimizer"]
        assert state < 0.5 * estimate.peak_bytes  # the step is what was estimated, not the state


@pytest.mark.parametrize("checkpointing", [False, True])
def test_live_bytes_have_the_peak_that_torch_itself_tracks(checkpointing: bool) -> None:
    tools = pytest.importorskip("torch.distributed._tools.mem_tracker")
    rows = rows_of(256)
    batches = flat_batches(rows, [[0]])
    options = StepOptions(backend="dense")

    def built() -> tuple[TreeLM, torch.optim.AdamW]:
        model = build_model("tiny", gradient_checkpointing=checkpointing)
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = built()
    tracker = tools.MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        accumulate_gradients(model, batches, data_of(rows), options)
        optimizer.step()
    expected = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]

    model, optimizer = built()
    live = LiveBytes()
    live.label([*model.parameters(), *model.buffers()], "parameters")
    live.phase = "all"
    with live:
        accumulate_gradients(model, batches, data_of(rows), options)
        optimizer.step()
    found = sum(live.take_peaks()["all"].whole.values())
    assert found == pytest.approx(expected, rel=0.005)


def test_a_storage_counts_once_and_until_nothing_refers_to_it() -> None:
    live = LiveBytes(granularity=512)
    with live:
        live.phase = "one"
        with live.making("buffers"):
            x = torch.zeros(100)  # 400 bytes
        y = x.view(10, 10)
        z = torch.zeros(1_000, dtype=torch.float64)
        del z
        live.phase = "two"
        w = torch.zeros(1)
        live.label([w], "gradients")
        del x, w
        v = torch.zeros(1)
    peaks = live.take_peaks()
    assert sum(peaks["one"].whole.values()) == 512 + 8_192
    assert peaks["one"].whole["buffers"] == 512
    assert sum(peaks["two"].whole.values()) == 1_024  # y keeps x alive
    assert live.take_peaks() == {}
    assert y.numel() == 100 and v.numel() == 1


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_deep_model_extrapolated_is_that_model_traced_whole(
    tmp_path: Path, checkpointing: bool
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PRESETS["tiny"] | {"num_hidden_layers": 7}))
    estimate = estimate_memory(str(path), 512, gradient_checkpointing=checkpointing)
    options = TraceOptions(
        "bfloat16", "float32", checkpointing, 1_024, "cuda", "espalier", "fsdp", True
    )
    traced = whole_step(Layers([trace_step(TracedModel.of(str(path)), 7, 512, options)], [7], 7))
    workspace = 32 * 2**20
    expected = max(sum(parts.values()) for parts in traced.values()) + workspace
    assert estimate.peak_bytes == pytest.approx(expected, rel=1e-4)
    assert sum(estimate.parts.values()) == estimate.peak_bytes


def test_a_config_that_changes_on_disk_is_traced_anew(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    sizes = []
    for inner in (192, 384):
        path.write_text(json.dumps(PRESETS["tiny"] | {"intermediate_size": inner}))
        sizes.append(estimate_memory(str(path), 256).parts["parameters"])
    assert sizes[1] - sizes[0] == 2 * 3 * 64 * 192 * 2  # layers, matrices, bfloat16


def test_qwen3_8b_at_32k_tokens_has_its_known_state() -> None:
    estimate = estimate_memory("qwen3-8b", 32_768, gradient_checkpointing=True)
    assert estimate.parts["parameters"] == pytest.approx(2 * QWEN3_8B, rel=1e-3)
    assert estimate.parts["gradients"] == pytest.approx(2 * QWEN3_8B, rel=1e-3)
    assert estimate.parts["optimizer"] == pytest.approx(12 * QWEN3_8B, rel=1e-3)
    first, later = (
        max(sum(parts.values()) for phase, parts in estimate.phases.items() if phase.endswith(name))
        for name in (FIRST, LATER)
    )
    grown = later - first
    assert 0 < grown <= 2 * QWEN3_8B * 1.001


def test_what_drives_memory_moves_the_part_that_it_drives() -> None:
    plain = estimate_memory("qwen3-0.6b", 4_096)
    checkpointed = estimate_memory("qwen3-0.6b", 4_096, gradient_checkpointing=True)
    assert checkpointed.peak_bytes < 0.7 * plain.peak_bytes
    narrow = estimate_memory("qwen3-0.6b", 4_096, head_chunk=512)
    assert narrow.parts["logits"] < plain.parts["logits"] - 2 * 512 * 151_936
    wide = estimate_memory("qwen3-0.6b", 4_096, vocab_at_least=300_000)
    assert wide.parts["parameters"] - plain.parts["parameters"] == pytest.approx(
        2 * 1_024 * (300_000 - 151_936), rel=1e-3
    )
    longer = estimate_memory("qwen3-0.6b", 8_192)
    assert longer.parts["activations"] == pytest.approx(2 * plain.parts["activations"], rel=0.01)


def test_state_is_divided_over_ranks_and_gathered_layers_are_counted() -> None:
    parts = {n: estimate_memory("qwen3-0.6b", 4_096, dp_size=n).parts for n in (2, 4)}
    for kind in ("parameters", "optimizer"):
        assert parts[2][kind] == pytest.approx(2 * parts[4][kind], rel=1e-6)
    assert parts[2]["optimizer"] == 2 * parts[2]["parameters"]
    assert parts[2]["gathered"] == parts[4]["gathered"] > 2 * 1_024 * 151_936


def test_areal_pays_for_its_mask_and_whole_logits() -> None:
    n = 16_384
    ours = estimate_memory("tiny", n, dp_size=2)
    theirs = estimate_memory("tiny", n, dp_size=2, target="areal")
    assert theirs.peak_at.startswith("the mask")
    assert theirs.parts["masks"] == pytest.approx(11 * n * n, rel=0.01)
    assert ours.parts["masks"] < 0.01 * n * n
    megatron = estimate_memory("tiny", n, dp_size=2, target="areal", engine="megatron")
    assert megatron.parts["masks"] == pytest.approx(11 * n * n, rel=0.01)
    assert "layer" in megatron.peak_at
    wide = estimate_memory("qwen3-0.6b", 4_096, dp_size=2, target="areal")
    assert wide.parts["logits"] >= 3 * 2 * 4_096 * 151_936


@pytest.mark.parametrize("target", ["areal", "areal-espalier", "espalier"])
def test_three_sizes_give_all_others(target: Target) -> None:
    def traced(n_tokens: int) -> MemoryEstimate:
        return estimate_memory("qwen3-0.6b", n_tokens, dp_size=2, target=target)

    curve = MemoryCurve.through(2_048, traced)
    for n_tokens in (3_072, 16_384):
        assert curve.at(n_tokens).peak_bytes == pytest.approx(traced(n_tokens).peak_bytes, rel=1e-3)
        assert curve.at(n_tokens).peak_at == traced(n_tokens).peak_at
    largest = curve.largest(80 * GIB)
    assert curve.at(largest).peak_bytes <= 80 * GIB < curve.at(largest + 1).peak_bytes
    assert curve.largest(1) == 0


def test_with_the_plugin_areals_engine_holds_the_state_and_ours_is_the_rest() -> None:
    inside = estimate_memory("qwen3-0.6b", 4_096, dp_size=2, target="areal-espalier")
    assert inside.parts == estimate_memory("qwen3-0.6b", 4_096, dp_size=2).parts
    alone, ours = (
        estimate_memory("qwen3-0.6b", 4_096, target=target)
        for target in ("areal-espalier", "espalier")
    )
    # on one rank too AReaL keeps parameters in the optimizer's dtype, and gathers layers
    assert alone.parts["parameters"] == pytest.approx(2 * ours.parts["parameters"], rel=1e-3)
    assert alone.parts["gathered"] > 0


def test_what_cannot_be_estimated_says_why(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        estimate_memory("no-such-model", 128)
    with pytest.raises(ValueError, match="n_tokens is 1; it must be at least 2"):
        estimate_memory("tiny", 1)
    with pytest.raises(ValueError, match="dp_size is 0; it must be at least 1"):
        estimate_memory("tiny", 128, dp_size=0)
    path = tmp_path / "config.json"  # its router reads numbers of tokens back from the device
    path.write_text(json.dumps(PRESETS["tiny"] | {"model_type": "jetmoe"}))
    with pytest.raises(UnsupportedModel, match="depends on the data"):
        estimate_memory(str(path), 128)


if __name__ == "__main__":
    print_peaks()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_dtype_for_model_and_optimizer_is_estimated_too(device: Literal["cpu", "cuda"]) -> None:
    """A fused optimizer step of one dtype makes no tensor; its phase is there all the same."""
    found = estimate_memory("tiny", 512, dtype="float32", optimizer_dtype="float32", device=device)
    state = found.parts["optimizer"]
    assert state >= 2 * found.parts["parameters"]
    assert found.peak_bytes >= state + found.parts["parameters"]
