"""What the user's own rows tell: lengths, minibatches, shapes of trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from packing.batch.dispatch import Dispatch
from packing.batch.passes import Comparison
from packing.batch.pipeline import simulate
from packing.batch.refusal import DEEPEST_PATH, BatchRefused
from packing.batch.simulation import BatchSimulation
from packing.batch.spec import BatchSpec
from packing.metrics import padded_token_ratio, tree_token_ratio
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import whole_trie
from tuning.doctor.rules.base import Case, Found, rule

_CAP = "mb_spec.max_tokens_per_mb"
_MANY_NODES = 128
"""Nodes of a tree from which cutting the logits outweighs the rest of a small loss."""


@dataclass(eq=False)
class _Batch:
    """One batch of the user's rows as the config draws it, as far as the rows reach.

    plan: None where a row is longer than the cap, or there is no cap
    """

    rows: Rows
    order: PrefixOrder
    plan: BatchSpec | None
    chains: dict[int, BatchSimulation | Exception] = field(default_factory=dict)

    def chain(self, minibatches: int) -> BatchSimulation | Exception | None:
        """The batch in this many minibatches, or AReaL's refusal; None without a plan."""
        if self.plan is not None and minibatches not in self.chains:
            plan = replace(self.plan, ppo_n_minibatches=minibatches)
            try:
                self.chains[minibatches] = simulate(self.rows, plan, order=self.order)
            except (ValueError, RuntimeError) as error:
                self.chains[minibatches] = error
        return self.chains.get(minibatches)


def _batch(case: Case) -> _Batch | None:
    if "batch" not in case.memo:
        case.memo["batch"] = _draw(case)
    found: _Batch | None = case.memo["batch"]
    return found


def _chain(case: Case, minibatches: int = 1) -> BatchSimulation | None:
    """The batch as it is packed; None where there is none, or AReaL refuses it."""
    batch = _batch(case)
    chain = None if batch is None else batch.chain(minibatches)
    return chain if isinstance(chain, BatchSimulation) else None


def _groups(case: Case) -> int:
    return 0 if case.rows is None else len(np.unique(case.rows.group))


def _draw(case: Case) -> _Batch | None:
    if case.rows is None:
        return None
    ranks = 1 if case.backend is None else case.backend.data
    groups = _groups(case)
    usable = min(case.batch_size or groups, groups) // ranks * ranks
    if not usable:
        return None
    rows = case.rows.first_groups(usable)
    plan = None
    if case.cap is not None and rows.longest <= case.cap:
        dispatch: Dispatch = "spmd" if case.spmd else "controller"
        plan = BatchSpec(case.cap, dp_size=ranks, dispatch=dispatch, block_size=case.block)
    return _Batch(rows, PrefixOrder.of(rows), plan)


def _minibatches(case: Case) -> int:
    """As the file has it; a file without a PPO actor counts as one."""
    return (case.minibatches or 1) if case.is_ppo else 1


