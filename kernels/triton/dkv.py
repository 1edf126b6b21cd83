"""The Triton kernels of tree attention's dK and dV: one program per chunk of a key tile's queries.

Notable:
- the queries that see a key tile lie in one contiguous range, so it needs no list
- a key tile of a shared trunk is seen by almost every query, so its range is cut into chunks that
  run side by side and ``sum_chunks_kernel`` adds them in a fixed order: no atomics, same bits
- a program walks all query heads of its key head: keys and values are read once for all of them
"""

# The compiler gives these functions their types, each time it compiles them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.forward import load_rows


@triton.jit
def attend_dkv(
    k,
    v,
    dk,
    dv,
    q_head,
    dout_head,
    q_at,
    dout_at,
    lse_rows,
    delta_rows,
    first,
    jump_after,
    jump,
    count,
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
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds the part of ``count`` query tiles to dk (not yet scaled) and dv ``(KEYS, BLOCK_D)``.

    Tiles run from ``first``; after ``jump_after`` of them ``jump`` tiles are left out (those are
    seen whole). Each is visited once per ``PACK`` heads of the key head's group.
    """
    TOKENS: tl.constexpr = ROWS // PACK
    PARTS: tl.constexpr = GROUP // PACK
    row = tl.arange(0, ROWS)
    for step in range(count * PARTS):
        nth = step // PARTS
        part = step % PARTS
        tile = first + nth
        if MASKED:
            tile += tl.where(nth < jump_after, 0, jump)
        token = tile.to(tl.int64) * TOKENS
        part_head = (part * PACK).to(tl.int64)
        q_token = tile * TOKENS + row // PACK
        q_tile = q_head + (token * stride_qn + part_head * stride_qh) + q_at
        dout_tile = dout_head + (token * stride_gn + part_head * stride_gh) + dout_at
        q = load_rows(q_tile, q_token, n_tokens, HEAD_DIM, BLOCK_D, MASKED)
        dout = load_rows(dout_tile, q_token, n_tokens, HEAD_DIM, BLOCK_D, MASKED)
        if MASKED:
            inside = q_token < n_tokens
            lse = tl.load(lse_rows + token * GROUP + part_head, mask=inside, other=float("inf"))
            lse = tl.where(lse == float("-inf"), float("inf"), lse)
        else:
            lse = tl.load(lse_rows + token * GROUP + part_head)
        scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        if MASKED:
            seen = (key[:, None] <= q_token[None, :]) & (q_token[None, :] < end[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        weights = tl.exp2(tl.fma(scores, scale_log2, -lse[None, :]))
        dv = tl.dot(weights.to(dout.dtype), dout, dv, input_precision=PRECISION)
        dweights = tl.dot(v, tl.trans(dout), input_precision=PRECISION)
        if MASKED:
            delta = tl.load(delta_rows + token * GROUP + part_head, mask=inside, other=0.0)
        else:
            delta = tl.load(delta_rows + token * GROUP + part_head)
        dscores = weights * (dweights - delta[None, :])
        dk = tl.dot(dscores.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def dkv_kernel(
    q,
    k,
    v,
    dout,
    dk,
    dv,
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
):
    """Writes dk and dv (both with strides ``stride_d*``) of one chunk of one key tile.

    chunks: int32 ``(chunks, 8)``: key tile; slot in ``chunk_sums`` or -1 if the tile is one chunk;
    first masked query tile, masked tiles before the whole ones, whole tiles skipped after those,
    masked tiles in all; first whole tile, whole tiles.
    chunk_sums: float32 ``(slots, B * Hkv, 2, KEYS, BLOCK_D)``, dk then dv.
    """
    program = tl.program_id(0)
    lane = program % n_lanes
    entry = chunks + (program // n_lanes) * 8
    batch = (lane // kv_heads).to(tl.int64)
    kv_head = (lane % kv_heads).to(tl.int64)
    first_key = tl.load(entry) * KEYS
    first_whole = tl.load(entry + 6)
    n_whole = tl.load(entry + 7)

    row = tl.arange(0, ROWS)
    column = tl.arange(0, KEYS)
    dim = tl.arange(0, BLOCK_D)
    key = first_key + column
    key_at = key[:, None].to(tl.int64)
    k_rows = k + batch * stride_kb + kv_head * stride_kh + key_at * stride_kn + dim[None, :]
    v_rows = v + batch * stride_vb + kv_head * stride_vh + key_at * stride_vn + dim[None, :]
    keys = load_rows(k_rows, key, n_tokens, HEAD_DIM, BLOCK_D, True)
    values = load_rows(v_rows, key, n_tokens, HEAD_DIM, BLOCK_D, True)

    # Places within a tile fit 32 bits (the launcher sees to it), which saves registers.
    q_head = q + batch * stride_qb + kv_head * GROUP * stride_qh
    dout_head = dout + batch * stride_gb + kv_head * GROUP * stride_gh
    q_at = (row % PACK)[:, None] * stride_qh + (row // PACK)[:, None] * stride_qn + dim[None, :]
    dout_at = (row % PACK)[:, None] * stride_gh + (row // PACK)[:, None] * stride_gn + dim[None, :]
    row_at = (batch * kv_heads + kv_head) * GROUP * n_tokens + (row // PACK) * GROUP + row % PACK

    dk_acc = tl.zeros([KEYS, BLOCK_D], tl.float32)
    dv_acc = tl.zeros([KEYS, BLOCK_D], tl.float32)
    dk_acc, dv_acc = attend_dkv(
        keys, values, dk_acc, dv_acc, q_head, dout_head, q_at, dout_at, lse + row_at,
        delta + row_at, first_whole, 0, 0, n_whole, stride_qh, stride_qn, stride_gh, stride_gn,
        key, key, n_tokens, scale_log2, GROUP, PACK, HEAD_DIM, BLOCK_D, ROWS, False, PRECISION,
    )  # fmt: skip
    # What only the masked tiles need is read here: registers are what limits the loop above.
    first_masked = tl.load(entry + 2)
    jump_after = tl.load(entry + 3)
    jump = tl.load(entry + 4)
    n_masked = tl.load(entry + 5)
    end = tl.load(subtree_end + key, mask=key < n_tokens, other=0)
    dk_acc, dv_acc = attend_dkv(
        keys, values, dk_acc, dv_acc, q_head, dout_head, q_at, dout_at, lse + row_at,
        delta + row_at, first_masked, jump_after, jump, n_masked, stride_qh, stride_qn, stride_gh,
        stride_gn, key, end, n_tokens, scale_log2, GROUP, PACK, HEAD_DIM, BLOCK_D, ROWS, True,
        PRECISION,
    )  # fmt: skip
    dk_acc = dk_acc * scale

    slot = tl.load(entry + 1)
    if slot < 0:
        inside = (key[:, None] < n_tokens) & (dim[None, :] < HEAD_DIM)
        at = batch * stride_db + kv_head * stride_dh + key_at * stride_dn + dim[None, :]
        tl.store(dk + at, dk_acc.to(dk.dtype.element_ty), mask=inside)
        tl.store(dv + at, dv_acc.to(dv.dtype.element_ty), mask=inside)
    else:
        sums = chunk_sums + (slot.to(tl.int64) * n_lanes + lane) * (2 * KEYS * BLOCK_D)
        sums = sums + column[:, None] * BLOCK_D + dim[None, :]
        tl.store(sums, dk_acc)
        tl.store(sums + KEYS * BLOCK_D, dv_acc)


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
