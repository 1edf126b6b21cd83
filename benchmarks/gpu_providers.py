"""Who can attend to a tree, or do the same work without one: the providers of the GPU run.

Notable:
- flash_* run the tree's own rows unshared, as many as give the tree's mask area: what a flat batch
  would reach on the same work
- gather_* are TRL's way: each node's queries against a copy of its path's keys and values
- causal_* run one causal sequence of as many tokens: the ceiling, of another (larger) area
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu_device import Device
from benchmarks.gpu_libraries import CannotRun, Libraries
from benchmarks.gpu_trees import GpuTree
from kernels.attention.flex import tree_block_mask
from kernels.attention.mask import TreeMask
from kernels.attention.registry import tree_attention, unavailable
from kernels.triton.configs import Config, Pass
from kernels.triton.tree import device_configs, fused_configs, triton_tree_attention
from kernels.triton.tuning import tuned_configs

DENSE_BYTES = 4 * 2**30


@dataclass(frozen=True, eq=False)
class PreparedTree:
    """attend: the forward over ``inputs`` (q, k, v); area: visible pairs; mask_ms: making the mask
    and its lists; of_tree: whether it attends to the tree itself; configs: tiles, if it is ours.
    """

    attend: Callable[[], Tensor]
    inputs: tuple[Tensor, Tensor, Tensor]
    dout: Tensor
    area: int
    mask_ms: float = 0.0
    of_tree: bool = True
    note: str | None = None
    mask: TreeMask | None = None
    configs: Mapping[Pass, Config] | None = None


Prepare = Callable[[GpuTree, Device, Libraries], PreparedTree]


def inputs(n: int, device: Device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v and dout of n tokens, laid out ``(1, N, H, D)`` in memory as a model's are."""
    generator = torch.Generator(device.torch_device).manual_seed(0)

    def normal(heads: int) -> Tensor:
        shape = (1, n, heads, device.head_dim)
        where = {"device": device.torch_device, "dtype": device.dtype}
        return torch.randn(shape, generator=generator, **where).transpose(1, 2)  # type: ignore[call-overload,no-any-return]

    q_heads, kv_heads = device.heads
    q, k, v = (normal(heads).requires_grad_() for heads in (q_heads, kv_heads, kv_heads))
    return q, k, v, normal(q_heads)


def _timed_mask(
    tree: GpuTree, device: Device, finish: Callable[[TreeMask], Any]
) -> tuple[TreeMask, Any, float]:
    """A new mask of the tree, what ``finish`` makes of it, and the milliseconds of both."""
    device.synchronize()
    start = device.mark()
    mask = TreeMask.from_subtree_end(tree.subtree_end, device.torch_device)
    made = finish(mask)
    return mask, made, device.elapsed_ms(start, device.mark())


def _ours(choose: Callable[..., Mapping[Pass, Config]]) -> Prepare:
    """Our kernels; their lists are made by the first call, which is timed with the mask."""

    def prepare(tree: GpuTree, device: Device, libraries: Libraries) -> PreparedTree:
        mask = TreeMask.from_subtree_end(tree.subtree_end, device.torch_device)
        q, k, v, dout = inputs(mask.n, device)
        reason = unavailable("triton", device.torch_device, device.dtype, device.head_dim, mask.n)
        if reason is not None:
            raise CannotRun(reason)
        configs = choose(q, k, v, mask, device)

        def attend(mask: TreeMask = mask) -> Tensor:
            return triton_tree_attention(q, k, v, mask, configs=configs)

        torch.autograd.grad(attend(), (q, k, v), dout)  # compiled before the lists are timed
        both = [_timed_mask(tree, device, lambda m: _run(attend, m, (q, k, v), dout)) for _ in "12"]
        again = milliseconds_of(device, lambda: _run(attend, mask, (q, k, v), dout))
        note = ", ".join(f"{name} {tile_text(config)}" for name, config in configs.items())
        return PreparedTree(
            attend, (q, k, v), dout, mask.mask_area, max(0.0, both[1][2] - again),
            note=note, mask=mask, configs=configs,
        )  # fmt: skip

    return prepare


