"""The forward Triton kernel of tree attention: one program per query tile and group of heads.

Notable:
- a query tile visits only the key tiles that hold an ancestor of it, as runs of neighbours: first
  those it sees whole, which skip masking, then those it sees in part
- ``PACK`` query heads that share a key head lie in one tile: its rows are ``(token, head)`` pairs,
  so keys and values are read once for all of them, and a tile spans fewer tokens, which fits short
  branches better; where ``PACK`` does not divide the rows, the last few are spare
- scores are kept in powers of two: ``exp(x) = exp2(x * log2(e))``, the factor folded into the scale
"""

# The compiler gives these functions their types, each time it compiles them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.loads import PARTIAL, WHOLE, following, key_rows, load_rows, masked


@triton.jit
def attend(
    q,
    acc,
    row_sum,
    row_max,
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
    """Online softmax over ``count`` key tiles; returns (acc, row_sum, row_max), float32.

    q ``(ROWS, BLOCK_D)``, acc ``(ROWS, BLOCK_D)``, row_sum and row_max ``(ROWS,)``.
    """
    tile = tl.load(run)
    left = tl.load(run + 1)
    for _ in tl.range(count, warp_specialize=SPECIALIZE):
        key = tile * KEYS + tl.arange(0, KEYS)
        k_tile = key_rows(
            k, batch, kv_head, tile, stride_kn, n_tokens, HEAD_DIM, BLOCK_D, KEYS, KIND, TMA,
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(k_tile), input_precision=PRECISION)
        if KIND != WHOLE:
            end = tl.load(subtree_end + key, mask=key < n_tokens, other=0)
            scores = masked(scores, q_token[:, None], key[None, :], end[None, :], KIND)
        new_max = tl.maximum(row_max, tl.max(scores, 1) * scale_log2)
        # A row that has seen nothing yet has maximum -inf; -inf - -inf would be NaN.
        shift = new_max if KIND == WHOLE else tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp2(tl.fma(scores, scale_log2, -shift[:, None]))
        rescale = tl.exp2(row_max - shift)
        row_sum = row_sum * rescale + tl.sum(weights, 1)
        acc = acc * rescale[:, None]
        v_tile = key_rows(
            v, batch, kv_head, tile, stride_vn, n_tokens, HEAD_DIM, BLOCK_D, KEYS, KIND, TMA,
        )  # fmt: skip
        acc = tl.dot(weights.to(v_tile.dtype), v_tile, acc, input_precision=PRECISION)
        row_max = new_max
        tile, left, run = following(tile, left, run)
    return acc, row_sum, row_max


@triton.jit
def forward_kernel(
    q,
    k,
    v,
    out,
    lse,
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
    TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """Writes ``out`` and ``lse`` (base 2, ``(B, Hkv, N, GROUP)``) of one query tile.

    k, v: pointers, or where ``TMA`` descriptors ``(B, Hkv, N, D)`` of blocks ``(1, 1, KEYS, D)``.
    query_tiles, runs: as in ``tiles.QueryLists``.
    A lane is one batch entry and ``PACK`` heads; neighbours in a wave read the same keys.
    """
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
    q_rows = q + batch_at * stride_qb + q_head[:, None] * stride_qh + token * stride_qn
    queries = load_rows(q_rows + dim[None, :], inside, HEAD_DIM, BLOCK_D, True)
    if not TMA:
        k += batch_at * stride_kb + kv_head_at * stride_kh
        v += batch_at * stride_vb + kv_head_at * stride_vh

    acc = tl.zeros([ROWS, BLOCK_D], tl.float32)
    row_sum = tl.zeros([ROWS], tl.float32)
    row_max = tl.full([ROWS], float("-inf"), tl.float32)
    for KIND in tl.static_range(3):
        # Read again, not kept: registers are what limits the loop of whole tiles.
        if KIND == PARTIAL:
            q_token = tl.load(entry, volatile=True) * (ROWS // PACK) + row // PACK
        acc, row_sum, row_max = attend(
            queries, acc, row_sum, row_max, k, v, batch, kv_head, subtree_end,
            runs + 2 * tl.load(entry + 1 + 2 * KIND), tl.load(entry + 2 + 2 * KIND),
            stride_kn, stride_vn, q_token, n_tokens, scale_log2,
            HEAD_DIM, BLOCK_D, KEYS, KIND, PRECISION, TMA, SPECIALIZE,
        )  # fmt: skip

    inside = (q_token < n_tokens) & (row < ROWS // PACK * PACK)
    token = q_token[:, None].to(tl.int64)
    q_head = head.to(tl.int64) + row % PACK
    # Padding sees nothing: its sum is 0, its output 0 and its log-sum-exp -inf.
    saw = row_sum > 0
    divisor = tl.where(saw, row_sum, 1.0)
    acc = acc / divisor[:, None]
    row_lse = tl.where(saw, row_max + tl.log2(divisor), float("-inf"))
    lse_rows = lse + (batch_at * (lanes_per_batch * PACK) + kv_head_at * GROUP) * n_tokens
    lse_rows += q_token.to(tl.int64) * GROUP + q_head % GROUP
    tl.store(lse_rows, row_lse, mask=inside)
    out_rows = out + batch_at * stride_ob + q_head[:, None] * stride_oh + token * stride_on
    inside_dims = inside[:, None] & (dim[None, :] < HEAD_DIM)
    tl.store(out_rows + dim[None, :], acc.to(out.dtype.element_ty), mask=inside_dims)