@rule(
    "row-too-long",
    "fails at first batch",
    "models/tree_attn/tree.py:509; utils/seqpack.py:243",
    "engine",
)
def row_too_long(case: Case) -> Iterator[Found]:
    if case.rows is None or case.cap is None or case.rows.longest <= case.cap:
        return
    lengths = case.rows.lengths
    row, over = int(lengths.argmax()), int((lengths > case.cap).sum())
    up = -(-case.rows.longest // case.block) * case.block
    yield case.found(
        _CAP,
        f"{over:,} of your {len(case.rows):,} rows are longer than max_tokens_per_mb = "
        f"{case.cap:,}; the longest, row {row}, has {case.rows.longest:,} tokens.",
        f"Set {case.path(_CAP)} to {up} or more.",
        f"Sequence length {case.rows.longest} exceeds max_tokens_per_tree {case.cap}; "
        "adjust limit or split sequences."
        if case.trees
        else f"Values [{case.rows.longest}] is larger than capacity {case.cap}",
        to=up,
    )


@rule("rows-do-not-reach", "no effect", "your rows", "file")
def rows_do_not_reach(case: Case) -> Iterator[Found]:
    wanted, groups = case.batch_size, _groups(case)
    if wanted and 0 < groups < wanted:
        yield Found(
            f"Your rows hold {groups:,} prompts; a batch has {wanted:,}. Figures are of a smaller "
            "batch.",
            "Give more rows for figures of a whole batch.",
            path="train_dataset.batch_size",
            when="only in this report",
        )


@rule("prompts-divide", "fails at first batch", "utils/seqpack.py:540", "file")
def prompts_divide(case: Case) -> Iterator[Found]:
    """Where the file has no batch size, the rows are the batch."""
    if case.rows is None or case.backend is None or case.config.has("train_dataset.batch_size"):
        return
    groups, ranks = _groups(case), case.backend.data
    if groups % ranks:
        yield case.found(
            "backend",
            f"Your {groups:,} prompts do not divide over {ranks} data-parallel ranks.",
            f"Take a batch of {groups // ranks * ranks} or {-(-groups // ranks) * ranks} prompts."
            if groups > ranks
            else f"Take a batch of {ranks} prompts.",
            "The length of nums must be divisible by K.",
        )


@rule("scatter-cost", "slow", "trainer/ppo/actor.py:454; counted on your rows", "actor")
def scatter_cost(case: Case) -> Iterator[Found]:
    minibatches = _minibatches(case)
    whole, parts = _chain(case), _chain(case, minibatches)
    if whole is None or parts is None or minibatches == 1:
        return
    before, after = _update_ratio(whole), _update_ratio(parts)
    if after <= before:
        return
    yield case.found(
        "ppo_n_minibatches",
        f"ppo_n_minibatches = {minibatches} scatters samples of one prompt. On your rows the "
        f"update's tree_token_ratio is {after:.3f} instead of {before:.3f}, and it pays "
        f"{parts.comparison.tree / whole.comparison.tree:.2f}× the tokens (exact).",
        f"{case.path('ppo_n_minibatches')}: 1 makes one optimizer step of {minibatches}; that is "
        "another algorithm.",
    )


def _update_ratio(chain: BatchSimulation) -> float:
    tokens = sum(one.tokens for one in chain.ppo_update)
    return tree_token_ratio(sum(one.tree_tokens for one in chain.ppo_update), tokens)


@rule("minibatch-too-small", "fails at first batch", "utils/seqpack.py:243", "file")
def minibatch_too_small(case: Case) -> Iterator[Found]:
    minibatches, batch = _minibatches(case), _batch(case)
    refusal = None if batch is None or minibatches == 1 else batch.chain(minibatches)
    if isinstance(refusal, BatchRefused) and "ppo_n_minibatches" in dict(*refusal.fixes[:1]):
        yield case.found(
            "ppo_n_minibatches",
            f"A rank of your rows' batch has fewer rows than ppo_n_minibatches = {minibatches}.",
            f"Lower {case.path('ppo_n_minibatches')}, or raise train_dataset.batch_size.",
            refusal.words,
        )


@rule("dummy-trees", "slow", "models/tree_attn/tree.py:389 (#911); counted on your rows", "actor")
def dummy_trees(case: Case) -> Iterator[Found]:
    chain = _chain(case)
    dummies = 0 if chain is None else chain.compute_logp.dummies
    if chain is None or not dummies:
        return
    trees = chain.compute_logp.trees_per_rank * len(chain.compute_logp.ranks)
    nan = " On Megatron the loss it logs for them is NaN; gradients are not touched."
    nan = nan if case.engine == "megatron" else ""
    yield case.found(
        _CAP,
        f"{dummies} of {trees} trees of a step are empty, run so that ranks stay in step.{nan}",
        "Compare caps on the Packing page; one where ranks have the same number of trees has none.",
    )


@rule("trees-lose", "slow", "counted on your rows", "actor")
def trees_lose(case: Case) -> Iterator[Found]:
    chain = _chain(case, _minibatches(case))
    if problem := "" if chain is None else lost_to_flat(chain.comparison):
        mend = "Try another cap on the Packing page, or leave tree training off."
        yield case.found(case.tree_key, problem, mend)


def lost_to_flat(found: Comparison) -> str:
    """A sentence where trees compute no fewer tokens than flat rows, else empty."""
    ratio = found.tree_over_flat
    if ratio is None or ratio < 1:
        return ""
    paid = padded_token_ratio(found.tree, found.original_tokens)
    return (
        f"On your rows trees compute {ratio:.2f}× the tokens of flat packing "
        f"(paid ÷ original: {paid:.3f}, exact)."
    )


@rule(
    "many-nodes",
    "slow",
    "utils/functional: one slice of the logits per node and transition",
    "actor",
)
def many_nodes(case: Case) -> Iterator[Found]:
    chain = _chain(case)
    most = 0 if chain is None else int(chain.forest.nodes_per_tree.max(initial=0))
    if most > _MANY_NODES:
        yield case.found(
            _CAP,
            f"A tree of your rows has {most:,} nodes. AReaL cuts the logits once per node and "
            "branch, and each cut's backward fills a whole tree's logits.",
            "Measure the step before relying on the ratio; a smaller cap has fewer nodes a tree.",
        )


@rule("nested-too-deep", "fails at first batch", "models/tree_attn/tree.py (recursion)", "actor")
def nested_too_deep(case: Case) -> Iterator[Found]:
    batch = _batch(case)
    deepest = 0 if batch is None else whole_trie(batch.order).levels
    if deepest > DEEPEST_PATH:
        yield Found(
            f"{deepest:,} rows of yours nest as prefixes of one another; AReaL walks them by "
            "recursion.",
            "Use export_style: concat, which keeps only the longest of nested rows.",
            says="RecursionError: maximum recursion depth exceeded",
            path="rollout.agent.export_style",
        )
