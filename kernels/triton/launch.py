"""Launches of the Triton kernels: shapes to grids, masks to work lists, each made once a mask.

Notable:
- Triton itself is imported at the first launch, so that a machine without it can say so
- tensors are those of ``triton_tree_attention``, checked, their last axis dense
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kernels.triton.configs import BUSHY, Config, Pass, by_descriptor, heads_per_tile
from kernels.triton.descriptors import architecture, describable, descriptor, has_copy_engine
from kernels.triton.tiles import QueryLists, key_chunks, query_lists, visited_area

Configs = Mapping[Pass, Config]
Made = TypeVar("Made")

# Where dQ is summed by the copy engine; Triton's interpreter has no such sum.
REDUCE_BY_DESCRIPTOR = {"cuda": True, "cpu": False}


class IntervalMask(Protocol):
    """What the kernels need of a ``TreeMask``."""

    @property
    def subtree_end(self) -> Tensor:
        """int32 ``(N,)``, exclusive end of each token's subtree; 0 where the token is padding."""


@dataclass(frozen=True)
class _Problem:
    """Sizes that all launches of one call share."""

    batch: int
    q_heads: int
    kv_heads: int
    n_tokens: int
    head_dim: int
    scale: float
    precision: str

    @staticmethod
    def of(q: Tensor, k: Tensor, scale: float) -> _Problem:
        batch, q_heads, n_tokens, head_dim = q.shape
        precision = "ieee" if q.dtype == torch.float32 else "tf32"
        return _Problem(batch, q_heads, k.shape[1], n_tokens, head_dim, scale, precision)

    @property
    def group(self) -> int:
        return self.q_heads // self.kv_heads

    @property
    def block_d(self) -> int:
        """Columns of a tile: the power of two that holds the head dim."""
        return 1 << (self.head_dim - 1).bit_length()

    @property
    def scale_log2(self) -> float:
        return self.scale * math.log2(math.e)

    def meta(self, config: Config, tma: bool) -> dict[str, Any]:
        """Constants and options of a launch."""
        return {
            "GROUP": self.group,
            "PACK": heads_per_tile(self.group, config.rows),
            "HEAD_DIM": self.head_dim,
            "BLOCK_D": self.block_d,
            "ROWS": config.rows,
            "KEYS": config.keys,
            "PRECISION": self.precision,
            "TMA": tma,
            "SPECIALIZE": config.specialize,
            "num_warps": config.warps,
            "num_stages": config.stages,
            "enable_fp_fusion": True,
        }


def _strides(x: Tensor) -> tuple[int, int, int]:
    return x.stride(0), x.stride(1), x.stride(2)


