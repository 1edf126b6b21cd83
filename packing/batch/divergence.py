"""Divergence: where rows almost share, and what it costs.

A date in the system prompt, an id, reasoning stripped from earlier turns, a word cut into other
tokens at a turn boundary: rows part early, and what follows is the same text again, but a trie
cannot share it. Every branch point of the trie is asked whether its strands become equal again
(``realignment``); places that part alike are one finding; its gain is computed, not guessed: the
differing pieces are cut out of the rows, and AReaL's way of the batch so changed is counted.

Notable:
- the pieces themselves still count, once each: the gain is only what follows them
- branch points are asked in the order of what could be gained there at most
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packing.batch.pipeline import simulate
from packing.batch.realignment import BranchPoints, Place
from packing.batch.spec import BatchSpec
from packing.prefixes import PrefixOrder
from packing.rows import Rows, offsets_of

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_TOKENS_READ = 30_000_000  # at most so many tokens are hashed (~4 s)
_BRANCH_POINT_COST = 2_000  # what a branch point costs beside its tokens, in tokens
_CONTEXT = 24  # token ids given before and after the pieces
_PIECES = 8  # pieces given as examples
_MEASURED = 2  # findings measured for each one returned: estimates rank them first


@dataclass(frozen=True)
class Divergence:
    """Rows that part although the same tokens follow.

    position:     tokens before the parting, at the place with most to gain
    places:       branch points in the trie that part in this way
    n_rows:       rows that hold one of the pieces
    n_groups:     prompt groups of those rows
    rows:         two row numbers that part there
    before:       token ids before the parting (at most 24)
    pieces:       the differing token ids of some strands (at most 8), the shortest first; may be ()
    after:        token ids that follow in all of them (at most 24)
    equal_tokens: tokens equal after the pieces (median over the strands there)
    tokens_saved: tokens that one tree of all rows would not hold if what follows were shared
    tree_tokens:  tokens in the trees of one update, as it is and without the pieces
    paid_tokens:  tokens that run through the model in it, as it is and without the pieces
    """

    position: int
    places: int
    n_rows: int
    n_groups: int
    rows: tuple[int, int]
    before: tuple[int, ...]
    pieces: tuple[tuple[int, ...], ...]
    after: tuple[int, ...]
    equal_tokens: int
    tokens_saved: int
    tree_tokens: tuple[int, int]
    paid_tokens: tuple[int, int]


def find_divergences(
    rows: Rows, order: PrefixOrder, spec: BatchSpec, limit: int = 10
) -> list[Divergence]:
    """At most ``limit`` divergences that help, the most paid tokens to gain first.

    order: ``PrefixOrder.of(rows)``. First fit may lose by the way what the trie gains: what would
    make the update's trees larger, or pay more, is left out. Token ids are given as they are;
    ``rows.text`` makes them readable. Raises BatchRefused where AReaL stops at the batch.
    """
    if not rows.n_tokens:
        return []
    branch_points = BranchPoints(rows, order)
    kinds: dict[tuple[object, ...], list[Place]] = {}
    for place in _all_places(branch_points):
        kinds.setdefault(_kind(rows, place), []).append(place)
    promising = sorted(kinds.values(), key=lambda kind: -sum(place.gain for place in kind))
    measured = []
    for places in promising[: _MEASURED * limit]:
        saved = _tokens_saved(branch_points, places, _tokens_to_keep(rows, places))
        if saved > 0:
            measured.append((saved, places))
    measured.sort(key=lambda finding: -finding[0])
    everything = np.arange(len(rows))
    now = simulate(rows, spec, order)
    found = []
    for saved, places in measured[:limit]:
        then = simulate(_kept(rows, _tokens_to_keep(rows, places), everything), spec)
        trees, paid = (now.tree_tokens, then.tree_tokens), (now.paid_tokens, then.paid_tokens)
        if trees[1] < trees[0] and paid[1] <= paid[0]:
            by_gain = sorted(places, key=lambda place: -place.gain)
            found.append(_described(rows, by_gain, saved, trees, paid))
    return sorted(found, key=lambda d: (d.paid_tokens[1], -d.tokens_saved))


def _all_places(branch_points: BranchPoints) -> Iterator[Place]:
    """Places of all branch points; those inside the pieces of a place above belong to it."""
    found: dict[int, list[Place]] = {}
    inside: set[int] = set()
    left = _TOKENS_READ
    for node in branch_points.by_potential():
        if left < 0:
            break
        if node in inside:
            continue
        places, read = branch_points.places(node)
        left -= read + _BRANCH_POINT_COST
        if places:
            found[node] = places
            inside |= branch_points.nodes_inside(node, places)
    for node, places in found.items():
        if node not in inside:
            yield from places


def _kind(rows: Rows, place: Place) -> tuple[object, ...]:
    """Places part alike where the last tokens before are the same and a piece is empty, or not."""
    shortest = place.strands[0]
    before = rows[shortest.row][max(0, place.depth - 3) : place.depth]
    return (*before.tolist(), "empty" if shortest.piece == 0 else "other")


def _tokens_saved(branch_points: BranchPoints, places: list[Place], keep: Bools) -> int:
    """Tokens the unsplit tree loses without the pieces, beyond the pieces themselves.

    ``keep``: which tokens of all rows stay. Rows that run through none of the places share nothing
    with the others below them, so they need not be counted.
    """
    rows = branch_points.rows
    scope = np.unique(np.concatenate([branch_points.rows_below(p.node) for p in places]))
    pieces = 0
    for place in places:
        texts = [rows[s.row][place.depth : place.depth + s.piece] for s in place.strands]
        pieces += PrefixOrder.of(Rows.from_lists(texts)).tree_tokens()
    after = PrefixOrder.of(_kept(rows, keep, scope)).tree_tokens()
    return branch_points.order.tree_tokens(scope) - after - pieces


def _described(
    rows: Rows, places: list[Place], saved: int, trees: tuple[int, int], paid: tuple[int, int]
) -> Divergence:
    touched = np.unique(np.concatenate([s.rows for place in places for s in place.strands]))
    best = places[0]
    one = best.strands[0]
    other = best.strands[1]
    start = best.depth + one.piece
    equal = int(np.median([strand.equal for strand in best.strands[1:]]))
    examples = [
        tuple(rows[s.row][best.depth : best.depth + s.piece].tolist()) for s in best.strands
    ]
    return Divergence(
        position=best.depth,
        places=len(places),
        n_rows=len(touched),
        n_groups=len(np.unique(rows.group[touched])),
        rows=(one.row, other.row),
        before=tuple(rows[one.row][max(0, best.depth - _CONTEXT) : best.depth].tolist()),
        pieces=tuple(dict.fromkeys(examples))[:_PIECES],
        after=tuple(rows[one.row][start : start + min(_CONTEXT, equal)].tolist()),
        equal_tokens=equal,
        tokens_saved=saved,
        tree_tokens=trees,
        paid_tokens=paid,
    )


def _tokens_to_keep(rows: Rows, places: list[Place]) -> Bools:
    """bool ``(total,)``: all tokens of all rows but the pieces."""
    keep = np.ones(rows.n_tokens, dtype=bool)
    for place in places:
        for strand in place.strands:
            for start in rows.offsets[strand.rows].tolist():
                keep[start + place.depth : start + place.depth + strand.piece] = False
    return keep


def _kept(rows: Rows, keep: Bools, members: Int64s) -> Rows:
    """The rows ``members`` (ascending) with only the tokens to keep."""
    inside = np.zeros(len(rows), dtype=bool)
    inside[members] = True
    keep = keep & np.repeat(inside, rows.lengths)
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    lengths = np.diff(kept_before[rows.offsets])[members]
    return Rows(rows.tokens[keep], offsets_of(lengths), rows.group[members])
