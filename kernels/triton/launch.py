"""Launches of the Triton kernels: shapes to grids, masks to work lists, each made once a mask.

Notable:
- Triton itself is imported at the first launch, so that a machine without it can say so
- tensors are those of ``triton_tree_attention``, checked, their last axis dense
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kernels.triton.configs import Config, Pass, heads_per_tile
from kernels.triton.tiles import KeyChunks, QueryLists, key_chunks, query_lists

Configs = Mapping[Pass, Config]


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
    def scale_log2(self) -> float:
        return self.scale * math.log2(math.e)

    def meta(self, config: Config) -> dict[str, Any]:
        """Constants and options of a launch."""
        return {
            "GROUP": self.group,
            "PACK": heads_per_tile(self.group, config.rows),
            "HEAD_DIM": self.head_dim,
            "BLOCK_D": 1 << (self.head_dim - 1).bit_length(),
            "ROWS": config.rows,
            "KEYS": config.keys,
            "PRECISION": self.precision,
            "num_warps": config.warps,
            "num_stages": config.stages,
            "enable_fp_fusion": True,
        }


def _strides(x: Tensor) -> tuple[int, int, int]:
    return x.stride(0), x.stride(1), x.stride(2)


def forward(
    q: Tensor, k: Tensor, v: Tensor, mask: IntervalMask, scale: float, config: Config
) -> tuple[Tensor, Tensor]:
    """Returns out (strides of a contiguous tensor) and the base 2 lse ``(B, Hkv, N, Hq / Hkv)``."""
    from kernels.triton.forward import forward_kernel

    problem = _Problem.of(q, k, scale)
    meta = problem.meta(config)
    lists = _query_lists(mask, config.rows // meta["PACK"], config.keys)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse_shape = (problem.batch, problem.kv_heads, problem.n_tokens, problem.group)
    lse = torch.empty(lse_shape, dtype=torch.float32, device=q.device)
    lanes_per_batch = problem.q_heads // meta["PACK"]
    n_lanes = problem.batch * lanes_per_batch
    forward_kernel[(len(lists.query_tiles) * n_lanes,)](
        q, k, v, out, lse, mask.subtree_end, lists.query_tiles, lists.key_tiles,
        *_strides(q), *_strides(k), *_strides(v), *_strides(out),
        problem.n_tokens, n_lanes, lanes_per_batch, problem.scale_log2, **meta,
    )  # fmt: skip
    return out, lse


def backward(
    saved: tuple[Tensor, ...], dout: Tensor, mask: IntervalMask, scale: float, configs: Configs
) -> tuple[Tensor, Tensor, Tensor]:
    from kernels.triton.dkv import dkv_kernel, sum_chunks_kernel
    from kernels.triton.dq import dq_kernel

    q, k, v, out, lse = saved
    problem = _Problem.of(q, k, scale)
    config = configs["dq"]
    meta = problem.meta(config)
    lists = _query_lists(mask, config.rows // meta["PACK"], config.keys)
    dq, delta = torch.empty_like(out), torch.empty_like(lse)
    lanes_per_batch = problem.q_heads // meta["PACK"]
    n_lanes = problem.batch * lanes_per_batch
    dq_kernel[(len(lists.query_tiles) * n_lanes,)](
        q, k, v, out, dout, dq, lse, delta, mask.subtree_end, lists.query_tiles, lists.key_tiles,
        *_strides(q), *_strides(k), *_strides(v), *_strides(out), *_strides(dout),
        problem.n_tokens, n_lanes, lanes_per_batch, problem.scale_log2, scale, **meta,
    )  # fmt: skip

    config = configs["dkv"]
    meta = problem.meta(config)
    n_lanes = problem.batch * problem.kv_heads
    programs = -(-4 * _processors(q.device) // n_lanes)
    work = _key_chunks(mask, config.rows // meta["PACK"], config.keys, programs)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty_like(dk)
    sums_shape = (work.slots, n_lanes, 2, config.keys, meta["BLOCK_D"])
    sums = torch.empty(sums_shape, dtype=torch.float32, device=q.device)
    dkv_kernel[(len(work.chunks) * n_lanes,)](
        q, k, v, dout, dk, dv, lse, delta, sums, mask.subtree_end, work.chunks,
        *_strides(q), *_strides(k), *_strides(v), *_strides(dout), *_strides(dk),
        problem.n_tokens, n_lanes, problem.kv_heads, problem.scale_log2, scale, **meta,
    )  # fmt: skip
    if work.slots:
        part = min(config.keys, 16)
        sum_chunks_kernel[(len(work.split_tiles) * n_lanes, config.keys // part)](
            sums, dk, dv, work.split_tiles, *_strides(dk),
            problem.n_tokens, n_lanes, problem.kv_heads,
            HEAD_DIM=problem.head_dim, BLOCK_D=meta["BLOCK_D"], KEYS=config.keys, PART=part,
            enable_fp_fusion=True,
        )  # fmt: skip
    return dq, dk, dv


_work: WeakKeyDictionary[IntervalMask, dict[tuple[object, ...], Any]] = WeakKeyDictionary()


def _query_lists(mask: IntervalMask, tile_q: int, tile_k: int) -> QueryLists:
    cache = _work.setdefault(mask, {})
    key = ("query lists", tile_q, tile_k)
    if key not in cache:
        cache[key] = query_lists(mask.subtree_end, tile_q, tile_k)
    lists: QueryLists = cache[key]
    return lists


def _key_chunks(mask: IntervalMask, tile_q: int, tile_k: int, programs: int) -> KeyChunks:
    cache = _work.setdefault(mask, {})
    key = ("key chunks", tile_q, tile_k, programs)
    if key not in cache:
        cache[key] = key_chunks(mask.subtree_end, tile_q, tile_k, programs)
    chunks: KeyChunks = cache[key]
    return chunks


@functools.cache
def _processors(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return 1
