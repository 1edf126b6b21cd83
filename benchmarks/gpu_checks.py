"""Every backend against float32 dense attention: outputs and gradients, on awkward forests.

Notable:
- an error is the largest difference over the largest reference value; TF32 is off
- tolerances: float32 1e-4, float16 5e-3, bfloat16 4e-2 (rounding of P and dS to the dtype)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.gpu_trees import agent_turns, prompt_groups, random_nodes, tree_of_nodes
from kernels.attention.mask import TreeMask
from kernels.attention.registry import BACKENDS, tree_attention, unavailable

TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}

FLEX_CASES = ("prompts", "branch at 60 mod 64")


@dataclass(frozen=True)
class GpuCase:
    """subtree_end int32 ``(N,)``; ``q_heads`` and ``kv_heads`` of ``head_dim``."""

    name: str
    subtree_end: npt.NDArray[np.int32]
    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype


def cases(device: torch.device) -> list[GpuCase]:
    """Few and tiny on a CPU, where the interpreter runs; all head dims and dtypes on a GPU."""
    # A branch that starts at 60 (mod 64) and fills a tile of 128: AReaL's kernel loses dK here.
    residue = tree_of_nodes("branch at 60 mod 64", [(-1, 40), (0, 84), (0, 300)])
    if device.type == "cpu":
        small = agent_turns("agent", 19, 2, 2, 9, 5)
        padded = np.concatenate([small.subtree_end, np.zeros(7, dtype=np.int32)])
        return [
            GpuCase("agent, padded", padded, 4, 1, 64, torch.float32),
            GpuCase("agent, padded", padded, 2, 2, 128, torch.float16),
            GpuCase(residue.name, residue.subtree_end, 1, 1, 64, torch.float32),
        ]
    agent = agent_turns("agent", 301, 3, 5, 61, 47)
    padded = np.concatenate([agent.subtree_end, np.zeros(77, dtype=np.int32)])
    prompts = prompt_groups("prompts", 3, 5, 130, 71).subtree_end
    nodes = random_nodes("500 nodes", 500, 3).subtree_end
    half, brain, full = torch.float16, torch.bfloat16, torch.float32
    chosen = [
        GpuCase("agent, padded", padded, heads, kv_heads, head_dim, dtype)
        for head_dim, heads, kv_heads, dtypes in (
            (64, 4, 4, (brain, full)),
            (96, 6, 2, (brain,)),
            (128, 8, 2, (brain, half, full)),
            (256, 8, 1, (brain, half)),
        )
        for dtype in dtypes
    ]
    return [
        *chosen,
        GpuCase("prompts", prompts, 32, 8, 128, torch.bfloat16),
        GpuCase("prompts, group 7", prompts, 14, 2, 128, torch.bfloat16),
        GpuCase("500 nodes", nodes, 8, 2, 128, torch.bfloat16),
        GpuCase(residue.name, residue.subtree_end, 4, 4, 128, torch.bfloat16),
        GpuCase("one token", np.array([1], dtype=np.int32), 4, 1, 128, torch.bfloat16),
    ]


def check_backends(device: torch.device) -> list[dict[str, Any]]:
    """A row for each case and backend; ``ok`` is None, with a reason, where it cannot run."""
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = []
    for case in cases(device):
        mask = TreeMask.from_subtree_end(case.subtree_end, device)
        x = _inputs(case, device)
        want = _results(x, mask, "dense", torch.float32)
        for backend in (name for name in BACKENDS if name != "dense"):
            rows.append(_check(case, backend, x, mask, want))
            if backend == "triton" and rows[-1]["ok"] and device.type == "cuda":
                rows[-1]["same_bits"] = _same_bits(case, x, mask)
                rows[-1]["ok"] = rows[-1]["same_bits"]
    return rows


def _check(
    case: GpuCase, backend: str, x: list[Tensor], mask: TreeMask, want: list[Tensor]
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "case": case.name,
        "backend": backend,
        "tokens": mask.n,
        "heads": f"{case.q_heads}/{case.kv_heads}",
        "head_dim": case.head_dim,
        "dtype": str(case.dtype).removeprefix("torch."),
    }
    reason = unavailable(backend, mask.device, case.dtype, case.head_dim, mask.n)
    if reason is None and backend == "flex" and case.name not in FLEX_CASES:
        reason = "left out: FlexAttention takes 10 s or more to compile for each shape"
    if reason is not None:
        return {**row, "ok": None, "reason": reason}
    try:
        got = _results(x, mask, backend, case.dtype)
    except Exception as error:  # one backend's fault must not hide what the others do
        return {**row, "ok": False, "reason": f"{type(error).__name__}: {error}"[:300]}
    errors = [_error(a, b) for a, b in zip(got, want, strict=True)]
    padding = [a[:, :, mask.n_real :] for a in got]
    ok = max(errors) < TOLERANCE[case.dtype] and all(bool((p == 0).all()) for p in padding)
    return {**row, "ok": ok, **dict(zip(("out", "dq", "dk", "dv"), errors, strict=True))}


def _same_bits(case: GpuCase, x: list[Tensor], mask: TreeMask) -> bool:
    """Whether two runs of our kernels give the same bits."""
    first, second = (_results(x, mask, "triton", case.dtype) for _ in range(2))
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _inputs(case: GpuCase, device: torch.device) -> list[Tensor]:
    """q, k, v and dout, normal, rounded to the case's dtype, laid out as models hand them over."""
    generator = torch.Generator().manual_seed(0)
    n = len(case.subtree_end)
    shapes = [(1, n, h, case.head_dim) for h in (case.q_heads, case.kv_heads, case.kv_heads)]
    made = [torch.randn(shape, generator=generator) for shape in [*shapes, shapes[0]]]
    return [x.to(device=device, dtype=case.dtype).transpose(1, 2) for x in made]


def _results(x: list[Tensor], mask: TreeMask, backend: str, dtype: torch.dtype) -> list[Tensor]:
    q, k, v = (t.detach().to(dtype).requires_grad_() for t in x[:3])
    out = tree_attention(q, k, v, mask, backend=backend)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), x[3].to(dtype))]


def _error(got: Tensor, want: Tensor) -> float:
    if not bool(torch.isfinite(got).all()):
        return float("inf")
    return float((got.float() - want).abs().max() / want.abs().max().clamp_min(1e-30))
