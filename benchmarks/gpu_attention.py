"""Times of attention on a GPU: ours, FlexAttention, the same rows unshared, plain causal.

Notable:
- 32 query heads, 8 key heads of 128, bfloat16; forward and backward by CUDA events, the L2 cache
  flushed before each run; 20th, 50th and 80th percentile
- TFLOP/s count visible pairs only (4 D a pair and head forward, 2.5 times that backward), so
  masked work inside tiles counts against a kernel
- flash_rows runs the tree's own rows unshared, as many as give the tree's mask area: what a flat
  batch would reach on the same work
- causal_* runs one causal sequence of as many tokens: the ceiling, of another (larger) area
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu_trees import GpuTree
from kernels.attention.flex import tree_block_mask
from kernels.attention.mask import TreeMask
from kernels.attention.registry import tree_attention, unavailable
from kernels.triton.tree import triton_tree_attention
from kernels.triton.tuning import tuned_configs

Q_HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
DTYPE = torch.bfloat16
RUNS, SECONDS_EACH = 20, 1.0
L2_BYTES = 256 * 2**20


class CannotRun(RuntimeError):
    """This provider cannot run here; the message says why."""


@dataclass(frozen=True, eq=False)
class PreparedTree:
    """attend: the forward over ``inputs`` (q, k, v); area: visible pairs; mask_s: making the mask;
    note: what else the row should say.
    """

    attend: Callable[[], Tensor]
    inputs: tuple[Tensor, Tensor, Tensor]
    dout: Tensor
    area: int
    mask_s: float
    note: str | None = None


def time_attention(
    trees: Sequence[GpuTree], device: torch.device, wrong: set[str], end: float
) -> list[dict[str, Any]]:
    """A row for each tree and provider; figures are None, with a reason, where there are none.

    wrong: backends that failed their checks; end: ``time.monotonic()`` to stop at.
    """
    rows = []
    for tree in trees:
        for name, prepare in PROVIDERS.items():
            row = {"tree": tree.name, "provider": name, "tokens": len(tree.subtree_end)}
            if name.split("_")[0] in wrong:
                rows.append({**row, "reason": "failed its checks"})
            elif time.monotonic() > end:
                rows.append({**row, "reason": "no time left in the budget"})
            else:
                rows.append({**row, **_timed(prepare, tree, device)})
            torch.cuda.empty_cache()
    return rows


def _timed(
    prepare: Callable[[GpuTree, torch.device], PreparedTree], tree: GpuTree, device: torch.device
) -> dict[str, Any]:
    try:
        ready = prepare(tree, device)
        forward, backward, peak = _measure(ready, device)
    except CannotRun as error:
        return {"reason": str(error)}
    except Exception as error:  # one provider's fault must not end the others' run
        return {"reason": f"{type(error).__name__}: {error}"[:300]}
    flops = 4.0 * HEAD_DIM * Q_HEADS * ready.area
    both = float(np.median(np.add(forward, backward)))
    return {
        "area": ready.area,
        "mask_ms": ready.mask_s * 1e3,
        **{f"forward_ms_p{p}": float(np.percentile(forward, p)) for p in (20, 50, 80)},
        **{f"backward_ms_p{p}": float(np.percentile(backward, p)) for p in (20, 50, 80)},
        "forward_tflops": flops / float(np.median(forward)) / 1e9,
        "backward_tflops": 2.5 * flops / float(np.median(backward)) / 1e9,
        "both_tflops": 3.5 * flops / both / 1e9,
        "runs": len(forward),
        "peak_mib": peak / 2**20,
        "note": ready.note,
    }


def _measure(ready: PreparedTree, device: torch.device) -> tuple[list[float], list[float], int]:
    """Milliseconds forward and backward of each run, and the peak bytes one run adds."""
    flush = torch.empty(L2_BYTES, dtype=torch.int8, device=device)
    for _ in range(2):
        torch.autograd.grad(ready.attend(), ready.inputs, ready.dout)
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    events: list[list[torch.cuda.Event]] = []
    start = time.monotonic()
    while len(events) < RUNS and (len(events) < 3 or time.monotonic() - start < SECONDS_EACH):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]  # type: ignore[no-untyped-call]
        flush.zero_()
        marks[0].record()
        out = ready.attend()
        marks[1].record()
        torch.autograd.grad(out, ready.inputs, ready.dout)
        marks[2].record()
        torch.cuda.synchronize(device)
        events.append(marks)
    peak = torch.cuda.max_memory_allocated(device) - before
    forward = [first.elapsed_time(second) for first, second, _ in events]
    return forward, [second.elapsed_time(third) for _, second, third in events], peak


def _inputs(n: int, device: torch.device) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """q, k, v and dout of n tokens, laid out ``(1, N, H, D)`` in memory as a model's are."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(heads: int) -> Tensor:
        shape = (1, n, heads, HEAD_DIM)
        x = torch.randn(shape, generator=generator, device=device, dtype=DTYPE)
        return x.transpose(1, 2)

    q, k, v = (normal(h).requires_grad_() for h in (Q_HEADS, KV_HEADS, KV_HEADS))
    return (q, k, v), normal(Q_HEADS)


def _mask(tree: GpuTree, device: torch.device) -> tuple[TreeMask, float]:
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    mask = TreeMask.from_subtree_end(tree.subtree_end, device)
    torch.cuda.synchronize(device)
    return mask, time.perf_counter() - start


