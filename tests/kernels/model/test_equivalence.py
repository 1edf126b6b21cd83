"""Packed equals row by row, and every planted fault is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from kernels.attention import MaskError
from kernels.model import TreeLM, build_model, check_equivalence, sample_trees
from packing.layout import TreeLayout, depth_first_layout
from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import build_forest
from tests.kernels.layouts import awkward_rows, one_tree, trees

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tiny() -> TreeLM:
    return build_model("tiny")


@pytest.mark.parametrize("backend", ["auto", "dense", "cascade"])
def test_rows_of_every_awkward_kind_are_equal(tiny: TreeLM, backend: str) -> None:
    rows = awkward_rows()
    found = check_equivalence(tiny, rows, [one_tree(rows)], backend=backend, padded_tokens=128)
    assert found.equal, found.verdict
    assert found.logprobs.maximum < 1e-6 and 0 < found.worst_layer.maximum < 1e-5
    assert found.transitions == int(np.maximum(rows.lengths - 1, 0).sum())
    layers = {error.layer for error in found.layers}
    assert {"layer 0", "layer 1", "model.embed_tokens.weight", "model.norm.weight"} == layers
    assert found.verdict.startswith("Packed equals row by row over 153 predictions of 10 rows")


def test_gradient_checkpointing_changes_nothing() -> None:
    rows = awkward_rows(3)
    model = build_model("tiny", gradient_checkpointing=True)
    found = check_equivalence(model, rows, [one_tree(rows)])
    assert found.equal, found.verdict


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_within_its_own_tolerance(dtype: Any) -> None:
    rows = awkward_rows(4)
    found = check_equivalence(build_model("tiny", dtype=dtype), rows, [one_tree(rows)])
    assert found.dtype == dtype and found.equal, found.verdict
    assert found.worst_layer.maximum > 1e-5, "fp32 arithmetic in a half precision test"


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2, "sliding_window": None},
    "gpt2": {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
    "qwen3_moe": {
        "num_key_value_heads": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    },
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_other_architectures_are_equal(name: str, tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        name,
        vocab_size=256,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        **ARCHITECTURES[name],
    )
    config.save_pretrained(tmp_path)
    rows = awkward_rows(5)
    found = check_equivalence(build_model(str(tmp_path)), rows, [one_tree(rows)])
    assert found.equal, found.verdict


def _branch(layout: TreeLayout) -> int:
    """A packed position, not a root, whose parent is not the token before it."""
    jumps = np.flatnonzero(layout.parent != np.arange(-1, layout.n_tokens - 1))
    return int(jumps[layout.parent[jumps] >= 0][0])


def leaking_sibling(layout: TreeLayout) -> TreeLayout:
    """The branch before a later one stays visible until its parent's subtree ends."""
    assert layout.subtree_end is not None
    later = _branch(layout)
    ends = layout.subtree_end.copy()
    before = np.arange(layout.parent[later] + 1, later)
    last = before[ends[before] == later]
    ends[last] = ends[layout.parent[later]]
    return replace(layout, subtree_end=ends)


def short_subtree(layout: TreeLayout) -> TreeLayout:
    """The subtrees over the last two tokens of the largest root end before these two."""
    assert layout.subtree_end is not None
    ends = layout.subtree_end.copy()
    roots = np.flatnonzero(layout.parent < 0)
    cut = int(ends[roots[np.argmax(ends[roots] - roots)]]) - 2
    ends[:cut] = np.minimum(ends[:cut], np.maximum(cut, np.arange(cut) + 1))
    return replace(layout, subtree_end=ends)


def wrong_position(layout: TreeLayout) -> TreeLayout:
    positions = layout.position_ids.copy()
    positions[_branch(layout)] += 1
    return replace(layout, position_ids=positions)


def packed_positions(layout: TreeLayout) -> TreeLayout:
    """Position ids counted along the packed order, as a plain causal batch would have them."""
    return replace(layout, position_ids=np.arange(layout.n_tokens, dtype=np.int32))


def lost_transition(layout: TreeLayout) -> TreeLayout:
    parent = layout.parent.copy()
    parent[_branch(layout)] = -1
    return replace(layout, parent=parent)


def transition_from_the_token_before(layout: TreeLayout) -> TreeLayout:
    """A branch predicted by the end of its sibling."""
    parent = layout.parent.copy()
    parent[_branch(layout)] = _branch(layout) - 1
    return replace(layout, parent=parent)


