"""Filling trees from the leaves up: each subtree packs itself and hands up what is left.

A branch point whose subtree fits one tree becomes one *piece*. One that does not fit fills trees
of its own (their trunk is paid anyway) and hands up the trees that are not full, as pieces that a
node above can fill further.

Notable:
- a tree is filled like a bin: the largest piece first, then the set of pieces that comes closest
  to the room left (subset sums as bits of one integer), large ones preferred: small ones are kept
  for last, where they fill gaps
- a gap that no piece fits is filled by a part of one, at the price of its trunk once more
- branch points that add only few tokens to their trunk are looked through: a shared first word
  is not worth a tree of its own
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from packing.packers.leaves import Branches

_CANDIDATES = 64  # pieces looked at to fill one gap: 2**64 sums are enough to come close
_SPLIT_CANDIDATES = 8  # pieces tried to fill a gap with a part of one
_SPLIT_LEVELS = 6  # branch points gone down to find that part


@dataclass(frozen=True)
class Recipe:
    """How to fill: one member of the portfolio.

    short_edge: a branch point with at most so many tokens of its own is looked through
    tolerance:  tokens of room at which a tree counts as full
    split:      whether a gap may be filled with a part of a piece
    """

    short_edge: int
    tolerance: int
    split: bool


class Branch:
    """Leaves that stay together: tokens with their trunk, depth of the trunk, parts below it."""

    __slots__ = ("depth", "leaf", "parts", "tokens")

    def __init__(self, tokens: int, depth: int, parts: list[Branch], leaf: int = -1) -> None:
        self.tokens = tokens
        self.depth = depth
        self.parts = parts
        self.leaf = leaf

    def leaves(self) -> list[int]:
        """Ascending leaf numbers of the piece."""
        found, stack = [], [self]
        while stack:
            piece = stack.pop()
            if piece.parts:
                stack.extend(piece.parts)
            else:
                found.append(piece.leaf)
        return sorted(found)


def fill_trees(
    lengths: list[int],
    shared: list[int],
    max_tokens_per_mb: int,
    recipe: Recipe,
    random: Random | None = None,
) -> list[list[int]]:
    """Trees as ascending leaf numbers.

    lengths: tokens of each leaf ``(L,)``, L >= 1; shared: tokens shared with the leaf before.
    random: where given, half of the trees start from another large piece than the largest.
    """
    branches = Branches.of(lengths, shared)
    parent, depth, root = branches.parent, branches.depth, branches.root
    pools: list[list[Branch]] = [[] for _ in parent]
    full: list[Branch] = []
    for node in branches.bottom_up():
        pool = pools[node]
        pools[node] = []
        if node < len(lengths):
            up = [Branch(depth[node], depth[node], [], node)]
        elif _joined_tokens(pool, depth[node]) <= max_tokens_per_mb:
            up = [_join(pool, depth[node])]
        elif node != root and depth[node] - depth[parent[node]] <= recipe.short_edge:
            up = pool
        else:
            closed, up = _fill(pool, depth[node], max_tokens_per_mb, recipe, random)
            full += closed
        if node == root:
            full += up
        else:
            above = parent[node]
            if len(up) > len(pools[above]):
                up, pools[above] = pools[above], up
            pools[above] += up
    return [piece.leaves() for piece in full]


def _joined_tokens(pieces: list[Branch], depth: int) -> int:
    return depth + sum(piece.tokens for piece in pieces) - depth * len(pieces)


def _join(pieces: list[Branch], depth: int) -> Branch:
    if len(pieces) == 1:
        return pieces[0]
    return Branch(_joined_tokens(pieces, depth), depth, pieces)


def _tokens(piece: Branch) -> int:
    return piece.tokens


def _fill(
    pieces: list[Branch], depth: int, cap: int, recipe: Recipe, random: Random | None
) -> tuple[list[Branch], list[Branch]]:
    """Full trees, and trees with room, of pieces that share ``depth`` tokens."""
    pool = sorted(pieces, key=_tokens)
    full: list[Branch] = []
    with_room: list[Branch] = []
    left = _joined_tokens(pool, depth)
    while left > cap:
        first = len(pool) - 1
        if random and random.random() < 0.5:
            first = random.randrange(len(pool) * 2 // 3, len(pool))
        tree = [pool.pop(first)]
        gap = cap - tree[0].tokens
        for at in _closest_subset(pool, depth, gap):
            gap -= pool[at].tokens - depth
            tree.append(pool.pop(at))
        left -= cap - gap - depth
        if recipe.split and gap > recipe.tolerance:
            part, added = _split_off(pool, depth, gap, recipe.tolerance)
            if part is not None:
                gap -= part.tokens - depth
                left += added
                tree.append(part)
        (full if gap <= recipe.tolerance else with_room).append(_join(tree, depth))
    if pool:
        with_room.append(_join(pool, depth))
    return full, with_room


def _closest_subset(pool: list[Branch], depth: int, gap: int) -> list[int]:
    """Descending indices into ``pool`` (ascending by tokens) that together come closest to ``gap``.

    Bit ``s`` of ``sums[k]`` tells that some of the first ``k`` candidates add ``s`` tokens.
    """
    fitting = bisect_right(pool, gap + depth, key=_tokens)
    candidates: Sequence[int] = range(fitting)
    if fitting > _CANDIDATES:
        half = _CANDIDATES // 2
        spread = range(0, (fitting - half) * half, fitting - half)
        candidates = [*(at // half for at in spread), *range(fitting - half, fitting)]
    within = (1 << (gap + 1)) - 1
    sums = [1]
    for at in candidates:
        reached = sums[-1]
        sums.append(reached | (reached << (pool[at].tokens - depth)) & within)
    rest = sums[-1].bit_length() - 1
    chosen = []
    for k in range(len(candidates) - 1, -1, -1):
        adds = pool[candidates[k]].tokens - depth
        if adds <= rest and sums[k] >> (rest - adds) & 1:
            chosen.append(candidates[k])
            rest -= adds
    return chosen


def _split_off(
    pool: list[Branch], depth: int, gap: int, tolerance: int
) -> tuple[Branch | None, int]:
    """Take the part of a piece that fills ``gap`` best out of ``pool``.

    Returns the part and what the pool's tokens below ``depth`` changed by.
    """
    can_split = [p for p in pool if p.parts and p.depth - depth < gap]
    best: tuple[Branch, Branch, Branch] | None = None
    for piece in sorted(can_split, key=lambda p: p.depth)[:_SPLIT_CANDIDATES]:
        halves = _split(piece, depth, gap, tolerance, _SPLIT_LEVELS)
        if halves and (best is None or halves[0].tokens > best[1].tokens):
            best = (piece, *halves)
    if best is None:
        return None, 0
    piece, part, rest = best
    at = bisect_left(pool, piece.tokens, key=_tokens)
    while pool[at] is not piece:
        at += 1
    del pool[at]
    pool.insert(bisect_left(pool, rest.tokens, key=_tokens), rest)
    return part, rest.tokens - piece.tokens


def _split(
    piece: Branch, depth: int, gap: int, tolerance: int, levels: int
) -> tuple[Branch, Branch] | None:
    """A part of ``piece`` that adds at most ``gap`` tokens below ``depth``, and the rest of it."""
    gap -= piece.depth - depth
    if not piece.parts or gap <= 0:
        return None
    parts = sorted(piece.parts, key=_tokens)
    chosen = []
    for at in _closest_subset(parts, piece.depth, gap):
        gap -= parts[at].tokens - piece.depth
        chosen.append(parts.pop(at))
    if gap > tolerance and levels:
        for inner in parts[: -_SPLIT_CANDIDATES - 1 : -1]:
            halves = _split(inner, piece.depth, gap, tolerance, levels - 1)
            if halves:
                parts.remove(inner)
                chosen.append(halves[0])
                parts.append(halves[1])
                break
    if not chosen or not parts:
        return None
    return _join(chosen, piece.depth), _join(parts, piece.depth)
