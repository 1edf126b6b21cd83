"""A plan's batch as measured steps read it: its shares, what the loss reads, what is asked of it.

Notable:
- ``tiny`` and ``small`` fold token ids into their own vocabulary: else the head of a foreign
  tokenizer's 150,000 ids would be all of the step
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import torch

from kernels.model import StepData, check_config, resolve_config
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tuning.jobs.points import Point, Question
from tuning.measure.machine import versions
from tuning.measure.shares import Share, folded, logp_share_of, share_of
from tuning.plan.batch import Batch
from tuning.plan.models import HUB_IDS
from tuning.plan.plan import Layout, TuningPlan


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is run for a point: ``ppo_update`` and ``compute_logp``, and the packing of each.

    blank: the point with all that is counted
    """

    blank: Point
    share: Share
    logp: Share
    packing_s: float
    logp_packing_s: float


def vocabulary_at_least(plan: TuningPlan, rows: Rows) -> int:
    """The vocabulary that a model needs for the ids of ``rows``; 0 where ids are folded."""
    random = HUB_IDS.get(plan.model.lower(), plan.model) is None
    return 0 if random else int(rows.tokens.max(initial=0)) + 1


class MeasuredBatch:
    """A batch, ready to be run by the plan's model.

    machine: the device as the history names it
    Raises ModelNotFound or UnsupportedModel.
    """

    def __init__(self, plan: TuningPlan, rows: Rows, device: torch.device, machine: str) -> None:
        config = resolve_config(plan.model, vocabulary_at_least(plan, rows))
        check_config(config)
        vocabulary = int(config.vocab_size)
        self.plan = plan
        self.batch = Batch(rows, PrefixOrder.of(rows))
        self.device, self.machine = device, machine
        self.notes: tuple[str, ...] = ()
        self.read = rows
        if int(rows.tokens.max(initial=0)) >= vocabulary:
            self.read = folded(rows, vocabulary)
            self.notes = (f"token ids folded into a vocabulary of {vocabulary:,}",)
        random = np.random.default_rng(0)
        # Old log-probabilities near a random model's, advantages of both signs: an ordinary update.
        old = np.full(rows.n_tokens, -np.log(vocabulary), dtype=np.float32)
        advantage = np.repeat(random.standard_normal(len(rows)), rows.lengths)
        self.data = StepData.of(self.read, old, advantage)

    def question(self, mode: Layout, cap: int) -> Question:
        data = self.batch.rows.fingerprint
        return Question.of(self.plan, mode, cap, data, self.machine, torch.__version__)

    def share(self, mode: Layout, cap: int) -> Share:
        """Raises BatchRefused, or RuntimeError in AReaL's words where it refuses flat packing."""
        return share_of(self.read, self.batch.simulation(self.plan, cap), mode)

    def logp_share(self, mode: Layout, cap: int) -> Share:
        """The share of ``compute_logp``; raises as ``share`` does."""
        return logp_share_of(self.read, self.batch.simulation(self.plan, cap), mode)

    def blank(self, mode: Layout, cap: int) -> Point:
        """A point of now, nothing known yet."""
        return Point(
            self.question(mode, cap),
            "refused",
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(self.device),
            notes=self.notes,
        )

    def prepared(self, blank: Point) -> Prepared | Point:
        """What a blank point asks for, packed and counted; the point itself where it is refused."""
        mode, cap = blank.question.mode, blank.question.max_tokens_per_mb
        begun = time.perf_counter()
        try:
            share = self.share(mode, cap)
            packed = time.perf_counter()
            # With one minibatch it is the same micro-batches, packed as long.
            logp = share if self.plan.ppo_n_minibatches == 1 else self.logp_share(mode, cap)
        except (ValueError, RuntimeError) as error:
            return replace(blank, message=str(error))
        packing_s = packed - begun
        counted = replace(
            blank,
            original_tokens=self.batch.rows.n_tokens,
            tree_tokens=share.tree_tokens,
            n_trees=share.n_trees,
            padded_tokens=int(share.features["padded_tokens"]),
            features=share.features,
        )
        logp_packing_s = packing_s if logp is share else time.perf_counter() - packed
        return Prepared(counted, share, logp, packing_s, logp_packing_s)
