"""The table of the Tune page: the logp pass in a column of its own, the worst batch where known."""

from __future__ import annotations

from dataclasses import replace

from pages.tune.parts import _table
from tuning.sweep.result import Candidate, SweepResult

POINT = Candidate(
    512,
    n_trees=3,
    tree_token_ratio=0.5,
    padded_token_ratio=0.75,
    fits=True,
    step_s=1.5,
    step_kind="measured",
    repeats=3,
    logp_s=0.4,
)
FLAT = replace(POINT, step_s=3.0, logp_s=0.9)
RESULT = SweepResult((POINT,), {"flat": FLAT, "padded": None}, None, None, "tiny", "cpu", 1000, 300)


def test_the_logp_pass_has_its_column_beside_the_step() -> None:
    table = _table(RESULT)
    assert table["way"].tolist() == ["tree", "flat"]
    assert table["step, s"].tolist() == [1.5, 3.0]
    assert table["compute_logp, s"].tolist() == [0.4, 0.9]
    assert not [name for name in table.columns if "worst" in name]
    assert table.columns[-1] == "note"


def test_the_worst_of_several_batches_has_columns() -> None:
    worst = replace(POINT, worst_n_trees=5, worst_padded_token_ratio=0.9, worst_predicted_s=1.9)
    first = _table(replace(RESULT, points=(worst,), n_batches=4)).iloc[0]
    assert (first["trees"], first["worst trees"]) == (3, 5)
    assert first["worst paid ÷ original"] == 0.9 and first["worst predicted, s"] == 1.9
