"""AReaL's logs are read back and laid beside the prediction."""

from __future__ import annotations

import json

import numpy as np
import pytest

from packing.batch.pipeline import simulate
from packing.batch.simulation import BatchSimulation
from packing.batch.spec import BatchSpec
from packing.rows import Rows
from tuning.export.logs import LogError, compare, read_logs

HEAD = "(AReaL) 20260801-12:00:00.123 FSDPEngine INFO: "


def chain(minibatches: int = 1) -> BatchSimulation:
    rng = np.random.default_rng(1)
    lists, groups = [], []
    for group in range(6):
        start = rng.integers(0, 99, 60).tolist()
        for _ in range(4):
            lists.append(start + rng.integers(0, 99, int(rng.integers(5, 40))).tolist())
            groups.append(group)
    rows = Rows.from_lists(lists, groups)
    return simulate(rows, BatchSpec(256, dp_size=2, ppo_n_minibatches=minibatches))


def log_of(one: BatchSimulation) -> str:
    """What AReaL writes for this batch."""
    lines = []
    for step in (one.compute_logp, *one.ppo_update):
        for rank in step.ranks:
            tokens = rank.tokens_per_tree.tolist() + [0] * rank.dummies
            cap = one.spec.max_tokens_per_mb
            lines.append(
                f"{HEAD}Packed tree #microbatch: {len(tokens)}, microbatch #tokens: {tokens}, "
                f"padded to: {[cap] * len(tokens)}, padding lengths: {[cap - t for t in tokens]}."
            )
    logp = np.mean([rank.tree_token_ratio for rank in one.compute_logp.ranks])
    update = np.mean([r.tree_token_ratio for step in one.ppo_update for r in step.ranks])
    trees = np.mean([step.trees_per_rank for step in one.ppo_update])
    lines.append(
        f"│ tree_token_ratio │ {logp:.4e} │ ppo_actor/update/tree_token_ratio │ {update:.4e} │"
    )
    lines.append(f"│ ppo_actor/update/num_micro_batches │ {trees:.4e} │ other │ 3.0 │")
    return "\n".join(lines)


@pytest.mark.parametrize("minibatches", [1, 3])
def test_the_log_of_the_predicted_batch_agrees_in_every_line(minibatches: int) -> None:
    one = chain(minibatches)
    lines = compare(read_logs(log_of(one)), one)
    assert len(lines) == 7
    assert [line.why for line in lines if not line.agrees] == []


def test_packed_lines_and_statistics_are_read() -> None:
    logs = read_logs(
        f"noise\n{HEAD}Packed tree #microbatch: 3, microbatch #tokens: [200, 90, 0], padded to: "
        "[256, 256, 256], padding lengths: [56, 166, 256].\n"
        'other\n{"ppo_actor/update/tree_token_ratio": 0.31, "x": 2}\ntree_token_ratio: 2.5e-1\n'
    )
    (packed,) = logs.packed
    assert (packed.line, packed.trees, packed.dummies, packed.tree_tokens) == (2, 2, 1, 290)
    assert logs.caps == (256,)
    assert logs.values("tree_token_ratio") == [0.31, 0.25]
    assert list(logs.statistics) == ["ppo_actor/update/tree_token_ratio", "tree_token_ratio"]


def test_json_lines_are_read() -> None:
    text = json.dumps({"ppo_actor/update/num_micro_batches": 12.0})
    assert read_logs(text).values("num_micro_batches") == [12.0]


def test_differences_are_explained() -> None:
    one = chain()
    text = log_of(one).replace("[256", "[512").replace("256]", "512]")
    other = {line.figure: line for line in compare(read_logs(text), one)}
    assert "another max_tokens_per_mb" in other["max_tokens_per_mb"].why
    more = compare(read_logs("tree_token_ratio: 0.99"), one)
    assert not more[0].agrees and "share less" in more[0].why
    counts = compare(read_logs("ppo_actor/update/num_micro_batches: 99"), one)
    assert "more or longer" in counts[0].why
    packed = "Packed tree #microbatch: 1, microbatch #tokens: [7], padded to: [256]"
    same = {line.figure: line for line in compare(read_logs(packed), one)}
    assert "other batches" in same["passes equal tree by tree"].why


@pytest.mark.parametrize("text", ["", "nothing here", "loss: 0.5"])
def test_a_log_without_trees_says_what_to_look_for(text: str) -> None:
    with pytest.raises(LogError, match="enable_tree_training"):
        read_logs(text)
