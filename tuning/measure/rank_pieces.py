"""What every rank runs in a pass: its micro-batches and dummies, for ranks that run together."""

from __future__ import annotations

import numpy as np

from kernels.ranks import Pieces, RankPiece
from packing.batch.passes import Pass, RankPass
from packing.packers.flat import PaddedBatch
from tuning.plan.plan import Layout


def rank_pieces(one: Pass, mode: Layout) -> Pieces:
    """Of every rank as many micro-batches as the rank with the most has.

    Raises RuntimeError, in AReaL's words, where it refuses the flat micro-batches.
    """
    cap = one.spec.max_tokens_per_mb
    if mode == "tree":
        return _in_step([_trees(rank, cap) for rank in one.ranks], one.trees_per_rank, cap)
    if mode == "flat":
        return tuple(
            tuple(
                RankPiece(_rows(rank.members, group), padded)
                for group, padded in zip(own.groups, own.padded_to, strict=True)
            )
            for rank, own in zip(one.ranks, one.flat, strict=True)
        )
    rectangles = [PaddedBatch.of(rank.lengths) for rank in one.ranks]
    pieces = [
        [
            RankPiece(_rows(rank.members, group), max(len(group) * whole.width, 1))
            for group in whole.micro_batches(cap)
        ]
        for rank, whole in zip(one.ranks, rectangles, strict=True)
    ]
    widest = max(1, *(whole.width for whole in rectangles))
    return _in_step(pieces, max(map(len, pieces)), widest)


def _trees(rank: RankPass, cap: int) -> list[RankPiece]:
    return [
        RankPiece(tuple(rank.members[rank.tree_of_member == tree].tolist()), cap)
        for tree in range(rank.n_trees)
    ]


def _rows(
    members: np.ndarray[tuple[int], np.dtype[np.int64]], at: tuple[int, ...]
) -> tuple[int, ...]:
    return tuple(members[list(at)].tolist())


def _in_step(ranks: list[list[RankPiece]], most: int, dummy: int) -> Pieces:
    """Dummies of ``dummy`` tokens where a rank has fewer than ``most``."""
    return tuple(tuple([*own, *[RankPiece((), dummy)] * (most - len(own))]) for own in ranks)
