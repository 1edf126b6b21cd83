"""Whole training steps on a GPU: as trees with each backend, and as flat rows.

Notable:
- random weights, bfloat16, AdamW, gradient checkpointing; the rows are of the first golden file,
  or made up: 8 prompts of 1,200 tokens with 8 completions each
- speed is original tokens a second: what the batch holds, not what was packed or padded
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu_device import Device
from benchmarks.gpu_libraries import Libraries
from benchmarks.gpu_trees import layouts, read_rows
from kernels.attention.mask import TreeMask
from kernels.attention.registry import BACKENDS, AttentionBackend
from kernels.model.micro_batches import MicroBatch, flat_batches, tree_batches
from kernels.model.model import DType, build_model
from kernels.model.optimizer import adamw
from kernels.model.step import StepData, StepOptions, StepResult, train_step
from packing.packers.flat import split_micro_batches
from packing.rows import Rows
from packing.spec import MicroBatchSpec

CAP = 16_384
TOKENS = 8 * CAP
REPEATS = 3
DRY_CAP = 128
# Mode to layout and backend, in the order they are timed.
MODES = {
    "tree_triton": ("tree", "triton"),
    "flat_flash": ("flat", "flash"),
    "tree_flex": ("tree", "flex"),
    "flat_triton": ("flat", "triton"),
}


def step_rows(golden: Sequence[Path]) -> Rows:
    """Rows of about ``TOKENS`` tokens, none longer than ``CAP``."""
    if golden:
        rows = read_rows(golden[0]).truncated(CAP)
        return rows.take(np.flatnonzero(np.cumsum(rows.lengths) <= TOKENS))
    rng = np.random.default_rng(0)
    made, groups = [], []
    for group in range(8):
        prompt = rng.integers(0, 150_000, 1_200)
        for _ in range(8):
            made.append(np.append(prompt, rng.integers(0, 150_000, rng.integers(300, 900))))
            groups.append(group)
    return Rows.from_lists(made, groups)


def tiny_rows() -> Rows:
    """Rows of a dry run: one prompt with four completions."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 900, 20)
    return Rows.from_lists([np.append(prompt, rng.integers(0, 900, 9)) for _ in range(4)], [0] * 4)


def step_batches(rows: Rows, cap: int = CAP) -> dict[str, list[MicroBatch]]:
    """Micro-batches of the rows as trees and flat, by the first word of a mode."""
    flat = split_micro_batches(rows.lengths, MicroBatchSpec(max_tokens_per_mb=cap))
    return {
        "tree": tree_batches(layouts(rows, cap), cap),
        "flat": flat_batches(rows, flat.groups, multiple=256),
    }


def time_mode(
    mode: str,
    model_name: str,
    golden: Sequence[Path],
    device: Device,
    libraries: Libraries,
    wrong: set[str],
    end: float,
) -> dict[str, Any]:
    """The row of one mode; figures are None, with a reason, where there are none."""
    dry = device.torch_device.type == "cpu"
    rows = tiny_rows() if dry else step_rows(golden)
    layout, backend = MODES[mode]
    chosen = step_batches(rows, DRY_CAP if dry else CAP)[layout]
    model_name = "tiny" if dry else model_name
    row: dict[str, Any] = {
        "mode": mode,
        "model": model_name,
        "rows": len(rows),
        "tokens": rows.n_tokens,
        "micro_batches": len(chosen),
        "computed_tokens": sum(batch.padded_tokens for batch in chosen),
    }
    if backend in wrong:
        return {**row, "reason": "failed its checks"}
    _add_flash(libraries)
    model = build_model(
        model_name,
        vocab_at_least=int(rows.tokens.max()) + 1,
        dtype=cast(DType, str(device.dtype).removeprefix("torch.")),
        device=device.torch_device,
        gradient_checkpointing=True,
    )
    model.train()
    optimizer = adamw(model)
    zeros = np.zeros(rows.n_tokens, dtype=np.float32)
    data = StepData.of(rows, zeros, np.ones_like(zeros))
    options = StepOptions(objective="sft", backend=backend)
    steps: list[StepResult] = []
    times: list[float] = []
    for _ in range(1 + (1 if dry else REPEATS)):
        if time.monotonic() > end:
            break
        device.synchronize()
        start = device.mark()
        steps.append(train_step(model, optimizer, chosen, data, options))
        times.append(device.elapsed_ms(start, device.mark()) / 1e3)
    if len(steps) < 2:
        return {**row, "reason": "no time left in the budget"}
    seconds = times[1:]  # the first step warms up
    last = steps[-1].micro_batches
    return {
        **row,
        "step_s_p50": float(np.median(seconds)),
        "step_s_min": min(seconds),
        "step_s_max": max(seconds),
        "tokens_per_s": rows.n_tokens / float(np.median(seconds)),
        "forward_s": sum(x.forward_s for x in last),
        "backward_s": sum(x.backward_s for x in last),
        "optimizer_s": steps[-1].optimizer_s,
        "peak_gib": max(x.peak_allocated or 0 for x in last) / 2**30,
        "loss": steps[-1].loss,
    }


def _add_flash(libraries: Libraries) -> None:
    """A backend of rows that share nothing: torch's flash attention over their lengths."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float) -> Tensor:
        nodes = mask.nodes
        if (nodes.parent >= 0).any():
            raise ValueError("flash attends to flat rows only; this mask has branches")
        offsets = np.append(nodes.start, mask.n_real)
        cu = torch.tensor(offsets, dtype=torch.int32, device=q.device)
        longest = int((nodes.stop - nodes.start).max())
        flat_q, flat_k, flat_v = (x[0].transpose(0, 1)[: mask.n_real] for x in (q, k, v))
        out = libraries.varlen("torch")(flat_q, flat_k, flat_v, cu, cu, longest, longest)
        padding = (0, 0, 0, 0, 0, mask.n - mask.n_real)
        return torch.nn.functional.pad(out, padding).transpose(0, 1)[None]

    BACKENDS["flash"] = AttentionBackend(
        "flash", "torch's varlen flash attention", lambda *needs: None, composed=attend
    )
