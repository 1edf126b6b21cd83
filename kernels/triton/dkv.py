"""The Triton kernels of tree attention's dK and dV: one program per chunk of a key tile's queries.

Notable:
- the queries that see a key tile lie in one contiguous range, so it needs no list
- a key tile of a shared trunk is seen by almost every query, so its range is cut into chunks that
  run side by side and ``sum_chunks_kernel`` adds them in a fixed order: no atomics, same bits
- a program walks all query heads of its key head: keys and values are read once for all of them
- with ``DQ`` it makes dQ too, five matrix products a tile instead of seven in two kernels, and adds
  it to memory as it comes: the order of those sums, and so their last bits, differ between runs
"""

# The compiler gives these functions their types, each time it compiles them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.loads import PARTIAL, WHOLE, load_rows, masked


@triton.jit
def query_rows(
    x,
    head_rows,
    at,
    batch,
    head,
    first_token,
    stride_h,
    stride_n,
    part_head,
    inside,
    PACK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROWS: tl.constexpr,
    BOUNDED: tl.constexpr,
    TMA: tl.constexpr,
):
    """Query tile ``(ROWS, BLOCK_D)`` of q or dout: ``(token, head)`` rows from ``first_token``."""
    if TMA:
        tile = x.load([batch, first_token, head + part_head, 0])
        return tile.reshape(ROWS, BLOCK_D)
    else:
        place = first_token.to(tl.int64) * stride_n + part_head.to(tl.int64) * stride_h
        return load_rows(head_rows + place + at, inside, HEAD_DIM, BLOCK_D, BOUNDED)


@triton.jit
def add_dq(
    dq_sums,
    lane,
    first_row,
    values,
    n_rows,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROWS: tl.constexpr,
    REDUCE: tl.constexpr,
):
    """Adds values ``(ROWS, BLOCK_D)`` to rows from ``first_row`` of a lane's ``n_rows`` sums."""
    if REDUCE:
        dq_sums.atomic_add([lane, first_row, 0], values.reshape(1, ROWS, BLOCK_D))
    else:
        row = first_row + tl.arange(0, ROWS)
        dim = tl.arange(0, BLOCK_D)
        at = (lane.to(tl.int64) * n_rows + row[:, None]) * HEAD_DIM + dim[None, :]
        inside = (row[:, None] < n_rows) & (dim[None, :] < HEAD_DIM)
        tl.atomic_add(dq_sums + at, values, mask=inside, sem="relaxed")


