"""The Triton kernel of tree attention's dQ: one program per query tile and group of heads.

Notable:
- it walks the same runs of key tiles as the forward, and writes ``delta = sum(out * dout)`` for dK
- weights are computed again from the base 2 log-sum-exp: ``exp2(score * scale_log2 - lse)``
"""

# The compiler gives these functions their types, each time it compiles them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.loads import WHOLE, following, key_rows, load_rows, masked


@triton.jit
def attend_dq(
    q,
    dout,
    dq,
    row_lse,
    row_delta,
    k,
    v,
    batch,
    kv_head,
    subtree_end,
    run,
    count,
    stride_kn,
    stride_vn,
    q_token,
    n_tokens,
    scale_log2,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    KEYS: tl.constexpr,
    KIND: tl.constexpr,
    PRECISION: tl.constexpr,
    TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """Adds the part of ``count`` key tiles to dq ``(ROWS, BLOCK_D)``, not yet scaled."""
    tile = tl.load(run)
    left = tl.load(run + 1)
    for _ in tl.range(count, warp_specialize=SPECIALIZE):
        key = tile * KEYS + tl.arange(0, KEYS)
        k_tile = key_rows(
            k, batch, kv_head, tile, stride_kn, n_tokens, HEAD_DIM, BLOCK_D, KEYS, KIND, TMA,
        )  # fmt: skip
        v_tile = key_rows(
            v, batch, kv_head, tile, stride_vn, n_tokens, HEAD_DIM, BLOCK_D, KEYS, KIND, TMA,
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(k_tile), input_precision=PRECISION)
        if KIND != WHOLE:
            end = tl.load(subtree_end + key, mask=key < n_tokens, other=0)
            scores = masked(scores, q_token[:, None], key[None, :], end[None, :], KIND)
        weights = tl.exp2(tl.fma(scores, scale_log2, -row_lse[:, None]))
        dweights = tl.dot(dout, tl.trans(v_tile), input_precision=PRECISION)
        dscores = weights * (dweights - row_delta[:, None])
        dq = tl.dot(dscores.to(k_tile.dtype), k_tile, dq, input_precision=PRECISION)
        tile, left, run = following(tile, left, run)
    return dq


@triton.jit
def dq_kernel(
    q,
    k,
    v,
    out,
    dout,
    dq,
    lse,
    delta,
    subtree_end,
    query_tiles,
    runs,
    stride_qb,
    stride_qh,
    stride_qn,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_ob,
    stride_oh,
    stride_on,
    stride_gb,
    stride_gh,
    stride_gn,
    n_tokens,
    n_lanes,
    lanes_per_batch,
    scale_log2,
    scale,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PRECISION: tl.constexpr,
    TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """Writes ``dq`` (strides of ``out``) and ``delta`` of one query tile; tables as in forward."""
    program = tl.program_id(0)
    lane = program % n_lanes
    entry = query_tiles + (program // n_lanes) * 7
    batch = lane // lanes_per_batch
    head = (lane % lanes_per_batch) * PACK
    kv_head = head // GROUP
    batch_at = batch.to(tl.int64)
    kv_head_at = kv_head.to(tl.int64)

    row = tl.arange(0, ROWS)
    dim = tl.arange(0, BLOCK_D)
    q_token = tl.load(entry) * (ROWS // PACK) + row // PACK
    inside = (q_token < n_tokens) & (row < ROWS // PACK * PACK)
    token = q_token[:, None].to(tl.int64)
    q_head = head.to(tl.int64) + row % PACK
    head_at = q_head[:, None]
    q_rows = q + batch_at * stride_qb + head_at * stride_qh + token * stride_qn + dim[None, :]
    out_at = batch_at * stride_ob + head_at * stride_oh + token * stride_on + dim[None, :]
    dout_at = batch_at * stride_gb + head_at * stride_gh + token * stride_gn + dim[None, :]
    queries = load_rows(q_rows, inside, HEAD_DIM, BLOCK_D, True)
    douts = load_rows(dout + dout_at, inside, HEAD_DIM, BLOCK_D, True)
    outs = load_rows(out + out_at, inside, HEAD_DIM, BLOCK_D, True)
    row_delta = tl.sum(outs.to(tl.float32) * douts.to(tl.float32), 1)
    row_at = (batch_at * (lanes_per_batch * PACK) + kv_head_at * GROUP) * n_tokens
    row_at += q_token.to(tl.int64) * GROUP + q_head % GROUP
    tl.store(delta + row_at, row_delta, mask=inside)
    row_lse = tl.load(lse + row_at, mask=inside, other=float("inf"))
    # Rows that see nothing have -inf; with +inf every weight of theirs is exp2(-inf) = 0.
    row_lse = tl.where(row_lse == float("-inf"), float("inf"), row_lse)
    if not TMA:
        k += batch_at * stride_kb + kv_head_at * stride_kh
        v += batch_at * stride_vb + kv_head_at * stride_vh

    acc = tl.zeros([ROWS, BLOCK_D], tl.float32)
    for KIND in tl.static_range(3):
        acc = attend_dq(
            queries, douts, acc, row_lse, row_delta, k, v, batch, kv_head, subtree_end,
            runs + 2 * tl.load(entry + 1 + 2 * KIND), tl.load(entry + 2 + 2 * KIND),
            stride_kn, stride_vn, q_token, n_tokens, scale_log2,
            HEAD_DIM, BLOCK_D, KEYS, KIND, PRECISION, TMA, SPECIALIZE,
        )  # fmt: skip
    inside_dims = inside[:, None] & (dim[None, :] < HEAD_DIM)
    tl.store(dq + out_at, (acc * scale).to(dq.dtype.element_ty), mask=inside_dims)
