"""Divergence: planted partings are found, measured as by hand, and nothing is found in noise."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.batch.divergence import Divergence, find_divergences
from packing.batch.pipeline import simulate
from packing.batch.spec import BatchSpec
from packing.prefixes import PrefixOrder
from packing.rows import Rows

Sequence = list[int]
ONE = BatchSpec(128)


def words(generator: np.random.Generator, n: int) -> Sequence:
    """Tokens of ordinary text, all above 1,000."""
    drawn: Sequence = generator.integers(1_000, 150_000, size=n).tolist()
    return drawn


def found_in(rows: Rows, cap: int = 10**6, limit: int = 10) -> list[Divergence]:
    return find_divergences(rows, PrefixOrder.of(rows), BatchSpec(cap, block_size=1), limit)


def distinct_prefixes(sequences: list[Sequence]) -> int:
    return len({tuple(row[:end]) for row in sequences for end in range(1, len(row) + 1)})


def dated(generator: np.random.Generator, dates: list[Sequence], head: int, tail: int) -> Rows:
    """Per date one group of 3 rows: head, date, tail, the group's question, an answer."""
    head_tokens, tail_tokens = words(generator, head), words(generator, tail)
    rows = []
    for date in dates:
        prompt = head_tokens + date + tail_tokens + words(generator, 20)
        rows += [prompt + words(generator, 15) for _ in range(3)]
    return Rows.from_lists(rows, group=np.repeat(np.arange(len(dates)), 3))


def test_a_date_in_the_system_prompt() -> None:
    # Months and days differ: the trie branches at several digits, but it is one finding.
    dates = [[20, 24, 0, month, 0, day] for month in (5, 6, 7) for day in (1, 2, 8)]
    rows = dated(np.random.default_rng(0), dates, head=12, tail=300)
    finding = found_in(rows)[0]
    assert finding.position == 12 + 3  # the year and the month's first digit are shared
    assert finding.places == 1
    assert (finding.n_rows, finding.n_groups) == (27, 9)
    assert finding.equal_tokens == 300
    # Eight of nine tails, as nine rows of three digits after the parting stay.
    assert finding.tokens_saved == 8 * 300
    assert set(finding.pieces) <= {tuple(date[3:]) for date in dates}
    assert finding.before == tuple(rows[0][:15])
    assert finding.after == tuple(rows[0][18 : 18 + 24])
    assert not found_in(rows)[1:]


def test_pieces_of_different_lengths() -> None:
    names = [[7], [8, 9], [8, 8, 8, 8], [7, 1, 2]]
    rows = dated(np.random.default_rng(1), names, head=30, tail=100)
    (finding,) = found_in(rows)
    assert finding.position == 30
    assert set(finding.pieces) == set(map(tuple, names))
    assert finding.tokens_saved == 3 * 100


def thinking_conversations(generator: np.random.Generator, conversations: int, turns: int) -> Rows:
    """One row a turn; reasoning of 200 tokens is in a row's own turn only, then it is stripped."""
    system, header = words(generator, 50), [11, 12, 13]
    rows, group = [], []
    for conversation in range(conversations):
        history = system.copy()
        for _ in range(turns):
            history = history + words(generator, 25) + header
            thinking, answer = words(generator, 200), words(generator, 30)
            rows.append([*history, 14, *thinking, 15, *answer])
            group.append(conversation)
            history = history + answer
    return Rows.from_lists(rows, group=group)


def test_reasoning_stripped_from_earlier_turns() -> None:
    rows = thinking_conversations(np.random.default_rng(2), conversations=5, turns=4)
    (finding,) = found_in(rows)
    # Every turn but the last of a conversation parts from the next one.
    assert finding.places == 5 * 3
    assert (finding.n_rows, finding.n_groups) == (20, 5)
    assert finding.before[-3:] == (11, 12, 13)
    assert finding.pieces[0] == ()
    assert (finding.pieces[1][0], len(finding.pieces[1]), finding.pieces[1][-1]) == (14, 202, 15)
    assert finding.tokens_saved == 5 * 3 * 30


def test_a_boundary_cut_into_other_tokens() -> None:
    generator = np.random.default_rng(3)
    before, after = words(generator, 80), words(generator, 400)
    rows = Rows.from_lists([[*before, 5, 6, *after], [*before, 7, *after], before[:40]])
    (finding,) = found_in(rows)
    assert finding.position == 80
    assert finding.pieces == ((7,), (5, 6))
    assert (finding.equal_tokens, finding.tokens_saved) == (400, 400)
    assert (finding.n_rows, finding.n_groups) == (2, 2)
    assert set(finding.rows) == {0, 1}
    assert finding.tree_tokens == (80 + 402 + 401, 80 + 400)
    assert finding.paid_tokens == (10**6, 10**6)


