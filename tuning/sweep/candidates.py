"""Which caps a sweep looks at, and what is counted of each before anything runs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from packing.batch.refusal import BatchRefused
from packing.spec import aligned
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import Candidate

CANDIDATES = 12
LEAST_CANDIDATES = 8
_TRIED_EACH = 3


def candidate_caps(
    batch: Batch, plan: TuningPlan, longest_row: int = 0, most: int | None = None
) -> list[int]:
    """Multiples of the alignment from the longest row to one tree for all; ascending.

    Caps are spread evenly on a logarithmic scale; around each the one that pays the fewest tokens
    is taken, for between two counts of trees the smallest cap pays the least.
    longest_row: of all the data, where the batch is a part of it
    most:        the largest that fits into memory, where that is known
    Raises BatchRefused where no cap can work.
    """
    if plan.caps:
        return sorted(set(plan.caps))
    step = plan.alignment
    low = aligned(max(batch.rows.longest, longest_row, 1), step)
    high = max(
        aligned(_largest_tree(batch, plan, aligned(max(batch.trie.n_tokens, low), step)), step), low
    )
    if most is not None:
        high = max(min(high, most // step * step), low)
    elif high - low < LEAST_CANDIDATES * step:
        high = low + (LEAST_CANDIDATES - 1) * step
    edges = np.geomspace(low, high + step, CANDIDATES + 1)
    caps = {low, high}
    for left, right in itertools.pairwise(edges):
        tried = {aligned(int(x), step) for x in np.geomspace(left, right, _TRIED_EACH + 1)[:-1]}
        inside = [cap for cap in tried if low <= cap <= high]
        if inside:
            caps.add(min(inside, key=lambda cap: (_paid(batch, plan, cap), cap)))
    now = plan.max_tokens_per_mb
    if low <= now <= high and now % step == 0:
        caps.add(now)
    for cap in range(low, high + 1, step):
        if len(caps) >= LEAST_CANDIDATES:
            break
        caps.add(cap)
    return sorted(caps)


def counted(batch: Batch, plan: TuningPlan, cap: int) -> Candidate:
    """Trees and ratios of one update of the model at a cap; refused where AReaL would stop."""
    try:
        simulation = batch.simulation(plan, cap)
    except BatchRefused as refused:
        return Candidate(cap, fits=False, refused=True, message=str(refused))
    return Candidate(
        cap,
        n_trees=simulation.n_trees,
        tree_token_ratio=simulation.tree_token_ratio,
        padded_token_ratio=simulation.padded_token_ratio,
        paid_tokens=simulation.paid_tokens,
    )


def _paid(batch: Batch, plan: TuningPlan, cap: int) -> int:
    """Of AReaL's packing, which is quick; ours needs its candidates at much the same places."""
    return batch.simulation(replace(plan, packer="areal"), cap).paid_tokens


def _largest_tree(batch: Batch, plan: TuningPlan, cap: int) -> int:
    """Tokens of the largest tree where the cap is no limit."""
    simulation = batch.simulation(replace(plan, packer="areal"), cap)
    return int(simulation.packing.tokens_per_tree.max(initial=1))
