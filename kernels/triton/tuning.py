"""Tile sizes by trial: the fastest of a few configurations on the user's own tree and device.

Notable:
- an option: the defaults need no trial; pass what this returns as ``configs``
- kept for the process by device, dtype, head dim and heads a key head, not by tree: tiles that suit
  one tree of a batch suit the others
- a configuration that the device has no room for, or that Triton cannot compile, drops out
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.triton.configs import PASSES, Config, Pass
from kernels.triton.launch import Configs, IntervalMask
from kernels.triton.tree import device_configs, triton_tree_attention

CANDIDATES: dict[Pass, tuple[Config, ...]] = {
    "forward": (
        Config(128, 64, 8, 3),
        Config(128, 64, 4, 3),
        Config(128, 128, 8, 2),
        Config(128, 64, 8, 3, specialize=True),
        Config(64, 64, 4, 2),
    ),
    "dq": (
        Config(128, 64, 8, 3),
        Config(128, 64, 8, 2),
        Config(128, 32, 8, 3),
        Config(64, 64, 4, 2),
        Config(128, 64, 8, 2, specialize=True),
    ),
    "dkv": (
        Config(64, 128, 8, 3),
        Config(64, 128, 8, 2),
        Config(32, 128, 8, 3),
        Config(32, 64, 4, 3),
        Config(64, 64, 4, 2),
    ),
}

Timer = Callable[[Callable[[], object]], float]
_tuned: dict[tuple[object, ...], dict[Pass, Config]] = {}


def tuned_configs(
    q: Tensor, k: Tensor, v: Tensor, mask: IntervalMask, timer: Timer | None = None
) -> Configs:
    """The fastest configuration of each pass for inputs like these; tried once, then kept.

    q ``(B, Hq, N, D)``, k and v ``(B, Hkv, N, D)`` as in ``triton_tree_attention``.
    timer: seconds (or any cost) of a call; CUDA events by default.
    Raises RuntimeError without a GPU, where times of the kernels mean nothing.
    """
    if timer is None:
        if q.device.type != "cuda":
            raise RuntimeError("tiles are tuned by timing them, which needs an NVIDIA GPU")
        timer = _cuda_seconds
    group = q.shape[1] // k.shape[1]
    name = torch.cuda.get_device_name(q.device) if q.device.type == "cuda" else q.device.type
    key = (name, q.dtype, q.shape[3], group)
    if key not in _tuned:
        best = device_configs(q.device, q.dtype, q.shape[3], group)
        for which in PASSES:
            best[which] = _fastest(which, best, (q, k, v), mask, timer)
        _tuned[key] = best
    return _tuned[key]


def _fastest(
    which: Pass,
    best: dict[Pass, Config],
    inputs: tuple[Tensor, Tensor, Tensor],
    mask: IntervalMask,
    timer: Timer,
) -> Config:
    """Tries the default of a pass and its candidates, the other passes as they are in ``best``."""
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources

    q, k, v = (x.detach().requires_grad_() for x in inputs)
    dout = torch.randn_like(q)
    costs: dict[Config, float] = {}
    for config in (best[which], *CANDIDATES[which]):
        configs = {**best, which: config}

        def run(configs: Configs = configs) -> None:
            out = triton_tree_attention(q, k, v, mask, configs=configs)
            if which != "forward":
                torch.autograd.grad(out, (q, k, v), dout)

        if config not in costs:
            try:
                costs[config] = timer(run)
            except (OutOfResources, CompilationError, RuntimeError):
                if config == best[which]:
                    raise
    return min(costs, key=lambda config: costs[config])


def _cuda_seconds(call: Callable[[], object], runs: int = 7) -> float:
    """Median seconds of a call on the current device, the first two thrown away."""
    seconds: list[float] = []
    for _ in range(runs + 2):
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return sorted(seconds[2:])[runs // 2]
