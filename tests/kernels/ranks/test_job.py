"""A job of several ranks: read as written, refused with a reason, run as it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.ranks import JobError, RankBatches, RankJob, RankPiece, save_rows
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tests.kernels.layouts import awkward_rows

ROWS = awkward_rows()
PIECES = (
    (RankPiece((0, 9, 3), 64), RankPiece((1, 2, 4), 64)),
    (RankPiece((5, 6), 64), RankPiece((), 64)),
)
JOB = RankJob("tiny", "rows.npz", (PIECES,), PIECES)


def written(folder: Path, **changes: Any) -> Path:
    old = np.zeros(ROWS.n_tokens, dtype=np.float32)
    save_rows(folder / "rows.npz", ROWS, old, old + 1)
    JOB.write(folder / "job.json")
    content = json.loads((folder / "job.json").read_text()) | changes
    (folder / "job.json").write_text(json.dumps(content))
    return folder / "job.json"


def test_a_job_comes_back_as_it_was_written(tmp_path: Path) -> None:
    job = RankJob.read(written(tmp_path))
    assert (job.updates, job.logp, job.ranks) == (JOB.updates, JOB.logp, {2})
    rows, old_logp, advantages = job.load()
    np.testing.assert_array_equal(rows.tokens, ROWS.tokens)
    np.testing.assert_array_equal(rows.group, ROWS.group)
    assert (old_logp == 0).all() and (advantages == 1).all()


def test_trees_hold_their_rows_and_dummies_hold_nothing() -> None:
    order = PrefixOrder.of(ROWS)
    for rank, pieces in enumerate(PIECES):
        own = RankBatches.of(JOB, ROWS, rank, vocabulary=2**31 - 1)
        assert own.rows is ROWS
        for batches in (*own.updates, own.logp):
            assert [sorted(b.layout.rows.tolist()) for b in batches] == [
                sorted(piece.rows) for piece in pieces
            ]
            assert [b.layout.n_tokens for b in batches] == [
                order.tree_tokens(np.array(piece.rows, dtype=np.int64)) if piece.rows else 0
                for piece in pieces
            ]
            assert [b.padded_tokens for b in batches] == [64, 64]


def test_rows_one_after_the_other_share_nothing() -> None:
    wider = tuple(tuple(RankPiece(piece.rows, 128) for piece in rank) for rank in PIECES)
    job = RankJob("tiny", "rows.npz", (wider,), mode="rows")
    own = RankBatches.of(job, ROWS, 0, vocabulary=2**31 - 1)
    (batches,) = own.updates
    assert [b.layout.n_tokens for b in batches] == [
        int(ROWS.lengths[list(piece.rows)].sum()) for piece in PIECES[0]
    ]
    assert own.logp == ()


def test_ids_that_fold_onto_each_other_stay_branches() -> None:
    rows = Rows.from_lists([[5, 6, 7], [5, 6, 7 + 1024]])
    job = RankJob("tiny", "rows.npz", (((RankPiece((0, 1), 8),),),), fold=True)
    own = RankBatches.of(job, rows, 0, vocabulary=1024)
    ((batch,),) = own.updates
    assert batch.layout.n_tokens == 4
    assert sorted(batch.layout.input_ids.tolist()) == [5, 6, 7, 7]


def test_ranks_out_of_step_are_refused() -> None:
    job = RankJob("tiny", "rows.npz", ((PIECES[0], PIECES[1][:1]),))
    with pytest.raises(JobError, match="add dummies"):
        RankBatches.of(job, ROWS, 0, vocabulary=1024)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, "fields among"),
        ({"updates": 3}, "lacks a field or has a wrong one"),
        ({"updates": [[[{"rows": [0]}]]]}, "lacks a field or has a wrong one"),
    ],
)
def test_a_job_that_cannot_be_used_says_why(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobError, match=message):
        RankJob.read(written(tmp_path, **changes))
    with pytest.raises(JobError, match="cannot be read"):
        RankJob.read(tmp_path / "absent.json")


def test_rows_without_advantages_are_refused_by_name(tmp_path: Path) -> None:
    job = RankJob.read(written(tmp_path))
    np.savez(tmp_path / "rows.npz", tokens=np.arange(3), offsets=np.array([0, 3]))
    with pytest.raises(JobError, match="lacks advantages, old_logp"):
        job.load()
