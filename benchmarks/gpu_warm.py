"""What the GPU run compiles before it times anything: each kernel by a tiny call of its own.

Notable:
- a compiled kernel depends on tiles, head dim, dtype and heads a key head, not on the tree: a tiny
  tree warms Triton's cache on disk for all of them
- FlexAttention is compiled for the very shape: the headline trees are warmed as they are
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from benchmarks.gpu_device import CudaDevice, Device, DryDevice
from benchmarks.gpu_libraries import DryLibraries, Libraries
from benchmarks.gpu_providers import PROVIDERS, inputs
from benchmarks.gpu_trees import agent_turns, trees_to_time
from kernels.attention.mask import TreeMask
from kernels.triton.configs import PASSES
from kernels.triton.launch import Configs
from kernels.triton.tree import device_configs, fused_configs, triton_tree_attention
from kernels.triton.tuning import CANDIDATES

HEADLINES = 2


def warm(name: str, dry: bool) -> float:
    """Compiles what ``WARMED`` names; returns the seconds it took."""
    start = time.monotonic()
    device: Device = DryDevice() if dry else CudaDevice()
    WARMED[name](device, DryLibraries() if dry else Libraries())
    device.synchronize()
    return time.monotonic() - start


def _triton(
    choose: Callable[..., Configs], candidate: Configs | None = None
) -> Callable[[Device, Libraries], None]:
    """What ``choose`` gives, a pass of it as in ``candidate``; then the defaults of the tree."""

    def compile_it(device: Device, libraries: Libraries) -> None:
        tree = agent_turns("warm", 19, 2, 2, 9, 5)
        mask = TreeMask.from_subtree_end(tree.subtree_end, device.torch_device)
        q, k, v, dout = inputs(mask.n, device)
        group = q.shape[1] // k.shape[1]
        configs = choose(q.device, q.dtype, q.shape[3], group)
        for chosen in ({**configs, **(candidate or {})}, None):
            out = triton_tree_attention(q, k, v, mask, configs=chosen)
            torch.autograd.grad(out, (q, k, v), dout)

    return compile_it


def _flex(provider: str, nth: int) -> Callable[[Device, Libraries], None]:
    def compile_it(device: Device, libraries: Libraries) -> None:
        tree = trees_to_time([], device.torch_device.type == "cpu")[nth]
        ready = PROVIDERS[provider](tree, device, libraries)
        torch.autograd.grad(ready.attend(), ready.inputs, ready.dout)

    return compile_it


WARMED: dict[str, Callable[[Device, Libraries], None]] = {
    "triton defaults": _triton(device_configs),
    **{
        f"{provider} of headline {nth}": _flex(provider, nth)
        for nth in range(HEADLINES)
        for provider in ("flex_ours", "flex_areal", "flex_flash")
    },
    "triton fused": _triton(fused_configs),
    **{
        f"triton {which} {nth}": _triton(device_configs, {which: candidate})
        for which in PASSES
        for nth, candidate in enumerate(CANDIDATES[which])
    },
}
