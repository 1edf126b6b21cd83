"""Flat micro-batches, AReaL's padding rules and the plain padded batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.packers.flat import PaddedBatch, PaddingRule, split_micro_batches, split_synchronised
from packing.spec import MicroBatchSpec

LENGTHS = [900, 850, 800, 700, 650, 640, 500, 450, 400, 300, 250, 200, 120, 60]
lengths = st.lists(st.integers(0, 90), min_size=1, max_size=24)


def test_micro_batches_are_sorted_and_padded_to_whole_pages() -> None:
    split = split_micro_batches(LENGTHS, MicroBatchSpec(max_tokens_per_mb=2048))
    assert split.groups == ((0, 1, 11), (2, 3, 7), (4, 5, 6, 13), (8, 9, 10, 12))
    assert split.group_lens == (1950, 1950, 1850, 1070)
    assert split.padded_to == (2048, 2048, 2048, 1280)
    assert split.padded_tokens == 7424
    assert split.to_json() == {
        "n_mbs": 4,
        "group_lens": [1950, 1950, 1850, 1070],
        "padded_to": [2048, 2048, 2048, 1280],
    }


def test_without_a_cap_one_micro_batch_takes_all() -> None:
    split = split_micro_batches(LENGTHS, MicroBatchSpec())
    assert split.groups == (tuple(range(14)),)
    unlimited = PaddingRule(pad_to_maximum=True)
    assert split_micro_batches(LENGTHS, MicroBatchSpec(), unlimited) == split


def test_granularity_keeps_adjacent_rows_together() -> None:
    split = split_micro_batches(LENGTHS, MicroBatchSpec(max_tokens_per_mb=2048, granularity=2))
    for group in split.groups:
        assert [i // 2 for i in group[::2]] == [i // 2 for i in group[1::2]]
    assert sorted(i for group in split.groups for i in group) == list(range(14))


def test_n_mbs_and_divisor_set_the_count() -> None:
    spec = MicroBatchSpec(max_tokens_per_mb=4096, n_mbs=3, n_mbs_divisor=2)
    assert split_micro_batches(LENGTHS, spec).n_mbs == 4


def test_words_of_refusals() -> None:
    with pytest.raises(RuntimeError, match=r"^Batch size 3 cannot divide granularity 2\.$"):
        split_micro_batches([1, 2, 3], MicroBatchSpec(granularity=2))
    with pytest.raises(RuntimeError, match=r"^Values \[ 3 70\] is larger than capacity 64$"):
        split_micro_batches([3, 70], MicroBatchSpec(max_tokens_per_mb=64))
    with pytest.raises(RuntimeError, match=r"^Number of values 1 is smaller than min_groups 2$"):
        split_micro_batches([3], MicroBatchSpec(n_mbs=2))
    with pytest.raises(ValueError, match=r"^pad_to_length 8 is smaller than total length 12\.$"):
        PaddingRule(pad_to_maximum=True).padded_length(np.array([5, 7]), 8)


def test_pad_to_maximum_is_exactly_the_cap() -> None:
    rule = PaddingRule(pad_to_maximum=True, batch_align_to=512)
    assert rule.padded_length(np.array([5, 7]), 1000) == 1000


def test_archon_aligns_the_batch_to_the_models_own_page() -> None:
    assert PaddingRule.archon(4096).batch_align_to == 256
    assert PaddingRule.archon(1024, tp=3).batch_align_to == math.lcm(1024, 6)
    assert PaddingRule.archon(2**22).batch_align_to == 2
    assert PaddingRule.archon(1024).padded_length(np.array([300]), 4096) == 1024


def test_megatron_aligns_each_row() -> None:
    assert PaddingRule.megatron(tp=4).seq_align_to == 4
    assert PaddingRule.megatron(tp=2, cp=3).seq_align_to == 12
    assert PaddingRule.megatron(tp=2, fp8=True).seq_align_to == 16
    rule = PaddingRule.megatron(tp=6)
    # Rows become 6 and 258 tokens; 264 is over one page, so lcm(6, 256) = 768 is the next stop.
    assert rule.padded_length(np.array([1, 253]), None) == 768
    # 40 rows of 1 token are 640 tokens once aligned to 16: more than the cap's 512.
    wide = PaddingRule.megatron(tp=16, pad_to_maximum=True)
    assert wide.padded_length(np.ones(40, dtype=np.int64), 512) == 768
    assert wide.padded_length(np.ones(20, dtype=np.int64), 500) == 512


def test_ranks_agree_on_the_largest_count() -> None:
    few, many = [10, 10, 10], [60, 60, 60]
    spec = MicroBatchSpec(max_tokens_per_mb=64)
    alone = [split_micro_batches(rank, spec).n_mbs for rank in (few, many)]
    together = split_synchronised([few, many], spec)
    assert alone == [1, 3] and [rank.n_mbs for rank in together] == [3, 3]


def test_a_rank_with_too_few_rows_cannot_agree() -> None:
    with pytest.raises(RuntimeError, match="Number of values 2 is smaller than min_groups 3"):
        split_synchronised([[10, 10], [60, 60, 60]], MicroBatchSpec(max_tokens_per_mb=64))


@given(st.lists(lengths, min_size=1, max_size=4), st.sampled_from(["ffd", "kk"]))
def test_micro_batches_hold_every_row_once_within_the_cap(
    ranks: list[list[int]], algorithm: str
) -> None:
    shortest = min(map(len, ranks))
    ranks = [rank[:shortest] for rank in ranks]
    spec = MicroBatchSpec(max_tokens_per_mb=100, packing_algorithm=algorithm)  # type: ignore[arg-type]
    split = split_synchronised(ranks, spec)
    assert len({one.n_mbs for one in split}) == 1
    for rank, one in zip(ranks, split, strict=True):
        assert sorted(i for group in one.groups for i in group) == list(range(shortest))
        assert one.group_lens == tuple(sum(rank[i] for i in group) for group in one.groups)
        assert all(total <= 100 for total in one.group_lens)
        for total, padded in zip(one.group_lens, one.padded_to, strict=True):
            assert 0 <= padded - total < 256 and padded % 256 == 0


@given(lengths, st.integers(1, 24), st.sampled_from([64, 300, None]), st.booleans())
def test_a_padded_micro_batch_holds_its_aligned_rows(
    rows: list[int], align: int, cap: int | None, to_maximum: bool
) -> None:
    rule = PaddingRule(pad_to_maximum=to_maximum, seq_align_to=align)
    padded = rule.padded_length(np.array(rows), cap)
    assert padded >= sum(-(-n // align) * align for n in rows)
    assert padded % math.lcm(align, 256) == 0


def test_padded_batch_is_rows_times_the_longest() -> None:
    batch = PaddedBatch.of([3, 9, 4])
    assert (batch.rows, batch.width, batch.tokens) == (3, 9, 27)
    assert batch.micro_batches(20) == ((0, 1), (2,))
    assert PaddedBatch.of([]).tokens == 0
    assert PaddedBatch.of([]).micro_batches(8) == ()
    with pytest.raises(RuntimeError, match=r"^Values \[9\] is larger than capacity 8$"):
        batch.micro_batches(8)
