"""Looking into a tree: levels, paths, branches, trained tokens and search against the obvious."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Trie, whole_trie
from pages.trie import explorer
from tuning.plan.batch import batch_rows
from tuning.plan.plan import TuningPlan
from tuning.report.figures.trie import choose_marks

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=12)


def trie_of(rows: Rows) -> Trie:
    return whole_trie(PrefixOrder.of(rows))


@given(ROWS)
def test_levels_and_paths_follow_the_parents(lists: list[list[int]]) -> None:
    rows = Rows.from_lists(lists)
    trie = trie_of(rows)
    assert explorer.levels(trie).tolist() == [len(trie.path(k)) - 1 for k in range(len(trie))]
    for row, tokens in enumerate(lists):
        path = explorer.row_path(trie, row)
        read = [int(t) for k in path for t in explorer.node_tokens(rows, trie, k)]
        assert read == tokens, "the nodes of a row's path are the row"
    assert explorer.row_path(trie, len(lists)) == []


@given(ROWS)
def test_rows_of_a_node_go_on_in_a_child_or_end(lists: list[list[int]]) -> None:
    trie = trie_of(Rows.from_lists(lists))
    for node in range(len(trie)):
        below = explorer.child_nodes(trie, node)
        gone_on = sorted(r for child in below for r in trie.rows_through(int(child)).tolist())
        ended = explorer.ending_rows(trie, node).tolist()
        assert sorted(gone_on + ended) == sorted(trie.rows_through(node).tolist())
        counts = trie.row_count[below].tolist()
        assert counts == sorted(counts, reverse=True)
    for token in range(trie.n_tokens):
        node = explorer.node_at(trie, token)
        assert trie.start[node] <= token < trie.end[node]


@given(ROWS, st.data())
def test_a_shared_token_is_trained_when_one_row_trains_it(
    lists: list[list[int]], data: st.DataObject
) -> None:
    masks = [
        data.draw(st.lists(st.integers(0, 1), min_size=len(r), max_size=len(r))) for r in lists
    ]
    rows = Rows.from_lists(lists, loss_mask=masks)
    trie = trie_of(rows)
    expected = np.zeros(trie.n_tokens, dtype=bool)
    for row, mask in enumerate(masks):
        for node in explorer.row_path(trie, row):
            for i in range(int(trie.lengths[node])):
                expected[trie.start[node] + i] |= bool(mask[int(trie.depth[node]) + i])
    found = explorer.trained_tokens(rows, trie)
    assert found is not None and found.tolist() == expected.tolist()
    marked = np.zeros(trie.n_tokens, dtype=bool)
    for first, last in explorer.runs(found):
        assert last > first
        marked[first:last] = True
    assert marked.tolist() == expected.tolist()


def test_rows_without_a_mask_have_no_trained_track() -> None:
    rows = Rows.from_lists([[1, 2]])
    assert explorer.trained_tokens(rows, trie_of(rows)) is None


@given(st.lists(st.integers(0, 4), max_size=20), st.integers(0, 3), st.integers(0, 3))
def test_batch_rows_keep_their_numbers(groups: list[int], prompts: int, samples: int) -> None:
    rows = Rows.from_lists([[100 + i] for i in range(len(groups))], group=groups)
    plan = TuningPlan(prompts_per_step=prompts, samples_per_prompt=samples)
    numbers = explorer.batch_row_numbers(rows, plan)
    assert [int(rows[i][0]) for i in numbers] == batch_rows(rows, plan).tokens.tolist()
    assert numbers.tolist() == sorted(numbers.tolist())


WORDS = ["a", "b", "the end", "dollars", "two"]


def text_rows(*lists: list[int]) -> Rows:
    def decode(ids: object) -> str:
        return " ".join(WORDS[i] for i in ids)  # type: ignore[attr-defined]

    return Rows.from_lists(list(lists), decoder=decode)


def test_search_finds_text_in_any_case_once_where_it_stands() -> None:
    rows = text_rows([0, 3, 1], [0, 3, 2], [4, 3])
    search = explorer.search_text(rows, trie_of(rows), "DOLLARS")
    assert [(h.before, h.found, h.after) for h in search.hits] == [
        ("a ", "dollars", ""),
        ("two ", "dollars", ""),
    ]
    assert (search.nodes, search.tokens) == (4, 6)


def test_search_finds_text_that_runs_over_the_edge_of_a_node() -> None:
    rows = text_rows([0, 3, 1], [0, 3, 2])
    trie = trie_of(rows)
    hits = explorer.search_text(rows, trie, "dollars the end").hits
    assert [h.found for h in hits] == ["dollars the end"]
    assert explorer.node_tokens(rows, trie, hits[0].node).tolist() == [2]


def test_search_stops_at_its_budget_and_says_so() -> None:
    rows = text_rows([0, 1, 1], [1, 3], [2, 3])
    search = explorer.search_text(rows, trie_of(rows), "dollars", budget=3)
    assert (search.nodes, search.tokens, search.hits) == (1, 3, [])
    assert explorer.search_text(rows, trie_of(rows), "  ").nodes == 0


@given(ROWS, st.integers(1, 12), st.integers(1, 3), st.sampled_from([0.0, 0.2]))
def test_marks_leave_no_branch_out_without_a_word(
    lists: list[list[int]], most: int, deepest: int, smallest: float
) -> None:
    trie = trie_of(Rows.from_lists(lists))
    marks = choose_marks(trie, -1, most, deepest, smallest)
    assert len(marks) <= most
    ids = [mark.id for mark in marks]
    assert len(set(ids)) == len(ids)
    inside: dict[str, int] = {}
    for place, mark in enumerate(marks[1:], start=1):
        assert ids.index(mark.parent) < place, "parents come before children"
        inside[mark.parent] = inside.get(mark.parent, 0) + mark.tokens
    for mark in marks:
        if mark.id in inside:
            assert inside[mark.id] == mark.tokens - mark.own
        elif not mark.folded and not mark.closed and most > 1:
            assert mark.tokens == mark.own, "a mark with nothing in it is a leaf"


@pytest.mark.parametrize("smallest", [0.0, 0.05])
def test_small_siblings_are_folded_with_their_count(smallest: float) -> None:
    lists = [[9] * 100, *[[i] for i in range(8)]]
    marks = choose_marks(trie_of(Rows.from_lists(lists)), -1, 300, 7, smallest)
    folded = [mark.folded for mark in marks if mark.folded]
    assert folded == ([8] if smallest else [])
