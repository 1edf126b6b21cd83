"""The forward Triton kernel of tree attention: one program per query tile and group of heads.

Notable:
- a query tile visits only the key tiles that hold an ancestor of it; its list names first the
  tiles that need a mask, then those it sees whole, which skip masking
- ``PACK`` query heads that share a key head lie in one tile: its rows are ``(token, head)`` pairs,
  so keys and values are read once for all of them, and a tile spans fewer tokens, which fits short
  branches better
- scores are kept in powers of two: ``exp(x) = exp2(x * log2(e))``, the factor folded into the scale
"""

# The compiler gives these functions their types, each time it compiles them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attend(
    q,
    acc,
    row_sum,
    row_max,
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
    """Online softmax over ``count`` key tiles; returns (acc, row_sum, row_max), float32.

    q ``(ROWS, BLOCK_D)``, acc ``(ROWS, BLOCK_D)``, row_sum and row_max ``(ROWS,)``.
    """
    column = tl.arange(0, KEYS)
    tile = tl.load(key_tiles)
    for step in range(count):
        following = tl.load(key_tiles + step + 1)
        key = tile * KEYS + column
        k_tile = k_rows + tile.to(tl.int64) * KEYS * stride_kn
        v_tile = v_rows + tile.to(tl.int64) * KEYS * stride_vn
        k = load_rows(k_tile, key, n_tokens, HEAD_DIM, BLOCK_D, MASKED)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if MASKED:
            end = tl.load(subtree_end + key, mask=key < n_tokens, other=0)
            seen = (key[None, :] <= q_token[:, None]) & (q_token[:, None] < end[None, :])
            scores = tl.where(seen, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1) * scale_log2)
        # A row that has seen nothing yet has maximum -inf; -inf - -inf would be NaN.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
        weights = tl.exp2(tl.fma(scores, scale_log2, -shift[:, None]))
        rescale = tl.exp2(row_max - shift)
        row_sum = row_sum * rescale + tl.sum(weights, 1)
        acc = acc * rescale[:, None]
        v = load_rows(v_tile, key, n_tokens, HEAD_DIM, BLOCK_D, MASKED)
        acc = tl.dot(weights.to(v.dtype), v, acc, input_precision=PRECISION)
        row_max = new_max
        tile = following
    return acc, row_sum, row_max


@triton.jit
def load_rows(
    pointers,
    token,
    n_tokens,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Rows of a tile, ``(rows, BLOCK_D)``; zeros past the last token and past the head dim."""
    dim = tl.arange(0, BLOCK_D)
    if MASKED and HEAD_DIM == BLOCK_D:
        return tl.load(pointers, mask=token[:, None] < n_tokens, other=0.0)
    elif MASKED:
        inside = (token[:, None] < n_tokens) & (dim[None, :] < HEAD_DIM)
        return tl.load(pointers, mask=inside, other=0.0)
    elif HEAD_DIM == BLOCK_D:
        return tl.load(pointers)
    else:
        return tl.load(pointers, mask=dim[None, :] < HEAD_DIM, other=0.0)


@triton.jit
def forward_kernel(
    q,
    k,
    v,
    out,
    lse,
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
    n_tokens,
    n_lanes,
    lanes_per_batch,
    scale_log2,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Writes ``out`` and ``lse`` (base 2, ``(B, Hkv, N, GROUP)``) of one query tile.

    query_tiles: int32 ``(tiles, 4)``: query tile, start of its list, masked tiles, whole tiles;
    key_tiles:   int32, the lists one after the other, with one spare entry at the end.
    A lane is one batch entry and ``PACK`` heads; neighbours in a wave read the same keys.
    """
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
    q_rows = q + batch * stride_qb + q_head[:, None] * stride_qh
    q_rows += q_token[:, None].to(tl.int64) * stride_qn + dim[None, :]
    queries = load_rows(q_rows, q_token, n_tokens, HEAD_DIM, BLOCK_D, True)

    column = tl.arange(0, KEYS)
    k_rows = k + batch * stride_kb + kv_head * stride_kh
    k_rows = k_rows + column[:, None].to(tl.int64) * stride_kn + dim[None, :]
    v_rows = v + batch * stride_vb + kv_head * stride_vh
    v_rows = v_rows + column[:, None].to(tl.int64) * stride_vn + dim[None, :]

    acc = tl.zeros([ROWS, BLOCK_D], tl.float32)
    row_sum = tl.zeros([ROWS], tl.float32)
    row_max = tl.full([ROWS], float("-inf"), tl.float32)
    acc, row_sum, row_max = attend(
        queries, acc, row_sum, row_max, k_rows, v_rows, subtree_end, key_tiles + begin + n_masked,
        n_whole, stride_kn, stride_vn, q_token, n_tokens, scale_log2,
        HEAD_DIM, BLOCK_D, KEYS, False, PRECISION,
    )  # fmt: skip
    acc, row_sum, row_max = attend(
        queries, acc, row_sum, row_max, k_rows, v_rows, subtree_end, key_tiles + begin,
        n_masked, stride_kn, stride_vn, q_token, n_tokens, scale_log2,
        HEAD_DIM, BLOCK_D, KEYS, True, PRECISION,
    )  # fmt: skip

    # Padding sees nothing: its sum is 0, its output 0 and its log-sum-exp -inf.
    saw = row_sum > 0
    divisor = tl.where(saw, row_sum, 1.0)
    acc = acc / divisor[:, None]
    row_lse = tl.where(saw, row_max + tl.log2(divisor), float("-inf"))
    lse_rows = lse + (batch * (lanes_per_batch * PACK) + kv_head * GROUP) * n_tokens
    lse_rows += q_token.to(tl.int64) * GROUP + q_head % GROUP
    tl.store(lse_rows, row_lse, mask=q_token < n_tokens)
    out_rows = out + batch * stride_ob + q_head[:, None] * stride_oh
    out_rows += q_token[:, None].to(tl.int64) * stride_on + dim[None, :]
    inside = (q_token[:, None] < n_tokens) & (dim[None, :] < HEAD_DIM)
    tl.store(out_rows, acc.to(out.dtype.element_ty), mask=inside)
