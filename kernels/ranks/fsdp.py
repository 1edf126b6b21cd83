"""Training steps on several ranks with FSDP2: one rank's share each, launched by torchrun.

``python -m torch.distributed.run --standalone --nproc-per-node N -m kernels.ranks.fsdp JOB.json``
prints JSON objects, one a line; see ``rank_job.Job`` for the file and ``main`` for the objects.

Notable:
- weights of the loss are those of the whole batch and gradients are summed, not averaged: they
  equal those of one process over all rows
- a rank's waiting is in its times, for layers are gathered by all ranks together
- parameters live divided, in the optimizer's dtype, and are gathered in the computation's;
  gradients are reduced in fp32
- torchrun starts each rank in a session of its own, which no signal to whoever launched it
  reaches; with ``--tied`` a rank ends at once when its standard input does, and that is a pipe
  which the system closes with its launcher
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from kernels.memory import limit_memory
from kernels.model import (
    DType,
    StepData,
    StepOptions,
    StepOutOfMemory,
    StepResult,
    TreeLM,
    adamw,
    build_model,
    compute_logp,
    decoder_layers,
    out_of_memory_at,
    own_embedding,
    repeats_within,
    train_step,
)
from kernels.ranks.job import JobError, RankBatches, RankJob
from kernels.ranks.report import RankRun, run_of, slowest, together

BUILDING = "building the model"
"""Where memory may run out before there is a micro-batch."""


def shard(model: TreeLM, mesh: DeviceMesh, dtype: DType) -> None:
    """Divide ``model`` over ``mesh``: every layer, an untied embedding, and the rest.

    It computes in ``dtype``; gradients are summed over ranks in fp32, not averaged.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=getattr(torch, dtype), reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    units: list[nn.Module] = [*decoder_layers(model.lm)]
    if (embedding := own_embedding(model.lm)) is not None:
        units.append(embedding)
    for unit in (*units, model):
        fully_shard(unit, mesh=mesh, mp_policy=policy)
        assert isinstance(unit, FSDPModule)
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)  # Gloo has no premultiplied sum


def run_rank(job: RankJob, mesh: DeviceMesh) -> RankRun:
    """Warm up, then time steps of this rank. Raises StepOutOfMemory, JobError."""
    rank, world = mesh.get_rank(), mesh.size()
    if job.ranks != {world}:
        raise JobError(
            f"the job has micro-batches for {sorted(job.ranks)} ranks; {world} were launched"
        )
    cuda = job.device == "cuda"
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    idle = psutil.Process().memory_info().rss
    rows, old_logp, advantages = job.load()
    if job.memory_budget:
        limit_memory(device, job.memory_budget)
    with out_of_memory_at(BUILDING, 0):
        model = build_model(
            job.model,
            vocab_at_least=job.vocab_at_least,
            dtype=job.optimizer_dtype,
            device=device,
            gradient_checkpointing=job.gradient_checkpointing,
        )
        shard(model, mesh, job.dtype)
        optimizer = adamw(model)
    batches = RankBatches.of(job, rows, rank, int(model.config.vocab_size))
    data = StepData.of(batches.rows, old_logp, advantages)
    options = StepOptions(chunk_size=job.head_chunk)

    def step() -> tuple[list[StepResult], float]:
        logp_s = 0.0
        if batches.logp:
            dist.barrier()
            logp_s = compute_logp(model, batches.logp, batches.rows, options).total_s
        dist.barrier()
        updates = [train_step(model, optimizer, own, data, options) for own in batches.updates]
        return updates, logp_s

    _say(rank, 0, 0)
    step()
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    done: list[tuple[list[StepResult], float]] = []
    repeats = job.repeats or 1
    while len(done) < repeats:
        _say(rank, len(done) + 1, repeats)
        done.append(step())
        if len(done) == 1 and not job.repeats:
            updates, logp_s = done[0]
            once_s = slowest([sum(one.total_s for one in updates) + logp_s], device)[0]
            repeats = repeats_within(once_s, job.repeat_s)
    return run_of(rank, batches, done, _peak(device, idle, [one for one, _ in done]))


def _peak(device: torch.device, idle: int, steps: Sequence[Sequence[StepResult]]) -> int:
    """On CUDA each micro-batch resets the device's own mark: the largest of them counts."""
    if device.type == "cuda":
        marks = [b.peak_allocated or 0 for one in steps for step in one for b in step.micro_batches]
        return max(*marks, int(torch.cuda.max_memory_allocated(device)))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - idle


@contextmanager
def process_group(device: str) -> Iterator[DeviceMesh]:
    """The group that torchrun's environment describes, and its mesh; left at the end."""
    local = int(os.environ["LOCAL_RANK"])
    if device == "cuda":
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    else:
        dist.init_process_group("gloo")
    try:
        yield init_device_mesh(device, (dist.get_world_size(),))
    finally:
        dist.destroy_process_group()


def _say(rank: int, repeat: int, of: int) -> None:
    if rank == 0:
        _print({"repeat": repeat, "of": of})


def _print(what: dict[str, Any]) -> None:
    """In one write: lines of several ranks do not mix."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def tie() -> None:
    """End with the launcher, whatever ends it."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: Sequence[str]) -> int:
    """The arguments are ``JOB.json [--tied]``; returns the exit status.

    Rank 0 prints ``{"repeat", "of"}`` as it goes (repeat 0 warms up), then ``{"step_s", "steps_s",
    "logp_s", "loss", "ranks": [RankReport …]}``: times of the slowest rank, repeat by repeat, and
    ``step_s`` their median. A rank that runs out of memory prints ``{"out_of_memory": {rank, phase,
    micro_batch, reason}}`` and ends with status 1, at which torchrun ends the others; a job that
    cannot be used is told on stderr, status 2.
    """
    path, *flags = arguments
    if "--tied" in flags:
        tie()
    try:
        job = RankJob.read(Path(path))
        with process_group(job.device) as mesh:
            told = together(run_rank(job, mesh), job.device)
            dist.barrier()  # no rank leaves while another still listens to it
    except StepOutOfMemory as error:
        where = {"rank": int(os.environ["RANK"]), "phase": error.phase}
        reason = {"micro_batch": error.micro_batch, "reason": str(error)}
        _print({"out_of_memory": where | reason})
        return 1
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if int(os.environ["RANK"]) == 0:
        _print(told)
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Gloo's threads may still run when the interpreter takes itself apart, and that aborts the
    # process now and then; everything is printed, so nothing is lost by leaving at once.
    os._exit(status)