def tile_text(config: Config) -> str:
    """``rows x keys / warps / stages``, and whether loads have warps of their own."""
    special = "/specialized" * config.specialize
    return f"{config.rows}x{config.keys}/{config.warps}/{config.stages}{special}"


def milliseconds_of(device: Device, call: Callable[[], object]) -> float:
    device.synchronize()
    start = device.mark()
    call()
    return device.elapsed_ms(start, device.mark())


def _run(
    attend: Callable[[TreeMask], Tensor],
    mask: TreeMask,
    given: tuple[Tensor, ...],
    dout: Tensor,
) -> None:
    torch.autograd.grad(attend(mask), given, dout)


def _default(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, device: Device) -> Any:
    return device_configs(q.device, q.dtype, q.shape[3], q.shape[1] // k.shape[1], mask)


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, device: Device) -> Any:
    return fused_configs(q.device, q.dtype, q.shape[3], q.shape[1] // k.shape[1])


def _tuned(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, device: Device) -> Any:
    return tuned_configs(q, k, v, mask, lambda call: milliseconds_of(device, call))


def _cascade(tree: GpuTree, device: Device, libraries: Libraries) -> PreparedTree:
    mask, _, ms = _timed_mask(tree, device, lambda mask: None)
    q, k, v, dout = inputs(mask.n, device)
    return PreparedTree(
        lambda: tree_attention(q, k, v, mask, backend="cascade"),
        (q, k, v), dout, mask.mask_area, ms,
    )  # fmt: skip


def _dense(tree: GpuTree, device: Device, libraries: Libraries) -> PreparedTree:
    """scaled_dot_product_attention with the mask spelled out, as wide as the scores' dtype."""
    n = len(tree.subtree_end)
    if n * n * device.dtype.itemsize > DENSE_BYTES:
        raise CannotRun(f"the mask of {n} x {n} would take over {DENSE_BYTES >> 30} GiB")
    mask, seen, ms = _timed_mask(tree, device, lambda m: m.visible(slice(None), slice(None)))
    seen = seen | ~seen.any(1, keepdim=True)  # a row that sees nothing would be NaN
    q, k, v, dout = inputs(n, device)
    real = (torch.arange(n, device=q.device) < mask.n_real)[:, None]

    def attend() -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True) * real

    return PreparedTree(attend, (q, k, v), dout, mask.mask_area, ms)


def _flex(make: Callable[[TreeMask], Any], dynamic: bool, **options: Any) -> Prepare:
    def prepare(tree: GpuTree, device: Device, libraries: Libraries) -> PreparedTree:
        mask, block_mask, ms = _timed_mask(tree, device, make)
        q, k, v, dout = inputs(mask.n, device)
        call = libraries.flex(dynamic)
        return PreparedTree(
            lambda: call(q, k, v, block_mask=block_mask, enable_gqa=True, **options),
            (q, k, v), dout, mask.mask_area, ms,
        )  # fmt: skip

    return prepare


def _areal_block_mask(mask: TreeMask) -> Any:
    """AReaL's way: an N x N mask, read by the mask function of ``create_block_mask``."""
    seen = mask.visible(slice(None), slice(None))

    def is_visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return seen[q, k]

    return create_block_mask(is_visible, None, None, mask.n, mask.n, device=str(mask.device))


