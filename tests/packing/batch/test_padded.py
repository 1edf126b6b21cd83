"""build_packed_tree_batch: AReaL's checks and words; trees a model can take."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given

import packing
from packing.batch.padded import build_packed_tree_batch
from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows, RowsError
from packing.spec import MicroBatchSpec
from tests.packing.strategies import any_rows

SPEC = MicroBatchSpec(max_tokens_per_mb=128)


@given(any_rows)
def test_trees_are_padded_and_fields_follow_their_rows(sequences: list[list[int]]) -> None:
    rows = Rows.from_lists(sequences, loss_mask=[[1] * len(s) for s in sequences])
    advantage = np.arange(rows.n_tokens) / 7
    batch = build_packed_tree_batch(rows, SPEC, extras={"advantages": advantage})
    assert batch.padded_to_lengths == (128,) * len(batch)
    for mb, padding in zip(batch.micro_batches, batch.padding_lengths, strict=True):
        real = 128 - padding
        assert mb.input_ids.shape == mb.position_ids.shape == mb.parent.shape == (128,)
        assert mb.subtree_end is not None and (mb.subtree_end[real:] == 0).all()
        assert (mb.parent[real:] == -1).all() and (mb.subtree_end[:real] > 0).all()
        wanted = [advantage[rows.offsets[r] : rows.offsets[r + 1]] for r in mb.layout.rows]
        assert mb.extras["advantages"].tolist() == np.concatenate(wanted).tolist()
        assert mb.extras["loss_mask"].tolist() == [1] * len(mb.layout.row_positions)


def test_padded_tensors_and_rows_are_one() -> None:
    ids, mask = np.array([[0, 5, 6], [5, 7, 0]]), np.array([[0, 1, 1], [1, 1, 0]])
    padded = build_packed_tree_batch((ids, mask), SPEC, extras={"returns": ids * 10})
    ragged = build_packed_tree_batch(Rows.from_lists([[5, 6], [5, 7]]), SPEC)
    (a,), (b,) = padded.micro_batches, ragged.micro_batches
    assert a.input_ids.tolist() == b.input_ids.tolist()
    assert a.extras["returns"].tolist() == [50, 60, 50, 70]
    assert padded.tree_token_ratio == ragged.tree_token_ratio == 3 / 4


def test_areal_order_has_no_slices() -> None:
    rows = Rows.from_lists([[5, 9], [5, 1]])
    (mb,) = build_packed_tree_batch(rows, SPEC, token_order="areal").micro_batches
    assert mb.subtree_end is None
    assert mb.input_ids[:3].tolist() == [5, 9, 1]
    (mb,) = build_packed_tree_batch(rows, SPEC).micro_batches
    assert mb.input_ids[:3].tolist() == [5, 1, 9]


def test_dummy_trees_fill_up_to_the_slowest_rank() -> None:
    batch = build_packed_tree_batch(Rows.from_lists([[1, 2]]), SPEC, n_trees=3)
    assert len(batch) == 3 and batch.n_dummy_trees == 2
    assert batch.padding_lengths == (126, 128, 128)
    assert len(batch.micro_batches[2].layout.rows) == 0


def test_a_given_packing_is_used_as_it_is() -> None:
    rows = Rows.from_lists([[1, 2], [1, 3]])
    order = PrefixOrder.of(rows)
    wanted = pack_areal(order, 128, arrival=[1, 0])
    batch = build_packed_tree_batch(rows, SPEC, order=order, packing=wanted)
    assert batch.packing is wanted and batch.micro_batches[0].layout.rows.tolist() == [1, 0]
    with pytest.raises(ValueError, match="made for 128 tokens per tree, the spec asks for 256"):
        build_packed_tree_batch(rows, MicroBatchSpec(256), packing=wanted)


@pytest.mark.parametrize(
    ("spec", "pad", "parallel", "words"),
    [
        (
            MicroBatchSpec(),
            True,
            1,
            "max_tokens_per_mb must be a positive value for tree training.",
        ),
        (MicroBatchSpec(0), True, 1, "max_tokens_per_mb must be a positive value"),
        (SPEC, False, 1, "No padding is not supported for tree training. Block masks require"),
        (
            MicroBatchSpec(8000),
            True,
            1,
            r"max_tokens_per_tree \(8000\) must be a multiple of 128 \(lcm of BLOCK_SIZE=128 and "
            r"parallel_size=1\) when pad_to_maximum=True.",
        ),
        (MicroBatchSpec(256), True, 3, "must be a multiple of 384"),
        (SPEC, True, 1, "Sequence length 200 exceeds max_tokens_per_tree 128; adjust limit or"),
    ],
)
def test_refusals_in_areal_words(
    spec: MicroBatchSpec, pad: bool, parallel: int, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        build_packed_tree_batch(Rows.from_lists([[1] * 200]), spec, pad, parallel)


def test_ineffective_settings_warn(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        build_packed_tree_batch(Rows.from_lists([[1]]), MicroBatchSpec(128, n_mbs=2))
    assert "currently not effective for tree packing" in caplog.text


def test_a_field_of_another_shape_is_named() -> None:
    with pytest.raises(RowsError, match=r"advantages: shape \(3,\) is not the tokens' own"):
        build_packed_tree_batch(Rows.from_lists([[1]]), SPEC, extras={"advantages": [1, 2, 3]})


def test_no_rows_is_no_tree() -> None:
    batch = build_packed_tree_batch(Rows.from_lists([[]]), SPEC)
    assert len(batch) == 0 and batch.tree_token_ratio == 1.0


def test_public_names() -> None:
    assert all(hasattr(packing, name) for name in packing.__all__)
