"""Rows: made from lists, padded batches and Arrow; refused with the row named."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from packing.rows import MAX_TOKEN_ID, Rows, RowsError
from tests.packing.strategies import any_rows


def lists(rows: Rows) -> list[list[int]]:
    return [row.tolist() for row in rows]


@given(any_rows)
def test_rows_read_back(sequences: list[list[int]]) -> None:
    rows = Rows.from_lists(sequences)
    assert lists(rows) == sequences
    assert rows.lengths.tolist() == [len(s) for s in sequences]
    assert rows.longest == max(len(s) for s in sequences)
    assert rows.n_groups == len(sequences)


@given(any_rows)
def test_left_right_and_holes_give_the_same_rows(sequences: list[list[int]]) -> None:
    width = 2 * max(len(s) for s in sequences) + 1
    ids = {side: np.full((len(sequences), width), 7) for side in ("right", "left", "holes")}
    mask = {side: np.zeros((len(sequences), width), dtype=int) for side in ids}
    for i, s in enumerate(sequences):
        places = {
            "right": np.arange(len(s)),
            "left": np.arange(width - len(s), width),
            "holes": 1 + 2 * np.arange(len(s)),
        }
        for side, at in places.items():
            ids[side][i, at] = s
            mask[side][i, at] = 1
    for side in ids:
        assert lists(Rows.from_padded(ids[side], mask[side])) == sequences


def test_padded_loss_mask_follows_the_tokens() -> None:
    rows = Rows.from_padded([[0, 0, 5, 6]], [[0, 0, 1, 1]], loss_mask=[[9, 9, 0, 1]])
    assert rows.loss_mask is not None and rows.loss_mask.tolist() == [0, 1]


def test_largest_token_id_is_kept() -> None:
    assert lists(Rows.from_lists([[MAX_TOKEN_ID, 0]])) == [[MAX_TOKEN_ID, 0]]


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([[1], [2, -5]], "row 1: token id -5 at position 1"),
        ([[1], [2**31]], f"row 1: token id {2**31} at position 0"),
        ([[1], [1.5]], "row 1: token ids must be integers, these are float64"),
        ([[[1, 2]]], "row 0: token ids must be one flat list"),
        ([["a"]], "row 0: token ids must be integers"),
    ],
)
def test_bad_ids_name_the_row(sequences: list[list[int]], message: str) -> None:
    with pytest.raises(RowsError, match=message):
        Rows.from_lists(sequences)


def test_bad_id_in_a_padded_batch_names_the_row() -> None:
    with pytest.raises(RowsError, match="row 1: token id -1 at position 0"):
        Rows.from_padded([[3, 4], [-1, 0]], [[1, 1], [1, 0]])


def test_arrow_int32_is_not_copied() -> None:
    column = pa.array([[1, 2], [], [3]], pa.list_(pa.int32()))
    rows = Rows.from_arrow(column)
    assert lists(rows) == [[1, 2], [], [3]]
    assert rows.tokens.ctypes.data == column.values.to_numpy().ctypes.data


def test_arrow_slices_and_chunks() -> None:
    column = pa.chunked_array([[[9], [1, 2]], [[3]]], pa.list_(pa.int64()))
    assert lists(Rows.from_arrow(column.slice(1))) == [[1, 2], [3]]
    assert lists(Rows.from_arrow(pa.chunked_array([], pa.list_(pa.int64())))) == []


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1], None]), "row 1: no token ids"),
        (pa.array([[1], [2, None]]), "row 1: a token id is null"),
        (pa.array([[1.0]]), "the lists hold double"),
        (pa.array(["text"]), "the column holds string"),
        (pa.array([[1], [-1]]), "row 1: token id -1"),
    ],
)
def test_arrow_refusals(column: pa.Array, message: str) -> None:
    with pytest.raises(RowsError, match=message):
        Rows.from_arrow(column)


def test_inconsistent_arrays_are_refused() -> None:
    tokens, group = np.arange(4, dtype=np.int32), np.zeros(2, dtype=np.int32)
    with pytest.raises(RowsError, match="offsets must run from 0"):
        Rows(tokens, np.array([0, 2, 3]), group)
    with pytest.raises(RowsError, match="offsets go back at row 1"):
        Rows(tokens, np.array([0, 5, 4]), group)
    with pytest.raises(RowsError, match="2 rows but 1 group"):
        Rows(tokens, np.array([0, 2, 4]), group[:1])
    with pytest.raises(RowsError, match="row 1: the loss mask"):
        Rows.from_lists([[1], [2, 3]], loss_mask=[[1], [1]])


def test_arrays_are_read_only() -> None:
    rows = Rows.from_lists([[1, 2]])
    with pytest.raises(ValueError, match="read-only"):
        rows.tokens[0] = 3


def test_fingerprint_sees_every_field() -> None:
    base = Rows.from_lists([[1, 2], [3]], group=[0, 0])
    others = [
        Rows.from_lists([[1, 2], [4]], group=[0, 0]),
        Rows.from_lists([[1], [2, 3]], group=[0, 0]),
        Rows.from_lists([[1, 2], [3]], group=[0, 1]),
        Rows.from_lists([[1, 2], [3]], group=[0, 0], loss_mask=[[0, 1], [1]]),
    ]
    assert len({r.fingerprint for r in [base, *others]}) == 5
    assert Rows.from_lists([[1, 2], [3]], group=[0, 0]).fingerprint == base.fingerprint


def test_take_truncate_and_first_groups() -> None:
    rows = Rows.from_lists(
        [[1, 2, 3], [4], [5, 6]], group=[7, 3, 7], loss_mask=[[0, 0, 1], [1], [0, 1]]
    )
    taken = rows.take([2, 0])
    assert lists(taken) == [[5, 6], [1, 2, 3]]
    assert taken.loss_mask is not None and taken.loss_mask.tolist() == [0, 1, 0, 0, 1]
    assert lists(rows.truncated(2)) == [[1, 2], [4], [5, 6]]
    assert lists(rows.first_groups(1)) == [[4]]
    assert rows.text(rows[2]) == "5 6"
