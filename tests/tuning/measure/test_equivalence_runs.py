"""The proof on the user's own rows: it holds, it finds faults, and it stays small."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.layout import TreeLayout, depth_first_layout
from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import build_forest
from tests.kernels.layouts import awkward_rows
from tuning.jobs.store import Store
from tuning.jobs.task import Task
from tuning.measure.proofs import equivalence as equivalence_runs
from tuning.measure.proofs.equivalence import choose
from tuning.measure.shares import folded
from tuning.plan.plan import TuningPlan

PLAN = TuningPlan(max_tokens_per_mb=128)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """``run(plan, rows, **arguments)``: the message and the result."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(plan: TuningPlan, rows: Rows, **arguments: Any) -> tuple[str, dict[str, Any]]:
        task = Task("job", plan, rows, arguments, Store(tmp_path / "history.sqlite"))
        message = equivalence_runs.run(task)
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return message, next(e for e in events if e["type"] == "result")

    return run


def large_ids(rows: Rows) -> Rows:
    """The same tree with ids far beyond a small model's vocabulary."""
    return Rows(rows.tokens * 700, rows.offsets, rows.group)


def test_the_users_rows_are_equal_and_the_verdict_says_so(run: Any) -> None:
    message, result = run(PLAN, awkward_rows())
    assert result["equal"] and message == result["verdict"]
    assert message.startswith("Packed equals row by row over ")
    assert {layer["layer"] for layer in result["layers"]} >= {"layer 0", "layer 1"}
    assert 0 < result["logprobs"]["maximum"] < 1e-5
    assert not result["folded"] and "random weights" in result["model"]
    assert result["row_tokens"] > result["packed_tokens"]


def test_ids_beyond_the_vocabulary_are_folded_but_the_tree_is_the_true_one(run: Any) -> None:
    rows = awkward_rows()
    _, small = run(PLAN, rows)
    _, result = run(PLAN, large_ids(rows))
    assert result["equal"] and result["folded"] and result["vocabulary"] == 1024
    assert result["packed_tokens"] == small["packed_tokens"]
    assert int(folded(large_ids(rows), 1024).tokens.max()) < 1024


def test_children_that_fold_to_one_id_stay_two(run: Any) -> None:
    """Ids 5 and 5 + 1024 are one id to a small model, but two branches of the tree."""
    rows = Rows.from_lists([[1, 2, 5, 7, 8], [1, 2, 5 + 1024, 7, 9], [1, 2, 5, 7, 9]])
    _, result = run(PLAN, rows)
    assert result["equal"] and result["packed_tokens"] == 9


def test_a_wrong_position_is_found(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(*arguments: Any) -> TreeLayout:
        layout = depth_first_layout(*arguments)
        return replace(layout, position_ids=layout.position_ids + (layout.position_ids > 3))

    monkeypatch.setattr(equivalence_runs, "depth_first_layout", shifted)
    message, result = run(PLAN, awkward_rows())
    assert not result["equal"] and message.startswith("Packed does not equal row by row")


def test_a_real_set_is_sampled_and_equal(run: Any, golden_rows: Any) -> None:
    rows = golden_rows("gsm8k_solutions").first_groups(64)
    plan = TuningPlan(max_tokens_per_mb=2048)
    _, result = run(plan, rows, trees=2, row_tokens=1500)
    assert result["equal"] and result["trees"] == 2
    assert result["row_tokens"] <= 1500
    assert f"{result['rows']} of the" in result["sampled"] and "2 of" in result["sampled"]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(1, 60),
)
def test_a_sample_is_made_of_whole_rows_of_chosen_trees(
    lists: list[list[int]], trees: int, budget: int
) -> None:
    rows = Rows.from_lists(lists)
    order = PrefixOrder.of(rows)
    packing = pack_areal(order, 16)
    forest = build_forest(order, packing)
    sample = choose(rows, order, forest, trees, budget)
    assert len(sample.layouts) == min(trees, len(forest)) == len(set(sample.trees))
    assert int(np.argmax(forest.rows_per_tree)) in sample.trees
    assert sample.rows == sum(len(layout.rows) for layout in sample.layouts) <= sample.rows_of_trees
    share = budget // len(sample.trees)
    for tree, layout in zip(sample.trees, sample.layouts, strict=True):
        members = layout.rows
        assert set(packing.tree_of_row[members].tolist()) == {tree}
        assert rows.lengths[members].sum() <= share or len(members) <= 2
        assert len(members) >= min(2, int(forest.rows_per_tree[tree]))
        for place, row in enumerate(members.tolist()):
            assert layout.input_ids[layout.positions_of(place)].tolist() == rows[row].tolist()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [({"trees": 0}, "at least one tree"), ({"model": "nothing-like-it"}, "neither a preset")],
)
def test_what_cannot_be_done_is_a_sentence(run: Any, arguments: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run(PLAN, awkward_rows(), **arguments)


@pytest.mark.parametrize("name", ["math-grpo", "agent-turns", "preference-pairs"])
def test_packed_equals_row_by_row_on_the_bundled_sets(name: str) -> None:
    from kernels.model import build_model, check_equivalence
    from packing.packers.areal import pack_areal
    from packing.prefixes import PrefixOrder
    from packing.sources.load import load
    from packing.sources.spec import SourceSpec
    from packing.trie import build_forest

    expand = "turn" if name == "agent-turns" else "conversation"
    rows = load(SourceSpec("sample", name, expand=expand, limit=4)).rows.truncated(1600)
    order = PrefixOrder.of(rows)
    forest = build_forest(order, pack_areal(order, 4096))
    model = build_model("tiny")
    small = folded(rows, model.config.vocab_size)
    sample = choose(small, order, forest, trees=2, row_tokens=6000)
    outcome = check_equivalence(model, small, sample.layouts)
    assert outcome.rows >= 3 and outcome.logprobs.maximum <= 1e-5
    assert outcome.worst_layer.maximum <= 1e-5 and outcome.equal, outcome.verdict