def _backend(name: str) -> Callable[[GpuTree, torch.device], PreparedTree]:
    def prepare(tree: GpuTree, device: torch.device) -> PreparedTree:
        mask, seconds = _mask(tree, device)
        reason = unavailable(name, device, DTYPE, HEAD_DIM, mask.n)
        if reason is not None:
            raise CannotRun(reason)
        (q, k, v), dout = _inputs(mask.n, device)
        return PreparedTree(
            lambda: tree_attention(q, k, v, mask, backend=name),
            (q, k, v), dout, mask.mask_area, seconds,
        )  # fmt: skip

    return prepare


def _tuned(tree: GpuTree, device: torch.device) -> PreparedTree:
    """Our kernels with the tiles that are fastest here; trying them is not timed."""
    mask, seconds = _mask(tree, device)
    inputs, dout = _inputs(mask.n, device)
    configs = tuned_configs(*inputs, mask)
    note = ", ".join(
        f"{name} {c.rows}x{c.keys}/{c.warps}/{c.stages}" for name, c in configs.items()
    )
    return PreparedTree(
        lambda: triton_tree_attention(*inputs, mask, configs=configs),
        inputs, dout, mask.mask_area, seconds, note,
    )  # fmt: skip


@cache
def _flex(dynamic: bool) -> Callable[..., Any]:
    torch._dynamo.config.recompile_limit = 64  # past it FlexAttention runs unfused, tree by tree
    return torch.compile(flex_attention, dynamic=dynamic)


def _flex_ours(tree: GpuTree, device: torch.device) -> PreparedTree:
    """FlexAttention at its best: its BlockMask from the intervals, compiled for the very shape."""
    mask, seconds = _mask(tree, device)
    start = time.perf_counter()
    block_mask = tree_block_mask(mask)
    torch.cuda.synchronize(device)
    seconds += time.perf_counter() - start
    return _flex_prepared(block_mask, mask, seconds, device, dynamic=False)


def _flex_dense(tree: GpuTree, device: torch.device) -> PreparedTree:
    """FlexAttention as AReaL uses it: an N x N mask, read by the mask function; dynamic shapes."""
    mask, _ = _mask(tree, device)
    start = time.perf_counter()
    seen = mask.visible(slice(None), slice(None))

    def is_visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return seen[q, k]

    block_mask = create_block_mask(is_visible, None, None, mask.n, mask.n, device=str(device))
    torch.cuda.synchronize(device)
    seconds = time.perf_counter() - start
    return _flex_prepared(block_mask, mask, seconds, device, dynamic=True)


def _flex_prepared(
    block_mask: Any, mask: TreeMask, seconds: float, device: torch.device, dynamic: bool
) -> PreparedTree:
    (q, k, v), dout = _inputs(mask.n, device)
    return PreparedTree(
        lambda: _flex(dynamic)(q, k, v, block_mask=block_mask, enable_gqa=True),
        (q, k, v), dout, mask.mask_area, seconds,
    )  # fmt: skip


def _flash_rows(tree: GpuTree, device: torch.device) -> PreparedTree:
    """torch's flash attention over unshared rows that have the tree's mask area together."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError as error:
        raise CannotRun(f"this torch has no torch.nn.attention.varlen ({error})") from error
    lengths = rows_of_area(tree.row_lengths, TreeMask.from_subtree_end(tree.subtree_end).mask_area)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    (q, k, v), dout = _inputs(int(offsets[-1]), device)
    cu = torch.tensor(offsets, dtype=torch.int32, device=device)
    longest = int(lengths.max())

    def attend() -> Tensor:
        flat_q, flat_k, flat_v = (x[0].transpose(0, 1) for x in (q, k, v))
        out = varlen_attn(
            flat_q, flat_k, flat_v, cu, cu, longest, longest, window_size=(-1, 0), enable_gqa=True
        )
        assert isinstance(out, Tensor)  # no log-sum-exp was asked for
        return out.transpose(0, 1)[None]

    return PreparedTree(attend, (q, k, v), dout, int((lengths * (lengths + 1) // 2).sum()), 0.0)


def rows_of_area(row_lengths: np.ndarray, area: int) -> np.ndarray:
    """The rows in turn, again and again, the last cut, until their causal areas sum to ``area``."""
    areas = np.cumsum(row_lengths.astype(np.int64) * (row_lengths + 1) // 2)
    rounds, left = divmod(area, int(areas[-1]))
    whole = int(np.searchsorted(areas, left, side="right"))
    left -= int(areas[whole - 1]) if whole else 0
    last = int((np.sqrt(8.0 * left + 1) - 1) / 2)
    parts = [np.tile(row_lengths, rounds), row_lengths[:whole], np.array([last] if last else [])]
    return np.concatenate(parts).astype(np.int64)


def _causal(backend: SDPBackend) -> Callable[[GpuTree, torch.device], PreparedTree]:
    def prepare(tree: GpuTree, device: torch.device) -> PreparedTree:
        n = len(tree.subtree_end)
        (q, k, v), dout = _inputs(n, device)

        def attend() -> Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        return PreparedTree(attend, (q, k, v), dout, n * (n + 1) // 2, 0.0)

    return prepare


PROVIDERS: dict[str, Callable[[GpuTree, torch.device], PreparedTree]] = {
    "triton": _backend("triton"),
    "triton_tuned": _tuned,
    "flex_ours": _flex_ours,
    "flash_rows": _flash_rows,
    "causal_cudnn": _causal(SDPBackend.CUDNN_ATTENTION),
    "causal_flash": _causal(SDPBackend.FLASH_ATTENTION),
    "cascade": _backend("cascade"),
    "flex_dense": _flex_dense,
}
