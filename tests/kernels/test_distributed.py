"""Two FSDP2 ranks over Gloo: gradients of the whole batch in one process, dummies and all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor

from kernels.distributed import Job, JobError, process_group, rank_batches, shard
from kernels.model import build_model
from kernels.presets import PRESETS
from kernels.step import StepData, accumulate_gradients
from packing.rows import Rows
from tests.kernels.layouts import awkward_rows

ROOT = Path(__file__).resolve().parents[2]
RANKS = [[[0, 9, 3], [1, 2, 4, 8]], [[5, 6, 7]]]  # the second rank runs a dummy tree
CASES = {  # name: (head tied to the embedding, gradient checkpointing)
    "tied": (True, False),
    "untied, checkpointed": (False, True),
}


def write_job(folder: Path, **changes: Any) -> Path:
    rows = awkward_rows()
    rng = np.random.default_rng(3)
    np.savez(
        folder / "rows.npz",
        tokens=rows.tokens,
        offsets=rows.offsets,
        loss_mask=rng.integers(0, 2, rows.n_tokens).astype(np.uint8),
        old_logp=rng.normal(-7, 0.2, rows.n_tokens).astype(np.float32),
        advantages=rng.normal(size=rows.n_tokens).astype(np.float32),
    )
    for name, (tied, _) in CASES.items():
        config = PRESETS["tiny"] | {"tie_word_embeddings": tied}
        (folder / f"{name}.json").write_text(json.dumps(config))
    job = {
        "model": str(folder / "tied.json"),
        "rows": "rows.npz",
        "micro_batches": RANKS,
        "max_tokens_per_mb": 64,
        "repeats": 2,
    }
    (folder / "job.json").write_text(json.dumps(job | changes))
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


def step_data(job: Job) -> tuple[Rows, StepData]:
    rows, old_logp, advantages = job.load()
    return rows, StepData.of(rows, old_logp, advantages)


def case_model(job: Path, name: str) -> Any:
    checkpointing = CASES[name][1]
    return build_model(str(job.parent / f"{name}.json"), gradient_checkpointing=checkpointing)


def save_rank_gradients(path: Path) -> None:
    """What each rank of the test runs: the gradients of every case, whole, from rank 0."""
    job = Job.read(path)
    rows, data = step_data(job)
    with process_group("cpu") as mesh:
        batches = rank_batches(job, rows, mesh.get_rank())
        for name in CASES:
            model = case_model(path, name)
            shard(model, mesh, "float32")
            accumulate_gradients(model, batches, data)
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
    done = launch("tests.kernels.test_distributed", path)
    assert done.returncode == 0, done.stderr
    job = Job.read(path)
    rows, data = step_data(job)
    everything = [batch for rank in range(2) for batch in rank_batches(job, rows, rank)]
    assert [len(batch.layout.rows) for batch in everything] == [3, 4, 3, 0]
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
    done = launch("kernels.distributed", path)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    first, second = printed["ranks"]
    assert (first["rank"], first["micro_batches"], first["dummies"]) == (0, 2, 0)
    assert (second["rank"], second["micro_batches"], second["dummies"]) == (1, 2, 1)
    for rank in printed["ranks"]:
        assert all(rank[f"{phase}_s"] > 0 for phase in ("forward", "backward", "optimizer", "step"))
        assert rank["peak_bytes"] > 2**20
    assert printed["step_s"] == max(first["step_s"], second["step_s"])
    assert printed["loss"] == pytest.approx(first["loss"] + second["loss"])


def test_flat_and_padded_ranks_get_dummies_as_well(tmp_path: Path) -> None:
    for mode in ("flat", "padded"):
        job = Job.read(write_job(tmp_path, mode=mode))
        rows, _, _ = job.load()
        counts = [[len(b.layout.rows) for b in rank_batches(job, rows, r)] for r in range(2)]
        assert counts == [[3, 4], [3, 0]], mode


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"colour": 1}, "fields among"), ({"micro_batches": 3}, "lacks a field or has a wrong one")],
)
def test_a_job_that_cannot_be_used_says_why(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobError, match=message):
        Job.read(write_job(tmp_path, **changes))
    with pytest.raises(JobError, match="cannot be read"):
        Job.read(tmp_path / "absent.json")


def test_rows_without_advantages_are_refused_by_name(tmp_path: Path) -> None:
    job = Job.read(write_job(tmp_path))
    np.savez(tmp_path / "rows.npz", tokens=np.arange(3), offsets=np.array([0, 3]))
    with pytest.raises(JobError, match="lacks advantages, old_logp"):
        job.load()


if __name__ == "__main__":
    torch.set_num_threads(1)
    save_rank_gradients(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # as kernels/distributed.py ends, and for its reason