def _query_tiles(
    name: Pass, k: Tensor, v: Tensor, mask: IntervalMask, problem: _Problem, config: Config
) -> tuple[Any, Any, QueryLists, tuple[int, int], dict[str, Any]]:
    """k and v as a kernel of query tiles takes them (by descriptors, if they can be), its lists,
    its lanes (of all, of a batch entry), constants and options."""
    tma = by_descriptor(name, problem.head_dim, architecture(k.device))
    tma = tma and has_copy_engine(k.device) and describable(k, v)
    meta = problem.meta(config, tma)
    lists = of_mask(query_lists, mask, config.rows // meta["PACK"], config.keys)
    lanes_per_batch = problem.q_heads // meta["PACK"]
    lanes = (problem.batch * lanes_per_batch, lanes_per_batch)
    if not tma:
        return k, v, lists, lanes, meta
    block = [1, 1, config.keys, problem.block_d]
    return descriptor(k, block), descriptor(v, block), lists, lanes, meta


def _query_rows(
    q: Tensor, dout: Tensor, config: Config, pack: int, block_d: int
) -> tuple[Any, Any, bool]:
    """q and dout as ``dkv_kernel`` takes them, and whether those are descriptors."""
    if config.rows % pack or not (has_copy_engine(q.device) and describable(q, dout)):
        return q, dout, False
    block = [1, config.rows // pack, pack, block_d]
    return descriptor(q.transpose(1, 2), block), descriptor(dout.transpose(1, 2), block), True


def forward(
    q: Tensor, k: Tensor, v: Tensor, mask: IntervalMask, scale: float, config: Config
) -> tuple[Tensor, Tensor]:
    """Returns out (strides of a contiguous tensor) and the base 2 lse ``(B, Hkv, N, Hq / Hkv)``."""
    from kernels.triton.forward import forward_kernel

    problem = _Problem.of(q, k, scale)
    keys, values, lists, lanes, meta = _query_tiles("forward", k, v, mask, problem, config)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse_shape = (problem.batch, problem.kv_heads, problem.n_tokens, problem.group)
    lse = torch.empty(lse_shape, dtype=torch.float32, device=q.device)
    forward_kernel[(len(lists.query_tiles) * lanes[0],)](
        q, keys, values, out, lse, mask.subtree_end, lists.query_tiles, lists.runs,
        *_strides(q), *_strides(k), *_strides(v), *_strides(out),
        problem.n_tokens, *lanes, problem.scale_log2, **meta,
    )  # fmt: skip
    return out, lse


def backward(
    saved: tuple[Tensor, ...], dout: Tensor, mask: IntervalMask, scale: float, configs: Configs
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v; with ``configs["dqkv"]`` dQ is made in the kernel of dK and dV."""
    if "dqkv" in configs:
        delta = _delta(saved, dout)
        return dkv_pass(saved, dout, delta, mask, scale, configs["dqkv"])
    dq, delta = dq_pass(saved, dout, mask, scale, configs["dq"])
    return dkv_pass(saved, dout, delta, mask, scale, configs["dkv"], dq)


def _delta(saved: tuple[Tensor, ...], dout: Tensor) -> Tensor:
    from kernels.triton.sums import delta_kernel

    q, k, _, out, lse = saved
    problem = _Problem.of(q, k, 1.0)
    delta, rows = torch.empty_like(lse), 32
    grid = (-(-problem.n_tokens // rows), problem.batch * problem.q_heads)
    delta_kernel[grid](
        out, dout, delta, *_strides(out), *_strides(dout), problem.n_tokens, problem.q_heads,
        GROUP=problem.group, HEAD_DIM=problem.head_dim, BLOCK_D=problem.block_d, ROWS=rows,
        enable_fp_fusion=True,
    )  # fmt: skip
    return delta


def dq_pass(
    saved: tuple[Tensor, ...], dout: Tensor, mask: IntervalMask, scale: float, config: Config
) -> tuple[Tensor, Tensor]:
    """dQ, and ``delta = sum(out * dout)`` for dK and dV."""
    from kernels.triton.dq import dq_kernel

    q, k, v, out, lse = saved
    problem = _Problem.of(q, k, scale)
    keys, values, lists, lanes, meta = _query_tiles("dq", k, v, mask, problem, config)
    dq, delta = torch.empty_like(out), torch.empty_like(lse)
    dq_kernel[(len(lists.query_tiles) * lanes[0],)](
        q, keys, values, out, dout, dq, lse, delta, mask.subtree_end, lists.query_tiles,
        lists.runs,
        *_strides(q), *_strides(k), *_strides(v), *_strides(out), *_strides(dout),
        problem.n_tokens, *lanes, problem.scale_log2, problem.scale, **meta,
    )  # fmt: skip
    return dq, delta


def dkv_pass(
    saved: tuple[Tensor, ...],
    dout: Tensor,
    delta: Tensor,
    mask: IntervalMask,
    scale: float,
    config: Config,
    dq: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, which is made here too if it is not given, dK and dV."""
    from kernels.triton.dkv import dkv_kernel
    from kernels.triton.sums import sum_chunks_kernel

    q, k, v, _, lse = saved
    problem = _Problem.of(q, k, scale)
    pack = heads_per_tile(problem.group, config.rows)
    queries, douts, tma = _query_rows(q, dout, config, pack, problem.block_d)
    meta = problem.meta(config, tma)
    n_lanes = problem.batch * problem.kv_heads
    programs = -(-4 * _processors(q.device) // n_lanes)
    work = of_mask(key_chunks, mask, config.rows // pack, config.keys, programs)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty_like(dk)
    sums_shape = (work.slots, n_lanes, 2, config.keys, problem.block_d)
    sums = torch.empty(sums_shape, dtype=torch.float32, device=q.device)
    dq_sums: Tensor = sums  # not touched where dQ is given
    if dq is None:
        rows_shape = (n_lanes * problem.group // pack, problem.n_tokens * pack, problem.head_dim)
        dq_sums = torch.zeros(rows_shape, dtype=torch.float32, device=q.device)
    described = tma and dq is None and REDUCE_BY_DESCRIPTOR[q.device.type]
    dkv_kernel[(len(work.chunks) * n_lanes,)](
        queries, k, v, douts, dk, dv,
        descriptor(dq_sums, [1, config.rows, problem.block_d]) if described else dq_sums,
        lse, delta, sums, mask.subtree_end, work.chunks,
        *_strides(q), *_strides(k), *_strides(v), *_strides(dout), *_strides(dk),
        problem.n_tokens, n_lanes, problem.kv_heads, problem.scale_log2, problem.scale,
        DQ=dq is None, REDUCE=described, **meta,
    )  # fmt: skip
    if work.slots:
        part = min(config.keys, 16)
        sum_chunks_kernel[(len(work.split_tiles) * n_lanes, config.keys // part)](
            sums, dk, dv, work.split_tiles, *_strides(dk),
            problem.n_tokens, n_lanes, problem.kv_heads,
            HEAD_DIM=problem.head_dim, BLOCK_D=problem.block_d, KEYS=config.keys, PART=part,
            enable_fp_fusion=True,
        )  # fmt: skip
    if dq is None:
        parts = dq_sums.view(
            problem.batch, problem.q_heads // pack, problem.n_tokens, pack, problem.head_dim
        )
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        by_part = dq.view(
            problem.batch, problem.q_heads // pack, pack, problem.n_tokens, problem.head_dim
        )
        torch.mul(parts.transpose(2, 3), problem.scale, out=by_part)
    return dq, dk, dv


_work: WeakKeyDictionary[IntervalMask, dict[tuple[object, ...], Any]] = WeakKeyDictionary()


def of_mask(make: Callable[..., Made], mask: IntervalMask, *sizes: int) -> Made:
    """``make(mask.subtree_end, *sizes)``, kept as long as the mask."""
    kept = _work.setdefault(mask, {})
    if (make, *sizes) not in kept:
        kept[make, *sizes] = make(mask.subtree_end, *sizes)
    made: Made = kept[make, *sizes]
    return made


def is_bushy(mask: IntervalMask, tile_q: int, narrow: int, wide: int) -> bool:
    """Whether key tiles of ``narrow`` keys visit so much less of the mask that they pay."""
    visited, of_wide = (of_mask(visited_area, mask, tile_q, keys) for keys in (narrow, wide))
    return visited < BUSHY * of_wide


@functools.cache
def _processors(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return 1
