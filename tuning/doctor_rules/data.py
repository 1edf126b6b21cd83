"""What the user's own rows tell: lengths, minibatches, shapes of trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from packing.chain import BatchPlan, Chain
from packing.metrics import padded_token_ratio
from packing.packers.areal import RowTooLong
from packing.pipeline import simulate
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Trie, whole_trie
from tuning.doctor_rules.base import Case, Found, rule

_DEEPEST = 990
"""Nested prefixes on one path beyond which AReaL's recursion ends (areal.md, measured)."""
_MANY_NODES = 128


@rule("row-too-long", "fails at first batch", "models/tree_attn/tree.py:509")
def row_too_long(case: Case) -> Iterator[Found]:
    if case.rows is None or case.cap is None or case.rows.longest <= case.cap:
        return
    lengths = case.rows.lengths
    row, over = int(lengths.argmax()), int((lengths > case.cap).sum())
    up = -(-case.rows.longest // case.block) * case.block
    path = case.path("mb_spec.max_tokens_per_mb")
    yield Found(
        f"{over:,} of your {len(case.rows):,} rows are longer than max_tokens_per_mb = "
        f"{case.cap:,}; the longest, row {row}, has {case.rows.longest:,} tokens.",
        f"Set {path} to {up} or more.",
        says=str(RowTooLong(row, case.rows.longest, case.cap)),
        path=path,
        fix={path: up},
    )


@rule("scatter-cost", "slow", "trainer/ppo/actor.py:454; counted on your rows")
def scatter_cost(case: Case) -> Iterator[Found]:
    minibatches = case.whole(case.path("ppo_n_minibatches"))
    batch, plan = _batch(case)
    if batch is None or plan is None or minibatches is None or minibatches == 1:
        return
    order = PrefixOrder.of(batch)
    whole = _chain(batch, replace(plan, ppo_n_minibatches=1), order)
    parts = _chain(batch, replace(plan, ppo_n_minibatches=minibatches), order)
    if whole is None or parts is None:
        return
    path = case.path("ppo_n_minibatches")
    before, after = whole.comparison, parts.comparison
    ratios = [
        sum(p.tree_tokens for p in c.ppo_update) / c.comparison.original_tokens
        for c in (whole, parts)
    ]
    yield Found(
        f"ppo_n_minibatches = {minibatches} scatters samples of one prompt. On your rows the "
        f"update's tree_token_ratio is {ratios[1]:.3f} instead of {ratios[0]:.3f}, and it pays "
        f"{after.tree / before.tree:.2f}× the tokens (exact).",
        f"Set {path} to 1 where the algorithm allows it.",
        path=path,
        fix={path: 1},
    )


@rule("minibatch-too-small", "fails at first batch", "utils/seqpack.py:234", always=True)
def minibatch_too_small(case: Case) -> Iterator[Found]:
    minibatches = case.whole(case.path("ppo_n_minibatches"))
    batch, plan = _batch(case)
    if batch is None or plan is None or minibatches is None or minibatches == 1:
        return
    try:
        simulate(batch, replace(plan, ppo_n_minibatches=minibatches))
    except RowTooLong:
        return
    except RuntimeError as error:
        yield Found(
            f"A rank of your rows' batch has fewer rows than ppo_n_minibatches = {minibatches}.",
            f"Lower {case.path('ppo_n_minibatches')}, or raise train_dataset.batch_size.",
            says=str(error),
            path=case.path("ppo_n_minibatches"),
        )


@rule("dummy-trees", "slow", "models/tree_attn/tree.py:389 (#911); counted on your rows")
def dummy_trees(case: Case) -> Iterator[Found]:
    batch, plan = _batch(case)
    chain = None if batch is None or plan is None else _chain(batch, plan, PrefixOrder.of(batch))
    if chain is None or plan is None or not chain.compute_logp.dummies:
        return
    dummies, trees = chain.compute_logp.dummies, chain.compute_logp.trees_per_rank * plan.dp_size
    nan = (
        " On Megatron the loss it logs for them is NaN; gradients are not touched."
        if case.engine == "megatron"
        else ""
    )
    yield Found(
        f"{dummies} of {trees} trees of a step are empty, run so that ranks stay in step.{nan}",
        "Compare caps on the Packing page; one where ranks have the same number of trees has none.",
        path=case.path("mb_spec.max_tokens_per_mb"),
    )


@rule("trees-lose", "slow", "counted on your rows")
def trees_lose(case: Case) -> Iterator[Found]:
    batch, plan = _batch(case)
    if batch is None or plan is None:
        return
    minibatches = case.whole(case.path("ppo_n_minibatches")) or 1
    chain = _chain(batch, replace(plan, ppo_n_minibatches=minibatches), PrefixOrder.of(batch))
    ratio = None if chain is None else chain.comparison.tree_over_flat
    if chain is not None and ratio is not None and ratio >= 1:
        paid = padded_token_ratio(chain.comparison.tree, chain.comparison.original_tokens)
        yield Found(
            f"On your rows trees compute {ratio:.2f}× the tokens of flat packing "
            f"(paid ÷ original: {paid:.3f}, exact).",
            "Try another cap on the Packing page, or leave tree training off.",
            path=case.path(case.tree_key),
        )


@rule("many-nodes", "slow", "utils/functional.py: one logits slice per node and transition")
def many_nodes(case: Case) -> Iterator[Found]:
    batch, plan = _batch(case)
    if batch is None or plan is None:
        return
    chain = _chain(batch, plan, PrefixOrder.of(batch))
    if chain is None:
        return
    most = 0
    for rank in chain.compute_logp.ranks:
        for tree in range(rank.n_trees):
            rows = batch.take(rank.members[rank.tree_of_member == tree])
            most = max(most, whole_trie(PrefixOrder.of(rows)).n_nodes)
    if most > _MANY_NODES:
        yield Found(
            f"A tree of your rows has {most:,} nodes. AReaL cuts the logits once per node and "
            "branch, and each cut's backward fills a whole tree's logits.",
            "Measure the step before relying on the ratio; a smaller cap has fewer nodes a tree.",
            path=case.path("mb_spec.max_tokens_per_mb"),
        )


@rule("nested-too-deep", "fails at first batch", "models/tree_attn/tree.py (recursion)")
def nested_too_deep(case: Case) -> Iterator[Found]:
    batch, _ = _batch(case)
    if batch is None:
        return
    deepest = _levels(whole_trie(PrefixOrder.of(batch)))
    if deepest > _DEEPEST:
        yield Found(
            f"{deepest:,} rows of yours nest as prefixes of one another; AReaL walks them by "
            "recursion.",
            "Use export_style: concat, which keeps only the longest of nested rows.",
            says="RecursionError: maximum recursion depth exceeded",
            path="rollout.agent.export_style",
        )


def _levels(trie: Trie) -> int:
    """Nodes on the longest path from a root."""
    level = np.ones(trie.n_nodes, dtype=np.int64)
    for node, parent in enumerate(trie.parent.tolist()):
        if parent >= 0:
            level[node] = level[parent] + 1
    return int(level.max(initial=0))


def _batch(case: Case) -> tuple[Rows | None, BatchPlan | None]:
    """One batch of the user's rows as this config draws it, as far as the rows reach."""
    if case.rows is None or len(case.rows) == 0:
        return None, None
    ranks = 1 if case.backend is None else case.backend.data
    groups = len(np.unique(case.rows.group))
    wanted = case.whole("train_dataset.batch_size")
    if not case.config.has("train_dataset.batch_size") or wanted is None:
        wanted = groups
    usable = min(wanted, groups) // ranks * ranks
    if not usable:
        return None, None
    batch = case.rows.first_groups(usable)
    if case.cap is None or batch.longest > case.cap:
        return batch, None
    mode = "spmd" if case.spmd else "controller"
    return batch, BatchPlan(case.cap, dp_size=ranks, ppo_n_minibatches=1, mode=mode)


def _chain(batch: Rows, plan: BatchPlan, order: PrefixOrder) -> Chain | None:
    try:
        return simulate(batch, plan, order=order)
    except (ValueError, RuntimeError):
        return None
