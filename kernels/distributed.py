"""Training steps on several ranks with FSDP2: one rank's share each, launched by torchrun.

``python -m torch.distributed.run --standalone --nproc-per-node N -m kernels.distributed JOB.json``
prints one JSON object; see ``Job`` for the file and ``main`` for the object.

Notable:
- weights of the loss are those of the whole batch and gradients are summed, not averaged: they
  equal those of one process over all rows
- a rank with fewer micro-batches runs dummies, so that every rank makes the same collective calls;
  its waiting is in its times, for layers are gathered by all ranks together
- parameters live divided, in the optimizer's dtype, and are gathered in the computation's;
  gradients are reduced in fp32
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from kernels._layers import decoder_layers, own_embedding
from kernels.logprobs import CHUNK_SIZE
from kernels.micro_batches import (
    MicroBatch,
    flat_batches,
    padded_batches,
    row_layout,
    tree_batches,
)
from kernels.model import DType, TreeLM, build_model
from kernels.optimizer import adamw
from kernels.step import StepData, StepOptions, StepOutOfMemory, StepResult, train_step
from packing.layout import depth_first_layout
from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import build_forest


class JobError(ValueError):
    """A job file cannot be used; the message names the field and the mend."""


@dataclass(frozen=True)
class Job:
    """What all ranks run.

    rows:              an ``.npz`` beside the job file, or an absolute path: ``tokens`` int32,
                       ``offsets`` int64, optional ``group`` and ``loss_mask``, and per token
                       ``old_logp`` and ``advantages`` float32
    micro_batches:     of every rank, the row numbers of each of its micro-batches
    mode:              whether a micro-batch is one tree, flat rows or padded rows
    max_tokens_per_mb: length of every tree with its padding
    device:            "cuda" (NCCL, a GPU a rank) or "cpu" (Gloo)
    repeats:           timed steps, after one that warms up
    """

    model: str
    rows: str
    micro_batches: tuple[tuple[tuple[int, ...], ...], ...]
    max_tokens_per_mb: int
    mode: Literal["tree", "flat", "padded"] = "tree"
    device: Literal["cuda", "cpu"] = "cpu"
    dtype: DType = "float32"
    optimizer_dtype: DType = "float32"
    gradient_checkpointing: bool = False
    head_chunk: int = CHUNK_SIZE
    vocab_at_least: int = 0
    repeats: int = 3

    @classmethod
    def read(cls, path: Path) -> Job:
        """Raises JobError where the file is not a job."""
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise JobError(f"the job {path} cannot be read: {error}") from error
        known = {f.name for f in fields(cls)}
        if not isinstance(content, Mapping) or not content.keys() <= known:
            raise JobError(f"the job {path} must be an object with fields among {sorted(known)}")
        try:
            taken = dict(content)
            taken["micro_batches"] = tuple(
                tuple(tuple(map(int, rows)) for rows in rank) for rank in taken["micro_batches"]
            )
            taken["rows"] = str(path.parent / taken["rows"])
            return cls(**taken)
        except (KeyError, TypeError, ValueError) as error:
            raise JobError(f"the job {path} lacks a field or has a wrong one: {error}") from error

    def load(self) -> tuple[Rows, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Rows, old log-probabilities and advantages."""
        with np.load(self.rows, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        missing = {"tokens", "offsets", "old_logp", "advantages"} - arrays.keys()
        if missing:
            raise JobError(f"{self.rows} lacks {', '.join(sorted(missing))}")
        group = arrays.get("group", np.arange(len(arrays["offsets"]) - 1))
        rows = Rows(
            arrays["tokens"].astype(np.int32),
            arrays["offsets"].astype(np.int64),
            group.astype(np.int32),
            arrays.get("loss_mask"),
        )
        return rows, arrays["old_logp"], arrays["advantages"]


@dataclass(frozen=True)
class RankReport:
    """One rank's step: medians over repeats, in seconds; waiting for other ranks is in them.

    peak_bytes: on CUDA allocated by the device's allocator; on a CPU resident memory above what
                the process held before the model
    """

    rank: int
    micro_batches: int
    dummies: int
    step_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float
    peak_bytes: int
    loss: float


def rank_batches(job: Job, rows: Rows, rank: int) -> list[MicroBatch]:
    """The micro-batches of one rank, dummies among them so that every rank has as many."""
    own = [np.array(members, dtype=np.int64) for members in job.micro_batches[rank]]
    dummies = max(map(len, job.micro_batches)) - len(own)
    if job.mode == "tree":
        layouts = [*_trees(rows, own), *[row_layout(rows, [])] * dummies]
        return tree_batches(layouts, job.max_tokens_per_mb)
    filled = [*own, *[np.empty(0, dtype=np.int64)] * dummies]
    return (
        flat_batches(rows, filled)
        if job.mode == "flat"
        else padded_batches(rows, filled, rows.longest)
    )


def _trees(rows: Rows, members: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
    if not members:
        return []
    order = PrefixOrder.of(rows)
    tree_of_row = np.full(len(rows), -1, dtype=np.int32)
    for tree, chosen in enumerate(members):
        tree_of_row[chosen] = tree
    tokens = np.array([order.tree_tokens(chosen) for chosen in members], dtype=np.int64)
    fed = np.concatenate(members)
    packing = Packing(tree_of_row, tokens, int(tokens.max()), "given", fed)
    forest = build_forest(order, packing)
    return [depth_first_layout(rows, forest.tree(tree)) for tree in range(len(forest))]


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


def run_rank(job: Job, mesh: DeviceMesh) -> RankReport:
    """Warm up, then time ``job.repeats`` steps of this rank. Raises StepOutOfMemory, JobError."""
    rank, world = mesh.get_rank(), mesh.size()
    if len(job.micro_batches) != world:
        raise JobError(
            f"the job has micro-batches for {len(job.micro_batches)} ranks; {world} were launched"
        )
    device = torch.device("cuda", torch.cuda.current_device()) if job.device == "cuda" else None
    idle = psutil.Process().memory_info().rss
    rows, old_logp, advantages = job.load()
    data = StepData.of(rows, old_logp, advantages)
    batches = rank_batches(job, rows, rank)
    model = build_model(
        job.model,
        vocab_at_least=job.vocab_at_least,
        dtype=job.optimizer_dtype,
        device=device or "cpu",
        gradient_checkpointing=job.gradient_checkpointing,
    )
    shard(model, mesh, job.dtype)
    optimizer = adamw(model)
    options = StepOptions(chunk_size=job.head_chunk)
    steps: list[StepResult] = []
    for _ in range(1 + job.repeats):
        if device is not None:
            torch.cuda.reset_peak_memory_stats(device)
        dist.barrier()
        steps.append(train_step(model, optimizer, batches, data, options))
    timed = steps[1:]
    if device is not None:
        peak = max(b.peak_allocated or 0 for step in timed for b in step.micro_batches)
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - idle

    def median(values: Sequence[float]) -> float:
        return float(np.median(values))

    return RankReport(
        rank=rank,
        micro_batches=len(batches),
        dummies=sum(not len(b.layout.rows) for b in batches),
        step_s=median([step.total_s for step in timed]),
        forward_s=median([sum(b.forward_s for b in step.micro_batches) for step in timed]),
        backward_s=median([sum(b.backward_s for b in step.micro_batches) for step in timed]),
        optimizer_s=median([step.optimizer_s for step in timed]),
        peak_bytes=peak,
        loss=timed[-1].loss,
    )


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


def _gather(report: RankReport, device: str) -> list[RankReport]:
    """Every rank's report, as numbers."""
    names = [f.name for f in fields(RankReport)]
    own = torch.tensor(
        [float(getattr(report, name)) for name in names], dtype=torch.float64, device=device
    )
    all_of_them = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, own)
    whole = {"rank", "micro_batches", "dummies", "peak_bytes"}
    return [
        RankReport(**{n: int(x) if n in whole else x for n, x in zip(names, one, strict=True)})
        for one in (numbers.tolist() for numbers in all_of_them)
    ]


def main(arguments: Sequence[str]) -> int:
    """Rank 0 prints ``{"step_s", "loss", "ranks": [RankReport …]}``.

    ``step_s`` is the slowest rank's. A rank that runs out of memory prints
    ``{"out_of_memory": {rank, phase, micro_batch, reason}}`` and ends with status 1, at which
    torchrun ends the others; a job that cannot be used is told on stderr, status 2.
    """
    try:
        (path,) = arguments
        job = Job.read(Path(path))
        with process_group(job.device) as mesh:
            reports = _gather(run_rank(job, mesh), job.device)
            dist.barrier()  # no rank leaves while another still listens to it
    except StepOutOfMemory as error:
        where = {"rank": int(os.environ["RANK"]), "phase": error.phase}
        reason = {"micro_batch": error.micro_batch, "reason": str(error)}
        print(json.dumps({"out_of_memory": where | reason}), flush=True)
        return 1
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if int(os.environ["RANK"]) == 0:
        print(
            json.dumps(
                {
                    "step_s": max(report.step_s for report in reports),
                    "loss": sum(report.loss for report in reports),
                    "ranks": [vars(report) for report in reports],
                }
            )
        )
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Gloo's threads may still run when the interpreter takes itself apart, and that aborts the
    # process now and then; everything is printed, so nothing is lost by leaving at once.
    os._exit(status)
