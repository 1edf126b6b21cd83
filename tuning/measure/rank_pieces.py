"""What every rank runs in a pass: its micro-batches and dummies, for ranks that run together."""

from __future__ import annotations

import numpy as np

from kernels.ranks import Pieces, RankPiece
from packing.batch.simulation import BatchSpec, Pass, RankPass
from packing.packers.flat import PaddedBatch, split_synchronised
from packing.packers.prefix_aware import pack_prefix_aware
from packing.prefixes import PrefixOrder
from tuning.plan.plan import Layout


def rank_pieces(
    order: PrefixOrder, one: Pass, plan: BatchSpec, mode: Layout, packer: str = "areal"
) -> Pieces:
    """Of every rank as many micro-batches as the rank with the most has.

    Raises RuntimeError, in AReaL's words, where it refuses the flat micro-batches.
    """
    cap = plan.max_tokens_per_mb
    if mode == "tree":
        trees = [_trees(order, rank, cap, packer) for rank in one.ranks]
        return _in_step([[RankPiece(rows, cap) for rows in own] for own in trees], cap)
    lengths = [order.lengths[rank.members] for rank in one.ranks]
    if mode == "flat":
        split = split_synchronised(lengths, plan.spec, plan.padding)
        return tuple(
            tuple(
                RankPiece(_rows(rank.members, group), padded)
                for group, padded in zip(own.groups, own.padded_to, strict=True)
            )
            for rank, own in zip(one.ranks, split, strict=True)
        )
    rectangles = [PaddedBatch.of(own) for own in lengths]
    pieces = [
        [
            RankPiece(_rows(rank.members, group), max(len(group) * whole.width, 1))
            for group in whole.micro_batches(cap)
        ]
        for rank, whole in zip(one.ranks, rectangles, strict=True)
    ]
    return _in_step(pieces, max(1, *(whole.width for whole in rectangles)))


def _trees(order: PrefixOrder, rank: RankPass, cap: int, packer: str) -> list[tuple[int, ...]]:
    if packer == "areal":
        of_member, members, n_trees = rank.tree_of_member, rank.members, rank.n_trees
    else:
        packing = pack_prefix_aware(order, cap, rank.members)
        members, n_trees = packing.arrival, packing.n_trees
        of_member = packing.tree_of_row[members]
    return [tuple(members[of_member == tree].tolist()) for tree in range(n_trees)]


def _rows(
    members: np.ndarray[tuple[int], np.dtype[np.int64]], at: tuple[int, ...]
) -> tuple[int, ...]:
    return tuple(members[list(at)].tolist())


def _in_step(ranks: list[list[RankPiece]], dummy: int) -> Pieces:
    """Dummies of ``dummy`` tokens where a rank has fewer."""
    most = max(map(len, ranks))
    return tuple(tuple([*own, *[RankPiece((), dummy)] * (most - len(own))]) for own in ranks)