def _flash_rows(library: str) -> Prepare:
    def prepare(tree: GpuTree, device: Device, libraries: Libraries) -> PreparedTree:
        function = libraries.varlen(library)
        area = TreeMask.from_subtree_end(tree.subtree_end).mask_area
        lengths = rows_of_area(tree.row_lengths, area)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        q, k, v, dout = inputs(int(offsets[-1]), device)
        cu = torch.tensor(offsets, dtype=torch.int32, device=q.device)
        longest = int(lengths.max())

        def attend() -> Tensor:
            flat_q, flat_k, flat_v = (x[0].transpose(0, 1) for x in (q, k, v))
            out = function(flat_q, flat_k, flat_v, cu, cu, longest, longest)
            return out.transpose(0, 1)[None]

        done = int((lengths * (lengths + 1) // 2).sum())
        return PreparedTree(attend, (q, k, v), dout, done, of_tree=False)

    return prepare


def _gather(library: str) -> Prepare:
    def prepare(tree: GpuTree, device: Device, libraries: Libraries) -> PreparedTree:
        function = libraries.varlen(library)
        mask, made, ms = _timed_mask(tree, device, paths_of_nodes)
        paths, cu_q, cu_k, longest_q, longest_k = made
        q, k, v, dout = inputs(mask.n, device)

        def attend() -> Tensor:
            keys, values = (x[0].transpose(0, 1)[paths] for x in (k, v))
            queries = q[0].transpose(0, 1)[: mask.n_real]
            out = function(queries, keys, values, cu_q, cu_k, longest_q, longest_k)
            padding = (0, 0, 0, 0, 0, mask.n - mask.n_real)
            return torch.nn.functional.pad(out, padding).transpose(0, 1)[None]

        note = f"{len(paths) / mask.n_real:.2f} keys copied a token"
        return PreparedTree(attend, (q, k, v), dout, mask.mask_area, ms, note=note)

    return prepare


def paths_of_nodes(mask: TreeMask) -> tuple[Tensor, Tensor, Tensor, int, int]:
    """Tokens of every node's path, its own last; offsets and longest of nodes and of paths."""
    nodes = mask.nodes
    paths: list[np.ndarray] = []
    for start, stop, parent in zip(nodes.start, nodes.stop, nodes.parent, strict=True):
        own = np.arange(start, stop)
        paths.append(own if parent < 0 else np.concatenate([paths[parent], own]))
    lengths = [nodes.stop - nodes.start, np.array([len(path) for path in paths])]
    cu_q, cu_k = (np.concatenate([[0], np.cumsum(x)]) for x in lengths)
    tensors = (np.concatenate(paths), cu_q.astype(np.int32), cu_k.astype(np.int32))
    on_device = [torch.from_numpy(x).to(mask.device) for x in tensors]
    return on_device[0], on_device[1], on_device[2], int(lengths[0].max()), int(lengths[1].max())


def rows_of_area(row_lengths: np.ndarray, area: int) -> np.ndarray:
    """The rows in turn, again and again, the last cut, until their causal areas sum to ``area``."""
    areas = np.cumsum(row_lengths.astype(np.int64) * (row_lengths + 1) // 2)
    rounds, left = divmod(area, int(areas[-1]))
    whole = int(np.searchsorted(areas, left, side="right"))
    left -= int(areas[whole - 1]) if whole else 0
    last = int((np.sqrt(8.0 * left + 1) - 1) / 2)
    parts = [np.tile(row_lengths, rounds), row_lengths[:whole], np.array([last] if last else [])]
    return np.concatenate(parts).astype(np.int64)


def _causal(backend: SDPBackend) -> Prepare:
    def prepare(tree: GpuTree, device: Device, libraries: Libraries) -> PreparedTree:
        n = len(tree.subtree_end)
        q, k, v, dout = inputs(n, device)
        call = libraries.causal(backend)
        return PreparedTree(lambda: call(q, k, v), (q, k, v), dout, n * (n + 1) // 2, of_tree=False)

    return prepare


PROVIDERS: dict[str, Prepare] = {
    "triton": _ours(_default),
    "flex_ours": _flex(tree_block_mask, False),
    "flash_rows": _flash_rows("torch"),
    "flash_rows_fa3": _flash_rows("flash3"),
    "triton_fused": _ours(_fused),
    "triton_tuned": _ours(_tuned),
    "flex_areal": _flex(_areal_block_mask, True),
    "flex_flash": _flex(tree_block_mask, False, kernel_options={"BACKEND": "FLASH"}),
    "gather_paths": _gather("torch"),
    "gather_paths_fa3": _gather("flash3"),
    "flash_rows_fa2": _flash_rows("flash2"),
    "causal_cudnn": _causal(SDPBackend.CUDNN_ATTENTION),
    "causal_flash": _causal(SDPBackend.FLASH_ATTENTION),
    "cascade": _cascade,
    "dense": _dense,
}
