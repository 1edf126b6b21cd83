"""Proof and times of tree attention from a terminal; the app's Kernels page finds them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.tuning.sweep_cases import grpo_rows
from tuning.cli import app
from tuning.jobs.jobs import Jobs

runner = CliRunner()


@pytest.fixture
def rows_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    rows = grpo_rows(groups=2, samples=3)
    path = tmp_path / "rows.npz"
    np.savez(path, tokens=rows.tokens, offsets=rows.offsets, groups=rows.group)
    return str(path)


def test_packed_is_proven_equal_to_row_by_row(rows_file: str) -> None:
    done = runner.invoke(app, ["prove", rows_file, "--cap", "512"])
    assert done.exit_code == 0, done.output
    assert "Packed equals row by row" in done.stdout


def test_every_backend_asked_for_is_checked_and_timed(rows_file: str) -> None:
    words = ["kernels", rows_file, "--cap", "512", "--backends", "cascade,dense", "--repeats", "2"]
    done = runner.invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    rows = {row["backend"]: row for row in found["backends"]}
    assert set(rows) == {"cascade", "dense", "rows"}
    assert all(rows[name]["right"] for name in ("cascade", "dense"))
    assert all(row["forward"]["n"] == row["backward"]["n"] == 2 for row in rows.values())
    assert found["result"]["fastest"] in ("cascade", "dense")
    assert found["problem"]["tokens"] <= 512
    job = Jobs().newest("kernels", tree=0)
    assert job is not None and job.last("result") == found["result"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--backends", "magic"], "backends must be some of"),
        (["--dtype", "int8"], "choose one of float32, bfloat16"),
        (["--packer", "best"], "choose one of areal, prefix-aware"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    rows_file: str, words: list[str], sentence: str
) -> None:
    done = runner.invoke(app, ["kernels", rows_file, "--cap", "512", *words])
    assert done.exit_code == 1 and sentence in done.stderr