def wrong_token(layout: TreeLayout) -> TreeLayout:
    ids = layout.input_ids.copy()
    ids[layout.n_tokens // 2] += 1
    return replace(layout, input_ids=ids)


def rows_swapped(layout: TreeLayout) -> TreeLayout:
    """A row reads one position of another row."""
    positions = layout.row_positions.copy()
    positions[3] += 1
    return replace(layout, row_positions=positions)


FAULTS: list[Callable[[TreeLayout], TreeLayout]] = [
    leaking_sibling,
    short_subtree,
    wrong_position,
    packed_positions,
    lost_transition,
    transition_from_the_token_before,
    wrong_token,
    rows_swapped,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(tiny: TreeLM, fault: Callable[[TreeLayout], TreeLayout]) -> None:
    rows = awkward_rows()
    layout = one_tree(rows)
    found = check_equivalence(tiny, rows, [fault(layout)])
    assert not found.equal
    assert found.logprobs.maximum > 3 * found.logprob_tolerance, found.verdict
    assert found.worst_layer.maximum > 3 * found.gradient_tolerance, found.verdict
    assert f"token {found.logprobs.token} of row {found.logprobs.row}" in found.verdict
    assert found.verdict.startswith("Packed does not equal row by row")


def test_a_subtree_end_that_is_no_tree_is_refused(tiny: TreeLM) -> None:
    rows = awkward_rows()
    layout = one_tree(rows)
    assert layout.subtree_end is not None
    ends = layout.subtree_end.copy()
    ends[_branch(layout)] = layout.n_tokens
    ends[0] = _branch(layout) + 1
    with pytest.raises(MaskError):
        check_equivalence(tiny, rows, [replace(layout, subtree_end=ends)])


def test_a_layout_of_other_rows_is_refused(tiny: TreeLM) -> None:
    rows = awkward_rows()
    other = one_tree(rows.truncated(12))
    with pytest.raises(ValueError, match="row 0 has 33 tokens, but the layout holds 12"):
        check_equivalence(tiny, rows, [other])


def test_several_trees_add_up(tiny: TreeLM) -> None:
    rows = awkward_rows()
    found = check_equivalence(tiny, rows, trees(rows, [[0, 9, 3], [1, 2, 4, 8], [5, 6, 7]]))
    assert found.trees == 3 and found.equal, found.verdict


def test_rows_without_predictions_are_nothing_to_compare(tiny: TreeLM) -> None:
    single = Rows.from_lists([[4], [5]])
    with pytest.raises(ValueError, match="no row of these trees has two tokens"):
        check_equivalence(tiny, single, [one_tree(single)])


def test_not_a_number_is_never_equal(tiny: TreeLM) -> None:
    rows = awkward_rows()
    broken = build_model("tiny")
    with torch.no_grad():
        broken.lm.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    found = check_equivalence(broken, rows, [one_tree(rows)])
    assert not found.equal and "nan" in found.verdict


def test_a_sample_keeps_the_fullest_tree_and_the_order() -> None:
    rows = awkward_rows()
    layouts = trees(rows, [[0], [1], [2, 3, 4, 5], [6], [8]])
    empty = one_tree(Rows.from_lists([[]]))
    picked = sample_trees([empty, *layouts], 3)
    assert len(picked) == 3 and layouts[2] in picked and empty not in picked
    at = [layouts.index(layout) for layout in picked]
    assert at == sorted(at)
    assert sample_trees(layouts, 9) == layouts
    assert sample_trees([empty, *layouts], 1) == [layouts[2]]


@pytest.mark.parametrize("name", ["gsm8k_solutions", "tau_airline_trajectories"])
def test_real_rollouts_are_equal(golden_rows: Callable[[str], Rows], name: str) -> None:
    rows = golden_rows(name).first_groups(3)
    if rows.longest > 512:
        rows = rows.truncated(512)
    # a random model does not care which ids its tokens have: number them densely
    ids, dense = np.unique(rows.tokens, return_inverse=True)
    rows = Rows(dense.astype(np.int32), rows.offsets, rows.group)
    order = PrefixOrder.of(rows)
    packing = pack_areal(order, 1024)
    forest = build_forest(order, packing)
    layouts = [depth_first_layout(rows, forest.tree(i)) for i in range(len(forest))]
    model = build_model("tiny", vocab_at_least=len(ids))
    found = check_equivalence(model, rows, sample_trees(layouts, 2), padded_tokens=1024)
    assert found.equal, found.verdict
    assert found.transitions > 1000
