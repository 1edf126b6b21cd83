"""Two FSDP2 ranks over Gloo: gradients of the whole batch in one process, dummies and all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor

import kernels.ranks.fsdp as fsdp
from kernels.model import PRESETS, StepData, accumulate_gradients, build_model
from kernels.ranks import Pieces, RankBatches, RankJob, RankPiece, save_rows
from kernels.ranks.fsdp import process_group, shard
from packing.rows import Rows
from tests.kernels.layouts import awkward_rows

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]
UPDATES: tuple[Pieces, ...] = (  # in the first update the second rank runs a dummy tree
    (
        (RankPiece((0, 9, 3), 64), RankPiece((1, 2), 64)),
        (RankPiece((5, 6, 7), 64), RankPiece((), 64)),
    ),
    ((RankPiece((4, 8), 64),), (RankPiece((10,), 64),)),
)
LOGP: Pieces = (
    (RankPiece((0, 9, 3, 1, 2), 64), RankPiece((4, 8), 64)),
    (RankPiece((5, 6, 7), 64), RankPiece((10,), 64)),
)
CASES = {  # name: (head tied to the embedding, gradient checkpointing)
    "tied": (True, False),
    "untied, checkpointed": (False, True),
}


def write_job(folder: Path, **changes: Any) -> Path:
    rows = awkward_rows()
    rng = np.random.default_rng(3)
    mask = rng.integers(0, 2, rows.n_tokens).astype(np.uint8)
    rows = Rows(rows.tokens, rows.offsets, rows.group, mask)
    old_logp = rng.normal(-7, 0.2, rows.n_tokens).astype(np.float32)
    advantages = rng.normal(size=rows.n_tokens).astype(np.float32)
    save_rows(folder / "rows.npz", rows, old_logp, advantages)
    for name, (tied, _) in CASES.items():
        config = PRESETS["tiny"] | {"tie_word_embeddings": tied}
        (folder / f"{name}.json").write_text(json.dumps(config))
    job = RankJob(str(folder / "tied.json"), "rows.npz", UPDATES, LOGP, repeats=2)
    replace(job, **changes).write(folder / "job.json")
    return folder / "job.json"


def launch(module: str, job: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*command, "-m", module, str(job)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def step_data(job: RankJob) -> tuple[Rows, StepData]:
    rows, old_logp, advantages = job.load()
    return rows, StepData.of(rows, old_logp, advantages)


def case_model(job: Path, name: str) -> Any:
    checkpointing = CASES[name][1]
    return build_model(str(job.parent / f"{name}.json"), gradient_checkpointing=checkpointing)


def save_rank_gradients(path: Path) -> None:
    """What each rank of the test runs: the gradients of every case, whole, from rank 0."""
    job = RankJob.read(path)
    rows, data = step_data(job)
    with process_group("cpu") as mesh:
        own = RankBatches.of(job, rows, mesh.get_rank(), vocabulary=1024)
        for name in CASES:
            model = case_model(path, name)
            shard(model, mesh, "float32")
            accumulate_gradients(model, [b for update in own.updates for b in update], data)
            gradients = {}
            for parameter, value in model.named_parameters():
                assert isinstance(value.grad, DTensor)
                gradients[parameter] = value.grad.full_tensor().numpy()
            if mesh.get_rank() == 0:
                np.savez(path.parent / f"{name}.npz", allow_pickle=False, **gradients)


def test_gradients_of_two_ranks_are_those_of_one_process_over_the_whole_batch(
    tmp_path: Path,
) -> None:
    path = write_job(tmp_path)
    done = launch("tests.kernels.ranks.test_fsdp", path)
    assert done.returncode == 0, done.stderr
    job = RankJob.read(path)
    rows, data = step_data(job)
    ranks = [RankBatches.of(job, rows, rank, vocabulary=1024) for rank in range(2)]
    everything = [batch for own in ranks for update in own.updates for batch in update]
    assert [len(batch.layout.rows) for batch in everything] == [3, 2, 2, 3, 0, 1]
    for name in CASES:
        model = case_model(path, name)
        accumulate_gradients(model, everything, data)
        with np.load(tmp_path / f"{name}.npz") as found:
            for parameter, value in model.named_parameters():
                assert value.grad is not None
                scale = float(value.grad.abs().max())
                assert scale > 0, parameter
                torch.testing.assert_close(
                    torch.from_numpy(found[parameter]), value.grad, rtol=0, atol=1e-5 * scale
                )


def test_the_command_times_every_rank_and_sums_the_loss(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    done = launch("kernels.ranks.fsdp", path)
    assert done.returncode == 0, done.stderr
    # Gloo of torch 2.9 prints too; who launches a job reads past it, as is done here.
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    *heard, printed = map(json.loads, lines)
    assert heard == [{"repeat": n, "of": 2 if n else 0} for n in range(3)]
    first, second = printed["ranks"]
    assert (first["rank"], first["micro_batches"], first["dummies"]) == (0, 3, 0)
    assert (second["rank"], second["micro_batches"], second["dummies"]) == (1, 3, 1)
    for rank in printed["ranks"]:
        phases = ("forward", "backward", "optimizer", "step", "logp")
        assert all(rank[f"{phase}_s"] > 0 for phase in phases)
        assert rank["peak_bytes"] > 2**20
    assert len(printed["steps_s"]) == len(printed["logp_s"]) == 2
    assert printed["step_s"] == pytest.approx(np.median(printed["steps_s"]))
    assert printed["step_s"] >= max(first["step_s"], second["step_s"]) * 0.999
    assert printed["loss"] == pytest.approx(first["loss"] + second["loss"])


def test_a_job_for_another_number_of_ranks_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def of_two(device: str) -> Iterator[Any]:
        yield SimpleNamespace(get_rank=lambda: 0, size=lambda: 2)

    monkeypatch.setattr(fsdp, "process_group", of_two)
    assert fsdp.main([str(write_job(tmp_path, updates=(UPDATES[0][:1],), logp=()))]) == 2
    said = "the job has micro-batches for [1] ranks; 2 were launched"
    assert said in capsys.readouterr().err


if __name__ == "__main__":
    torch.set_num_threads(1)
    save_rank_gradients(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # as kernels/distributed.py ends, and for its reason
