"""BatchRefused: where AReaL would stop at a batch, its own words, and the change that mends it.

Notable:
- a mend is worked out from the batch, never a guess: the least legal cap holds the longest row and
  is aligned, ranks are divisors of the number of prompts
- ``fixes`` are the same as values, for a button or a test; the nearest to what was asked is first
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from packing.batch.spec import BatchSpec
from packing.packers.areal import RowTooLong
from packing.spec import aligned, check_spec

Int64s = npt.NDArray[np.int64]
Fix = Mapping[str, int]
"""Fields of BatchSpec and their values; ``n_groups`` is the number of prompts in the batch."""

DEEPEST_PATH = 990
"""Nodes on one path of a tree beyond which AReaL's recursion ends (900 work, 1,100 fail)."""


class BatchRefused(ValueError):
    """AReaL stops at this batch.

    words: AReaL's own; mend: what to change, in one sentence; fixes: the changes as values, each
           enough by itself
    """

    def __init__(self, words: str, mend: str, fixes: Sequence[Fix] = ()) -> None:
        super().__init__(f"AReaL stops: “{words}” {mend}")
        self.words = words
        self.mend = mend
        self.fixes = tuple(fixes)


def no_rows() -> BatchRefused:
    """A batch without any row: there is no tree whose length could be the longest."""
    return BatchRefused(
        "max() arg is an empty sequence", "There are no rows in this batch: choose other data."
    )


def undivided(words: str, n_groups: int, dp_size: int) -> BatchRefused:
    """The prompts of a batch do not divide over its ranks."""
    ranks = [r for r in range(1, n_groups + 1) if n_groups % r == 0]
    below = max((r for r in ranks if r < dp_size), default=None)
    above = min((r for r in ranks if r > dp_size), default=None)
    near = [r for r in (below, above) if r is not None]
    # Fewer prompts are always at hand; more only where even the least count asks for them.
    prompts = [n_groups // dp_size * dp_size or dp_size]
    fixes = [{"dp_size": r} for r in near] + [{"n_groups": count} for count in prompts]
    return BatchRefused(
        words,
        f"{_count(n_groups, 'prompt')} do not divide over {dp_size:,} data-parallel ranks: choose "
        f"{_either(near)} ranks, or {_either(prompts)} prompts a step.",
        fixes,
    )


def too_few_rows(words: str, rows_of_ranks: Sequence[int], minibatches: int) -> BatchRefused:
    """A rank has fewer rows than PPO minibatches."""
    least = min(rows_of_ranks)
    return BatchRefused(
        words,
        f"A rank of this batch has {_count(least, 'row')}, and ppo_n_minibatches is "
        f"{minibatches:,}: choose {least:,} or fewer.",
        [{"ppo_n_minibatches": least}],
    )


def check_cap(spec: BatchSpec, rows: Int64s, lengths: Int64s, longest: int) -> None:
    """Raise BatchRefused where AReaL refuses the cap, or a row at it.

    rows:    int64 ``(n,)``, row numbers in the order they are fed; lengths: their tokens
    longest: tokens of the longest row of the whole batch, which the cap advised holds
    """
    cap, unit = spec.max_tokens_per_mb, spec.alignment
    least = aligned(max(longest, 1), unit)
    try:
        check_spec(spec.micro_batch, parallel_size=spec.parallel_size, block_size=spec.block_size)
    except ValueError as error:
        near = {c for c in (cap // unit * unit, aligned(cap, unit)) if c >= least} or {least}
        caps = sorted(near, key=lambda c: (abs(c - cap), c))
        raise BatchRefused(
            str(error),
            f"Choose max_tokens_per_mb {_either(caps)}.",
            [{"max_tokens_per_mb": c} for c in caps],
        ) from None
    over = np.flatnonzero(lengths > cap)
    if len(over):
        length = int(lengths[over[0]])
        also = "" if longest == length else f", the longest row {longest:,}"
        raise BatchRefused(
            str(RowTooLong(int(rows[over[0]]), length, cap)),
            f"Row {int(rows[over[0]]):,} has {length:,} tokens{also}: choose max_tokens_per_mb "
            f"{least:,} or more.",
            [{"max_tokens_per_mb": least}],
        )


def too_deep(levels: int) -> BatchRefused:
    """Rows nest as prefixes of one another on a path that AReaL walks by recursion."""
    return BatchRefused(
        "RecursionError: maximum recursion depth exceeded",
        f"{levels:,} nodes follow one another on a path of a tree, and AReaL walks them by "
        f"recursion (about {DEEPEST_PATH} are the most): keep only the longest of rows that are "
        "prefixes of one another (rollout.agent.export_style: concat).",
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _either(numbers: Sequence[int]) -> str:
    return " or ".join(f"{number:,}" for number in numbers)
