"""What the Triton kernels share: rows of a tile, walks over runs of key tiles, the tree's mask.

Notable:
- a tile comes by the copy engine where a tensor descriptor describes its tensor (``TMA``), which
  costs a thread no address and no register, and by pointers elsewhere
- places in a tree: ``WHOLE`` tiles need no mask; in ``PARTIAL`` ones every key lies before every
  query, so that one comparison is enough; ``DIAGONAL`` ones need both
"""

# The compiler gives these functions their types, each time it compiles them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

WHOLE: tl.constexpr = tl.constexpr(0)
PARTIAL: tl.constexpr = tl.constexpr(1)
DIAGONAL: tl.constexpr = tl.constexpr(2)


@triton.jit
def load_rows(
    pointers, inside, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BOUNDED: tl.constexpr
):
    """Rows of a tile, ``(rows, BLOCK_D)``; zeros past the head dim and, if bounded, not inside."""
    dim = tl.arange(0, BLOCK_D)
    if BOUNDED and HEAD_DIM == BLOCK_D:
        return tl.load(pointers, mask=inside[:, None], other=0.0)
    elif BOUNDED:
        return tl.load(pointers, mask=inside[:, None] & (dim[None, :] < HEAD_DIM), other=0.0)
    elif HEAD_DIM == BLOCK_D:
        return tl.load(pointers)
    else:
        return tl.load(pointers, mask=dim[None, :] < HEAD_DIM, other=0.0)


@triton.jit
def key_rows(
    x,
    batch,
    kv_head,
    tile,
    stride_n,
    n_tokens,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    KEYS: tl.constexpr,
    KIND: tl.constexpr,
    TMA: tl.constexpr,
):
    """Key tile ``(KEYS, BLOCK_D)`` of k or v: a descriptor, or a pointer to a head's first key."""
    if TMA:
        return x.load([batch, kv_head, tile * KEYS, 0]).reshape(KEYS, BLOCK_D)
    else:
        # Places within a tile fit 32 bits (the launcher sees to it), which saves registers.
        column = tl.arange(0, KEYS)
        at = column[:, None] * stride_n + tl.arange(0, BLOCK_D)[None, :]
        rows = x + tile.to(tl.int64) * KEYS * stride_n + at
        # Only keys of the diagonal can lie behind the last query.
        inside = tile * KEYS + column < n_tokens
        return load_rows(rows, inside, HEAD_DIM, BLOCK_D, KIND == DIAGONAL)


@triton.jit
def masked(scores, query, key, end, KIND: tl.constexpr):
    """Scores, -inf where ``query`` does not see ``key``, whose subtree stops at ``end``."""
    seen = query < end
    if KIND == DIAGONAL:
        seen = seen & (key <= query)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def following(tile, left, run):
    """The key tile after ``tile``, the tiles left of its run, that tile included, and its run.

    run: pointer to ``(first tile, tiles)`` of the run that ``tile`` is in; one more is readable.
    """
    left -= 1
    over = left == 0
    run += tl.where(over, 2, 0)
    tile = tl.load(run, mask=over, other=tile + 1)
    left = tl.load(run + 1, mask=over, other=left)
    return tile, left, run
