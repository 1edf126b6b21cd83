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
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_trees import layouts, read_rows
from kernels.model.micro_batches import MicroBatch, flat_batches, tree_batches
from kernels.model.model import build_model
from kernels.model.optimizer import adamw
from kernels.model.step import StepData, StepOptions, train_step
from packing.packers.flat import split_micro_batches
from packing.rows import Rows
from packing.spec import MicroBatchSpec

CAP = 16_384
TOKENS = 8 * CAP
REPEATS = 3
MODES = {"tree_triton": "triton", "flat_triton": "triton", "tree_flex": "flex"}


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


def step_batches(rows: Rows, cap: int = CAP) -> dict[str, list[MicroBatch]]:
    """Micro-batches of the rows as trees and flat, by the first word of a mode."""
    flat = split_micro_batches(rows.lengths, MicroBatchSpec(max_tokens_per_mb=cap))
    return {
        "tree": tree_batches(layouts(rows, cap), cap),
        "flat": flat_batches(rows, flat.groups, multiple=256),
    }


def time_steps(
    model_name: str, golden: Sequence[Path], device: torch.device, wrong: set[str], end: float
) -> list[dict[str, Any]]:
    """A row for each mode, as ``time_attention`` gives them."""
    rows = step_rows(golden)
    batches = step_batches(rows)
    vocabulary = int(rows.tokens.max()) + 1
    model = build_model(
        model_name, vocab_at_least=vocabulary, dtype="bfloat16", device=device,
        gradient_checkpointing=True,
    )  # fmt: skip
    model.train()
    optimizer = adamw(model)
    zeros = np.zeros(rows.n_tokens, dtype=np.float32)
    data = StepData.of(rows, zeros, np.ones_like(zeros))
    results = []
    for mode, backend in MODES.items():
        row: dict[str, Any] = {"mode": mode, "model": model_name, "rows": len(rows)}
        row["tokens"] = rows.n_tokens
        chosen = batches[mode.split("_")[0]]
        row["micro_batches"] = len(chosen)
        row["computed_tokens"] = sum(batch.padded_tokens for batch in chosen)
        if backend in wrong:
            results.append({**row, "reason": "failed its checks"})
            continue
        try:
            steps = []
            for _ in range(1 + REPEATS):
                if time.monotonic() > end:
                    break
                options = StepOptions(objective="sft", backend=backend)
                steps.append(train_step(model, optimizer, chosen, data, options))
        except RuntimeError as error:
            results.append({**row, "reason": f"{type(error).__name__}: {error}"[:300]})
            continue
        if len(steps) < 2:
            results.append({**row, "reason": "no time left in the budget"})
            continue
        seconds = [step.total_s for step in steps[1:]]
        last = steps[-1].micro_batches
        results.append({
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
        })  # fmt: skip
    return results