@triton.jit
def attend_dkv(
    k,
    v,
    dk,
    dv,
    q,
    dout,
    dq_sums,
    q_head,
    dout_head,
    q_at,
    dout_at,
    lse_rows,
    delta_rows,
    batch,
    kv_head,
    kv_heads,
    first,
    stop,
    stride_qh,
    stride_qn,
    stride_gh,
    stride_gn,
    key,
    end,
    n_tokens,
    scale_log2,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROWS: tl.constexpr,
    KIND: tl.constexpr,
    PRECISION: tl.constexpr,
    DQ: tl.constexpr,
    REDUCE: tl.constexpr,
    TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """Adds the part of query tiles ``first … stop - 1`` to dk (not yet scaled) and dv.

    dk, dv: ``(KEYS, BLOCK_D)``. A tile is visited once per ``PACK`` heads of the key head's group.
    """
    TOKENS: tl.constexpr = ROWS // PACK
    PARTS: tl.constexpr = GROUP // PACK
    # Whole tiles lie inside the mask; spare rows behind the last pair are never inside.
    BOUNDED: tl.constexpr = KIND != WHOLE or ROWS % PACK != 0
    row = tl.arange(0, ROWS)
    for step in tl.range((stop - first) * PARTS, warp_specialize=SPECIALIZE):
        tile = first + step // PARTS
        part_head = (step % PARTS) * PACK
        q_token = tile * TOKENS + row // PACK
        inside = (q_token < n_tokens) & (row < TOKENS * PACK)
        q_tile = query_rows(
            q, q_head, q_at, batch, kv_head * GROUP, tile * TOKENS, stride_qh, stride_qn,
            part_head, inside, PACK, HEAD_DIM, BLOCK_D, ROWS, BOUNDED, TMA,
        )  # fmt: skip
        dout_tile = query_rows(
            dout, dout_head, dout_at, batch, kv_head * GROUP, tile * TOKENS, stride_gh, stride_gn,
            part_head, inside, PACK, HEAD_DIM, BLOCK_D, ROWS, BOUNDED, TMA,
        )  # fmt: skip
        row_at = tile.to(tl.int64) * TOKENS * GROUP + part_head
        if BOUNDED:
            lse = tl.load(lse_rows + row_at, mask=inside, other=float("inf"))
            lse = tl.where(lse == float("-inf"), float("inf"), lse)
        else:
            lse = tl.load(lse_rows + row_at)
        scores = tl.dot(k, tl.trans(q_tile), input_precision=PRECISION)
        if KIND != WHOLE:
            scores = masked(scores, q_token[None, :], key[:, None], end[:, None], KIND)
        weights = tl.exp2(tl.fma(scores, scale_log2, -lse[None, :]))
        dv = tl.dot(weights.to(dout_tile.dtype), dout_tile, dv, input_precision=PRECISION)
        dweights = tl.dot(v, tl.trans(dout_tile), input_precision=PRECISION)
        if BOUNDED:
            delta = tl.load(delta_rows + row_at, mask=inside, other=0.0)
        else:
            delta = tl.load(delta_rows + row_at)
        dscores = (weights * (dweights - delta[None, :])).to(q_tile.dtype)
        dk = tl.dot(dscores, q_tile, dk, input_precision=PRECISION)
        if DQ:
            # A warp group's product has 64 rows at least.
            if ROWS < 64:
                dq = tl.trans(tl.dot(tl.trans(k), dscores, input_precision=PRECISION))
            else:
                dq = tl.dot(tl.trans(dscores), k, input_precision=PRECISION)
            lane = (batch * kv_heads + kv_head) * PARTS + step % PARTS
            add_dq(
                dq_sums, lane, tile * TOKENS * PACK, dq, n_tokens * PACK,
                HEAD_DIM, BLOCK_D, ROWS, REDUCE,
            )  # fmt: skip
    return dk, dv


@triton.jit
def dkv_kernel(
    q,
    k,
    v,
    dout,
    dk,
    dv,
    dq_sums,
    lse,
    delta,
    chunk_sums,
    subtree_end,
    chunks,
    stride_qb,
    stride_qh,
    stride_qn,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_gb,
    stride_gh,
    stride_gn,
    stride_db,
    stride_dh,
    stride_dn,
    n_tokens,
    n_lanes,
    kv_heads,
    scale_log2,
    scale,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PRECISION: tl.constexpr,
    DQ: tl.constexpr,
    REDUCE: tl.constexpr,
    TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """Writes dk and dv (both with strides ``stride_d*``) of one chunk of one key tile.

    q, dout: pointers, or where ``TMA`` descriptors ``(B, N, Hq, D)`` of blocks
    ``(1, ROWS / PACK, PACK, D)``.
    chunks: int32 ``(chunks, 6)``, see ``tiles.KeyChunks``.
    chunk_sums: float32 ``(slots, B * Hkv, 2, KEYS, BLOCK_D)``, dk then dv.
    dq_sums: with ``DQ`` float32 ``(B * Hkv * GROUP / PACK, N * PACK, D)``, zeros at first: dq, not
    yet scaled; where ``REDUCE`` a descriptor of blocks ``(1, ROWS, BLOCK_D)``.
    """
    program = tl.program_id(0)
    lane = program % n_lanes
    entry = chunks + (program // n_lanes) * 6
    batch = lane // kv_heads
    kv_head = lane % kv_heads
    batch_at = batch.to(tl.int64)
    kv_head_at = kv_head.to(tl.int64)

    row = tl.arange(0, ROWS)
    column = tl.arange(0, KEYS)
    dim = tl.arange(0, BLOCK_D)
    key = tl.load(entry) * KEYS + column
    key_at = key[:, None].to(tl.int64)
    k_rows = k + batch_at * stride_kb + kv_head_at * stride_kh + key_at * stride_kn + dim[None, :]
    v_rows = v + batch_at * stride_vb + kv_head_at * stride_vh + key_at * stride_vn + dim[None, :]
    keys = load_rows(k_rows, key < n_tokens, HEAD_DIM, BLOCK_D, True)
    values = load_rows(v_rows, key < n_tokens, HEAD_DIM, BLOCK_D, True)

    # Places within a tile fit 32 bits (the launcher sees to it), which saves registers.
    q_at = (row % PACK)[:, None] * stride_qh + (row // PACK)[:, None] * stride_qn + dim[None, :]
    dout_at = (row % PACK)[:, None] * stride_gh + (row // PACK)[:, None] * stride_gn + dim[None, :]
    q_head = q
    dout_head = dout
    if not TMA:
        q_head = q + batch_at * stride_qb + kv_head_at * GROUP * stride_qh
        dout_head = dout + batch_at * stride_gb + kv_head_at * GROUP * stride_gh
    row_at = (batch_at * kv_heads + kv_head) * GROUP * n_tokens
    row_at = row_at + (row // PACK) * GROUP + row % PACK

    dk_acc = tl.zeros([KEYS, BLOCK_D], tl.float32)
    dv_acc = tl.zeros([KEYS, BLOCK_D], tl.float32)
    end = key
    for KIND in tl.static_range(3):
        # Whole tiles come first: what only the others need is read after that loop, not kept,
        # as registers are what limits it.
        if KIND == PARTIAL:
            key = tl.load(entry, volatile=True) * KEYS + column
            end = tl.load(subtree_end + key, mask=key < n_tokens, other=0)
        span = entry + 2 + (KIND + 1) % 3
        dk_acc, dv_acc = attend_dkv(
            keys, values, dk_acc, dv_acc, q, dout, dq_sums, q_head, dout_head, q_at, dout_at,
            lse + row_at, delta + row_at, batch, kv_head, kv_heads, tl.load(span),
            tl.load(span + 1), stride_qh, stride_qn, stride_gh, stride_gn, key, end,
            n_tokens, scale_log2, GROUP, PACK, HEAD_DIM, BLOCK_D, ROWS, KIND, PRECISION, DQ, REDUCE,
            TMA, SPECIALIZE,
        )  # fmt: skip
    dk_acc = dk_acc * scale

    key = tl.load(entry, volatile=True) * KEYS + column
    slot = tl.load(entry + 1)
    if slot < 0:
        key_at = key[:, None].to(tl.int64)
        inside = (key[:, None] < n_tokens) & (dim[None, :] < HEAD_DIM)
        at = batch_at * stride_db + kv_head_at * stride_dh + key_at * stride_dn + dim[None, :]
        tl.store(dk + at, dk_acc.to(dk.dtype.element_ty), mask=inside)
        tl.store(dv + at, dv_acc.to(dv.dtype.element_ty), mask=inside)
    else:
        sums = chunk_sums + (slot.to(tl.int64) * n_lanes + lane) * (2 * KEYS * BLOCK_D)
        sums = sums + column[:, None] * BLOCK_D + dim[None, :]
        tl.store(sums, dk_acc)
        tl.store(sums + KEYS * BLOCK_D, dv_acc)
