"""Times of attention on one tree: ours, FlexAttention, the same rows unshared, plain causal.

Notable:
- 32 query heads, 8 key heads of 128, bfloat16; forward and backward by CUDA events, the L2 cache
  flushed before each run; 20th, 50th and 80th percentile
- what attends to the tree is compared on that very tree, output and gradients, before it is timed
  (``gpu_reference``): a row whose errors are too large has no times
- TFLOP/s count visible pairs only (4 D a pair and head forward, 2.5 times that backward), so
  masked work inside tiles counts against a kernel; making the mask and its lists is timed apart
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_checks import TOLERANCE
from benchmarks.gpu_device import Device, milliseconds
from benchmarks.gpu_libraries import CannotRun, Libraries
from benchmarks.gpu_providers import PROVIDERS, PreparedTree, inputs, tile_text
from benchmarks.gpu_reference import SampledReference
from benchmarks.gpu_trees import GpuTree
from kernels.attention.mask import TreeMask
from kernels.triton import launch
from kernels.triton.configs import Pass, heads_per_tile
from kernels.triton.tiles import visited_area
from tuning.plan.gpus import peak_tflops

SECONDS_EACH = 1.0


def time_attention(
    tree: GpuTree, device: Device, libraries: Libraries, wrong: set[str], end: float
) -> Iterator[dict[str, Any]]:
    """A row for each provider as it comes; figures are None, with a reason, where there are none.

    wrong: backends that failed their checks; end: ``time.monotonic()`` to stop at.
    """
    mask = TreeMask.from_subtree_end(tree.subtree_end, device.torch_device)
    q, k, v, dout = inputs(mask.n, device)
    references = [SampledReference.of(q, k, v, dout, mask, kv_head) for kv_head in (0, -1)]
    for name, prepare in PROVIDERS.items():
        row = {"tree": tree.name, "provider": name, "tokens": mask.n}
        if name.split("_")[0] in wrong:
            yield {**row, "reason": "failed its checks"}
        elif time.monotonic() > end:
            yield {**row, "reason": "no time left in the budget"}
        else:
            try:
                ready = prepare(tree, device, libraries)
                yield {**row, **_measured(ready, device, references)}
            except CannotRun as error:
                yield {**row, "reason": str(error)}
            except Exception as error:  # one provider's fault must not end the others' run
                yield {**row, "reason": f"{type(error).__name__}: {error}"[:300]}
        if device.torch_device.type == "cuda":
            torch.cuda.empty_cache()


def _measured(
    ready: PreparedTree, device: Device, references: list[SampledReference]
) -> dict[str, Any]:
    dtype = str(device.dtype).removeprefix("torch.")
    row: dict[str, Any] = {
        "area": ready.area,
        "heads": device.heads[0],
        "head_dim": device.head_dim,
        "dtype": dtype,
        "mask_ms": ready.mask_ms,
        "note": ready.note,
    }
    out = ready.attend()
    grads = torch.autograd.grad(out, ready.inputs, ready.dout)
    if ready.of_tree:
        found = [reference.errors(out.detach(), *grads) for reference in references]
        row |= {f"{name}_error": max(errors[name] for errors in found) for name in found[0]}
        worst = max(max(errors.values()) for errors in found)
        if not worst < TOLERANCE[device.dtype]:
            return {**row, "reason": f"wrong on this tree: its largest error is {worst:.2g}"}
    del out, grads
    forward = milliseconds(device, ready.attend, device.runs, SECONDS_EACH)
    both = milliseconds(device, lambda: _both(ready), device.runs, SECONDS_EACH)
    flops = 4.0 * device.head_dim * device.heads[0] * ready.area
    forward_ms, both_ms = float(np.median(forward)), float(np.median(both))
    backward_ms = max(both_ms - forward_ms, 1e-9)
    peak = peak_tflops(str(device.about()["device"]), dtype)
    both_tflops = 3.5 * flops / both_ms / 1e9
    return row | {
        **{f"forward_ms_p{p}": float(np.percentile(forward, p)) for p in (20, 50, 80)},
        **{f"both_ms_p{p}": float(np.percentile(both, p)) for p in (20, 50, 80)},
        "forward_tflops": flops / forward_ms / 1e9,
        "backward_tflops": 2.5 * flops / backward_ms / 1e9,
        "both_tflops": both_tflops,
        "share_of_peak": both_tflops / peak if peak else None,
        "runs": len(both),
        "peak_mib": device.peak_bytes(lambda: _both(ready)) / 2**20,
        **(_passes(ready, device) if ready.configs is not None else {}),
    }


def _both(ready: PreparedTree) -> None:
    torch.autograd.grad(ready.attend(), ready.inputs, ready.dout)


def _passes(ready: PreparedTree, device: Device) -> dict[str, float | str]:
    """Milliseconds of each of our kernels alone, its tile and which share of its tiles is visible.

    Read by ``tuning.measure.gpu_run``.
    """
    assert ready.configs is not None and ready.mask is not None
    q, k, v = (x.detach() for x in ready.inputs)
    configs, mask, scale = ready.configs, ready.mask, q.shape[3] ** -0.5
    out, lse = launch.forward(q, k, v, mask, scale, configs["forward"])
    calls: dict[Pass, Callable[[], object]] = {
        "forward": lambda: launch.forward(q, k, v, mask, scale, configs["forward"]),
    }
    saved = (q, k, v, out, lse)
    if "dqkv" in configs:
        calls["dqkv"] = lambda: launch.backward(saved, ready.dout, mask, scale, configs)
    else:
        dq, delta = launch.dq_pass(saved, ready.dout, mask, scale, configs["dq"])
        calls["dq"] = lambda: launch.dq_pass(saved, ready.dout, mask, scale, configs["dq"])
        calls["dkv"] = lambda: launch.dkv_pass(
            saved, ready.dout, delta, mask, scale, configs["dkv"], dq
        )
    found: dict[str, float | str] = {}
    for name, call in calls.items():
        config = configs[name]
        pack = heads_per_tile(q.shape[1] // k.shape[1], config.rows)
        visited = launch.of_mask(visited_area, mask, config.rows // pack, config.keys)
        times = milliseconds(device, call, device.runs, SECONDS_EACH)
        found[f"kernel_{name}_ms"] = float(np.median(times))
        found[f"kernel_{name}_tile"] = tile_text(config)
        found[f"kernel_{name}_efficiency"] = ready.area / visited
    return found
