"""The Triton kernel of tree attention's dQ: one program per query tile and group of heads.

Notable:
- it walks the same lists of key tiles as the forward, and writes ``delta = sum(out * dout)`` for dK
- weights are computed again from the base 2 log-sum-exp: ``exp2(score * scale_log2 - lse)``
"""

# The compiler gives these functions their types, each time it compiles them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.forward import load_rows


@triton.jit
def attend_dq(
    q,
    dout,
    dq,
    row_lse,
    row_delta,
    k_rows,
    v_rows,
    subtree_end,
    key_tiles,
    count,
    stride_kn,
    stride_vn,
    q_token,
    n_tokens,
    scale_log2,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    KEYS: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds the part of ``count`` key tiles to dq ``(ROWS, BLOCK_D)``, not yet scaled."""
    column = tl.arange(0, KEYS)
    tile = tl.load(key_tiles)
    for step in range(count):
        following = tl.load(key_tiles + step + 1)
        key = tile * KEYS + column
        k_tile = k_rows + tile.to(tl.int64) * KEYS * stride_kn
        v_tile = v_rows + tile.to(tl.int64) * KEYS * stride_vn
        k = load_rows(k_tile, key, n_tokens, HEAD_DIM, BLOCK_D, MASKED)
        v = load_rows(v_tile, key, n_tokens, HEAD_DIM, BLOCK_D, MASKED)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if MASKED:
            end = tl.load(subtree_end + key, mask=key < n_tokens, other=0)
            seen = (key[None, :] <= q_token[:, None]) & (q_token[:, None] < end[None, :])
            scores = tl.where(seen, scores, float("-inf"))
        weights = tl.exp2(tl.fma(scores, scale_log2, -row_lse[:, None]))
        dweights = tl.dot(dout, tl.trans(v), input_precision=PRECISION)
        dscores = weights * (dweights - row_delta[:, None])
        dq = tl.dot(dscores.to(k.dtype), k, dq, input_precision=PRECISION)
        tile = following
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
    key_tiles,
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
):
    """Writes ``dq`` (strides of ``out``) and ``delta`` of one query tile; tables as in forward."""
    program = tl.program_id(0)
    lane = program % n_lanes
    entry = query_tiles + (program // n_lanes) * 4
    batch = (lane // lanes_per_batch).to(tl.int64)
    head = ((lane % lanes_per_batch) * PACK).to(tl.int64)
    kv_head = head // GROUP
    first_token = tl.load(entry) * (ROWS // PACK)
    begin = tl.load(entry + 1)
    n_masked = tl.load(entry + 2)
    n_whole = tl.load(entry + 3)

    row = tl.arange(0, ROWS)
    dim = tl.arange(0, BLOCK_D)
    q_token = first_token + row // PACK
    q_head = head + row % PACK
    token = q_token[:, None].to(tl.int64)
    q_rows = q + batch * stride_qb + q_head[:, None] * stride_qh + token * stride_qn + dim[None, :]
    out_at = batch * stride_ob + q_head[:, None] * stride_oh + token * stride_on + dim[None, :]
    dout_at = batch * stride_gb + q_head[:, None] * stride_gh + token * stride_gn + dim[None, :]
    queries = load_rows(q_rows, q_token, n_tokens, HEAD_DIM, BLOCK_D, True)
    douts = load_rows(dout + dout_at, q_token, n_tokens, HEAD_DIM, BLOCK_D, True)
    outs = load_rows(out + out_at, q_token, n_tokens, HEAD_DIM, BLOCK_D, True)
    row_delta = tl.sum(outs.to(tl.float32) * douts.to(tl.float32), 1)
    row_at = (batch * (lanes_per_batch * PACK) + kv_head * GROUP) * n_tokens
    row_at += q_token.to(tl.int64) * GROUP + q_head % GROUP
    inside = q_token < n_tokens
    tl.store(delta + row_at, row_delta, mask=inside)
    row_lse = tl.load(lse + row_at, mask=inside, other=float("inf"))
    # Rows that see nothing have -inf; with +inf every weight of theirs is exp2(-inf) = 0.
    row_lse = tl.where(row_lse == float("-inf"), float("inf"), row_lse)

    column = tl.arange(0, KEYS)
    k_rows = k + batch * stride_kb + kv_head * stride_kh
    k_rows = k_rows + column[:, None].to(tl.int64) * stride_kn + dim[None, :]
    v_rows = v + batch * stride_vb + kv_head * stride_vh
    v_rows = v_rows + column[:, None].to(tl.int64) * stride_vn + dim[None, :]
    acc = tl.zeros([ROWS, BLOCK_D], tl.float32)
    acc = attend_dq(
        queries, douts, acc, row_lse, row_delta, k_rows, v_rows, subtree_end,
        key_tiles + begin + n_masked, n_whole, stride_kn, stride_vn, q_token, n_tokens, scale_log2,
        HEAD_DIM, BLOCK_D, KEYS, False, PRECISION,
    )  # fmt: skip
    acc = attend_dq(
        queries, douts, acc, row_lse, row_delta, k_rows, v_rows, subtree_end,
        key_tiles + begin, n_masked, stride_kn, stride_vn, q_token, n_tokens, scale_log2,
        HEAD_DIM, BLOCK_D, KEYS, True, PRECISION,
    )  # fmt: skip
    inside_dims = inside[:, None] & (dim[None, :] < HEAD_DIM)
    tl.store(dq + out_at, (acc * scale).to(dq.dtype.element_ty), mask=inside_dims)
