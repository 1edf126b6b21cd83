"""What longer rollouts do to a pick: rows grow while a model is trained.

Notable:
- AReaL stops at the first row that is longer than the cap, so the pick says how long rows may be
- rows are stretched by repeating tokens by their position alone: prefixes stay as shared as they
  are, prompts grow like answers, and what is counted of them is counted, not estimated
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from packing.batch.refusal import BatchRefused
from packing.prefixes import PrefixOrder
from packing.rows import Rows, offsets_of
from packing.spec import aligned
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import Headroom, Pick

FACTORS = (1.2, 1.5, 2.0)


def with_headroom(
    pick: Pick | None,
    batch: Batch,
    plan: TuningPlan,
    memory_of: Callable[[int], int | None],
    budget_bytes: int,
    longest_row: int = 0,
) -> Pick | None:
    """``pick`` with how long rows may get, and what lengths x 1.2, 1.5 and 2 do to it.

    memory_of: peak bytes at a cap; longest_row: of all the data, where the batch is a part of it
    """
    if pick is None or pick.mode != "tree":
        return pick
    cap, rows = pick.max_tokens_per_mb, batch.rows
    longest = max(rows.longest, longest_row)
    found = []
    for factor in FACTORS:
        longer = int(longest * factor)
        wanted = max(cap, aligned(longer, plan.alignment))
        needed = memory_of(wanted)
        found.append(
            Headroom(
                factor,
                longer,
                wanted,
                _paid_ratio(stretched(rows, factor), plan, wanted),
                needed,
                None if needed is None else needed <= budget_bytes,
            )
        )
    held = f"It takes rows of up to {cap:,} tokens, {cap / max(longest, 1):.2f} times the longest"
    bound = longest_possible(rows, plan)
    if bound is not None:
        enough = "which it takes" if bound <= cap else "at which AReaL would stop"
        held += f"; max_new_tokens {plan.max_new_tokens:,} lets one reach {bound:,}, {enough}"
    return replace(
        pick, holds_up_to=cap, headroom=tuple(found), runner_up=f"{pick.runner_up} {held}.".strip()
    )


def stretched(rows: Rows, factor: float) -> Rows:
    """Every row ``factor`` times as long (rounded down); shared prefixes stay shared."""
    lengths = (rows.lengths * factor).astype(np.int64)
    offsets = offsets_of(lengths)
    inside = np.arange(int(lengths.sum())) - np.repeat(offsets[:-1], lengths)
    ends = np.repeat(rows.lengths - 1, lengths)
    taken = np.repeat(rows.offsets[:-1], lengths) + np.minimum((inside / factor).astype(int), ends)
    return Rows(rows.tokens[taken], offsets, rows.group)


def longest_possible(rows: Rows, plan: TuningPlan) -> int | None:
    """Tokens of the longest row that ``max_new_tokens`` allows; None where nobody knows.

    Of single turns: what is trained of a row is its end.
    """
    if not plan.max_new_tokens or rows.loss_mask is None or not len(rows):
        return None
    trained = rows.loss_mask.astype(bool)
    firsts = [
        int(np.argmax(trained[a:b])) if trained[a:b].any() else b - a
        for a, b in zip(rows.offsets[:-1].tolist(), rows.offsets[1:].tolist(), strict=True)
    ]
    return max(firsts) + plan.max_new_tokens


def _paid_ratio(rows: Rows, plan: TuningPlan, cap: int) -> float | None:
    try:
        return Batch(rows, PrefixOrder.of(rows)).simulation(plan, cap).padded_token_ratio
    except BatchRefused:
        return None
