"""The small Triton kernels around the backward: sums of dK and dV's chunks, and delta.

Notable:
- chunks of a split key tile are added in a fixed order, so that the same inputs give the same bits
- ``delta_kernel`` serves the backward of five products only; else the dQ kernel writes delta
"""

# The compiler gives these functions their types, each time it compiles them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.loads import load_rows


@triton.jit
def sum_chunks_kernel(
    chunk_sums,
    dk,
    dv,
    split_tiles,
    stride_db,
    stride_dh,
    stride_dn,
    n_tokens,
    n_lanes,
    kv_heads,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    KEYS: tl.constexpr,
    PART: tl.constexpr,
):
    """Adds the chunks of one split key tile in order; ``PART`` keys of it per program.

    split_tiles: int32 ``(tiles, 3)``: key tile, its first slot, its number of slots.
    """
    lane = tl.program_id(0) % n_lanes
    entry = split_tiles + (tl.program_id(0) // n_lanes) * 3
    key_tile = tl.load(entry)
    slot = tl.load(entry + 1).to(tl.int64)
    count = tl.load(entry + 2)
    column = tl.program_id(1) * PART + tl.arange(0, PART)
    dim = tl.arange(0, BLOCK_D)
    sums = chunk_sums + column[:, None] * BLOCK_D + dim[None, :]
    dk_acc = tl.zeros([PART, BLOCK_D], tl.float32)
    dv_acc = tl.zeros([PART, BLOCK_D], tl.float32)
    for nth in range(count):
        chunk = sums + ((slot + nth) * n_lanes + lane) * (2 * KEYS * BLOCK_D)
        dk_acc += tl.load(chunk)
        dv_acc += tl.load(chunk + KEYS * BLOCK_D)
    key = key_tile * KEYS + column
    batch = (lane // kv_heads).to(tl.int64)
    kv_head = (lane % kv_heads).to(tl.int64)
    at = batch * stride_db + kv_head * stride_dh
    at = at + key[:, None].to(tl.int64) * stride_dn + dim[None, :]
    inside = (key[:, None] < n_tokens) & (dim[None, :] < HEAD_DIM)
    tl.store(dk + at, dk_acc.to(dk.dtype.element_ty), mask=inside)
    tl.store(dv + at, dv_acc.to(dv.dtype.element_ty), mask=inside)


@triton.jit
def delta_kernel(
    out,
    dout,
    delta,
    stride_ob,
    stride_oh,
    stride_on,
    stride_gb,
    stride_gh,
    stride_gn,
    n_tokens,
    q_heads,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Writes ``delta = sum(out * dout)`` ``(B, Hkv, N, GROUP)`` of ``ROWS`` tokens of one head."""
    lane = tl.program_id(1)
    batch = (lane // q_heads).to(tl.int64)
    head = (lane % q_heads).to(tl.int64)
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = token < n_tokens
    at = token[:, None].to(tl.int64)
    dim = tl.arange(0, BLOCK_D)[None, :]
    out_rows = out + batch * stride_ob + head * stride_oh + at * stride_on + dim
    dout_rows = dout + batch * stride_gb + head * stride_gh + at * stride_gn + dim
    outs = load_rows(out_rows, inside, HEAD_DIM, BLOCK_D, True).to(tl.float32)
    douts = load_rows(dout_rows, inside, HEAD_DIM, BLOCK_D, True).to(tl.float32)
    rows = delta + (batch * q_heads + head // GROUP * GROUP) * n_tokens + head % GROUP
    tl.store(rows + token.to(tl.int64) * GROUP, tl.sum(outs * douts, 1), mask=inside)
