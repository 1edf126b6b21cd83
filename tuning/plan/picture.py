"""One batch padded, packed flat and as trees, as lines to scale: the tokens that each computes.

A line is one row of a padded batch, one flat micro-batch, or one tree; its length is what runs
through the model. Every line is split into tokens computed for the first time, tokens that another
row or tree computes as well, and padding (which holds the waiting for the slowest rank, too).

Notable:
- first-time tokens are those of one trie of all rows, whatever the mode: that part never shrinks
- more lines than a figure can hold are averaged in equal runs; sums stay exact
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packing.batch.passes import Pass
from packing.batch.simulation import BatchSimulation
from packing.packers.flat import PaddedBatch
from packing.prefixes import PrefixOrder
from tuning.plan.plan import Layout

Int64s = npt.NDArray[np.int64]
_Lines = tuple[Int64s, int]
"""int64 ``(lines, 3)``: first, again, padding; and how many lines are waiting alone."""

MAX_BANDS = 30
"""Three panels of so many bands of three parts each are 270 marks."""

_NAMES: dict[Layout, tuple[str, str, str]] = {
    "padded": ("Padded", "row", "rows"),
    "flat": ("Packed flat", "micro-batch", "micro-batches"),
    "tree": ("As trees", "tree", "trees"),
}


@dataclass(frozen=True)
class Band:
    """``lines`` neighbouring lines, each with so many tokens on average."""

    lines: int
    first: float
    again: float
    padding: float


@dataclass(frozen=True)
class Panel:
    """All lines of one mode.

    tokens:  what runs through the model: ``first + again + padding``
    first:   computed for the first time; again: computed elsewhere as well
    waiting: so many of the lines are no row and no micro-batch, but a rank that waits for another
             (dummy trees are trees: they are run)
    """

    mode: Layout
    lines: int
    tokens: int
    first: int
    again: int
    padding: int
    bands: tuple[Band, ...]
    waiting: int = 0

    @property
    def title(self) -> str:
        """``Packed flat · 17 micro-batches``."""
        name, one, many = _NAMES[self.mode]
        count = self.lines - self.waiting
        return f"{name} · {count:,} {one if count == 1 else many}"


@dataclass(frozen=True)
class BatchPicture:
    """The panels that can be drawn; flat and tree are missing where AReaL refuses them."""

    original_tokens: int
    panels: tuple[Panel, ...]


def batch_picture(simulation: BatchSimulation) -> BatchPicture:
    """Every line of one update of the model (all PPO minibatches, all ranks)."""
    order, updates = simulation.order, simulation.ppo_update
    new = _first_time_tokens(order, np.concatenate(simulation.rank_rows))
    panels = [_panel("padded", [_padded(one, new) for one in updates])]
    if simulation.comparison.flat is not None:
        panels.append(_panel("flat", [_flat(one, new) for one in updates]))
    panels.append(_panel("tree", [_trees(one, new) for one in updates]))
    return BatchPicture(simulation.original_tokens, tuple(panels))


def _first_time_tokens(order: PrefixOrder, rows: Int64s) -> Int64s:
    """int64 ``(all rows,)``: tokens of a row that no row before it in sorted order begins with."""
    ranks = np.sort(order.rank[rows])
    sorted_rows = order.order[ranks]
    new = np.zeros(len(order), dtype=np.int64)
    new[sorted_rows] = order.lengths[sorted_rows] - order.neighbour_lcps(ranks)
    return new


def _padded(update: Pass, new: Int64s) -> _Lines:
    batches = [PaddedBatch.of(rank.lengths) for rank in update.ranks]
    most = max(batch.tokens for batch in batches)
    parts = []
    for rank, batch in zip(update.ranks, batches, strict=True):
        first = new[rank.members]
        parts.append(np.stack([first, rank.lengths - first, batch.width - rank.lengths], axis=1))
        parts.append(_waiting(most - batch.tokens, batch.width))
    return np.concatenate(parts), sum(map(len, parts[1::2]))


def _flat(update: Pass, new: Int64s) -> _Lines:
    most = max(one.padded_tokens for one in update.flat)
    parts = []
    for rank, split in zip(update.ranks, update.flat, strict=True):
        first = np.array([new[rank.members[list(group)]].sum() for group in split.groups])
        tokens = np.array(split.group_lens)
        padding = np.array(split.padded_to) - tokens
        parts.append(np.stack([first, tokens - first, padding], axis=1))
        parts.append(_waiting(most - split.padded_tokens, update.spec.max_tokens_per_mb))
    return np.concatenate(parts), sum(map(len, parts[1::2]))


def _trees(update: Pass, new: Int64s) -> _Lines:
    cap = update.spec.max_tokens_per_mb
    parts = []
    for rank in update.ranks:
        inside = rank.tree_of_member >= 0
        tree, tokens = rank.tree_of_member[inside], rank.tokens_per_tree
        first = np.bincount(tree, new[rank.members[inside]], rank.n_trees).astype(np.int64)
        parts.append(np.stack([first, tokens - first, cap - tokens], axis=1))
        parts.append(_waiting(rank.dummies * cap, cap))
    return np.concatenate(parts), 0


def _waiting(tokens: int, width: int) -> Int64s:
    """Lines of padding alone: what a rank runs, or waits for, beside its own."""
    whole, rest = divmod(tokens, max(width, 1))
    lines = np.zeros((whole + bool(rest), 3), dtype=np.int64)
    lines[:, 2] = width
    if rest:
        lines[-1, 2] = rest
    return lines


def _panel(mode: Layout, passes: Sequence[_Lines]) -> Panel:
    lines = np.concatenate([one for one, _ in passes])
    run = max(-(-len(lines) // MAX_BANDS), 1)
    bands = []
    for at in range(0, len(lines), run):
        part = lines[at : at + run]
        first, again, padding = part.mean(axis=0).tolist()
        bands.append(Band(len(part), first, again, padding))
    first, again, padding = lines.sum(axis=0).tolist()
    return Panel(
        mode,
        len(lines),
        int(lines.sum()),
        first,
        again,
        padding,
        tuple(bands),
        sum(waiting for _, waiting in passes),
    )