def test_a_parting_at_the_first_token() -> None:
    generator = np.random.default_rng(4)
    after = words(generator, 64)
    (finding,) = found_in(Rows.from_lists([[1, *after], [2, *after], [3, 4, *after]]))
    assert (finding.position, finding.before) == (0, ())
    assert finding.tokens_saved == 2 * 64


def test_what_is_paid_is_counted_by_areals_way_of_the_batch() -> None:
    dates = [[day, day + 1] for day in range(1, 40, 2)]
    rows = dated(np.random.default_rng(5), dates, head=16, tail=200)
    spec = BatchSpec(512, dp_size=2, ppo_n_minibatches=2, block_size=1)
    now = simulate(rows, spec)
    (finding,) = find_divergences(rows, PrefixOrder.of(rows), spec)
    assert finding.tree_tokens[0] == now.tree_tokens and finding.paid_tokens[0] == now.paid_tokens
    without = Rows.from_lists([[t for t in row.tolist() if t >= 1_000] for row in rows], rows.group)
    then = simulate(without, spec)
    assert finding.tree_tokens[1] == then.tree_tokens < now.tree_tokens
    assert finding.paid_tokens[1] == then.paid_tokens <= now.paid_tokens
    assert finding.tokens_saved == 19 * 200


@given(st.integers(0, 30), st.sampled_from([256, 384, 512]), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_only_what_helps_is_shown(seed: int, cap: int, minibatches: int) -> None:
    generator = np.random.default_rng(seed)
    dates = [[day, day + 1] for day in range(1, int(generator.integers(6, 30)), 2)]
    tail = int(generator.integers(20, 150))
    rows = dated(generator, dates, head=int(generator.integers(0, 40)), tail=tail)
    for finding in found_in(rows, cap):
        assert finding.tree_tokens[1] < finding.tree_tokens[0]
        assert finding.paid_tokens[1] <= finding.paid_tokens[0]


def test_most_to_gain_first_and_no_more_than_asked_for() -> None:
    generator = np.random.default_rng(6)
    sequences = []
    for tail in (50, 200, 120):
        head, after = words(generator, 30), words(generator, tail)
        sequences += [[*head, piece, *after] for piece in (1, 2)]
    rows = Rows.from_lists(sequences)
    assert [finding.tokens_saved for finding in found_in(rows)] == [200, 120, 50]
    assert [finding.tokens_saved for finding in found_in(rows, limit=2)] == [200, 120]


@pytest.mark.parametrize("shared", [0, 60])
def test_nothing_is_found_in_unrelated_rows(shared: int) -> None:
    generator = np.random.default_rng(7)
    head = words(generator, shared)
    rows = []
    for _ in range(30):
        prompt = head + words(generator, 50)
        rows += [prompt + words(generator, int(generator.integers(1, 300))) for _ in range(4)]
    assert found_in(Rows.from_lists(rows)) == []


def test_the_same_text_far_from_both_partings_is_no_divergence() -> None:
    # A template that comes after two long, different texts is not what rows almost share.
    generator = np.random.default_rng(8)
    template = words(generator, 100)
    rows = [words(generator, 60) + template + words(generator, 10) for _ in range(6)]
    assert found_in(Rows.from_lists(rows)) == []


def test_rows_that_share_all_they_can_have_no_divergence() -> None:
    long = words(np.random.default_rng(9), 500)
    assert find_divergences(Rows.from_lists([]), PrefixOrder.of(Rows.from_lists([])), ONE) == []
    nothing: list[list[Sequence]] = [[[]], [[1]], [long, long, long[:100]]]
    for sequences in nothing:
        assert found_in(Rows.from_lists(sequences)) == []


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=2, max_size=6, unique_by=tuple),
    st.integers(0, 20),
    st.integers(16, 60),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_the_gain_is_what_counting_prefixes_without_the_pieces_gives(
    pieces: list[Sequence], head: int, tail: int, random: Random
) -> None:
    # An own last token each: nothing in the pieces themselves can be shared.
    pieces = [piece and [*piece, 4 + number] for number, piece in enumerate(pieces)]
    before = list(range(10, 10 + head))
    after = list(range(100, 100 + tail))
    sequences = [
        [*before, *piece, *after, 1_000 + 10 * number + end]
        for number, piece in enumerate(pieces)
        for end in range(2)
    ]
    sequences = random.sample(sequences, len(sequences))
    (finding,) = found_in(Rows.from_lists(sequences))
    without = [[t for t in row if t >= 10] for row in sequences]
    # The pieces still count, once each.
    saved = distinct_prefixes(sequences) - distinct_prefixes(without) - distinct_prefixes(pieces)
    assert finding.tokens_saved == saved
