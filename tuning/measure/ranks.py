"""Steps of several ranks that really run together, one local GPU each.

Notable:
- every measurement is a launch of its own: ranks start, build, warm up, time and end, and nothing
  of them stays
- times are those of the slowest rank, repeat by repeat: waiting for dummy trees and for gathered
  layers is in them; memory is that of the fullest rank
- the model's state is divided over ranks (FSDP2)
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from kernels.model import build_model
from kernels.ranks import RankJob, save_rows
from kernels.ranks.fsdp import BUILDING
from packing.rows import Rows
from tuning.jobs.points import Point
from tuning.measure.batch import MeasuredBatch, Prepared, vocabulary_at_least
from tuning.measure.launch import Launched, launch
from tuning.measure.machine import machine_name, visible_gpus
from tuning.measure.rank_pieces import rank_pieces
from tuning.measure.step import Progress, logp_times, step_times
from tuning.plan.plan import Layout, TuningPlan


@dataclass(frozen=True)
class RankMemory:
    """Bytes that one rank may use; every rank enforces them itself."""

    budget: int

    def enforce(self) -> None:
        """Nothing to do here: this process runs no step."""


class RankBench(MeasuredBatch):
    """A plan's batch on ``plan.dp_size`` ranks of this machine.

    device: where ranks run; the plan's own by default. With "cpu" they speak over Gloo
    """

    in_turn = None
    """Launches cannot be timed step by step in turn, as one bench's points can."""

    def __init__(self, plan: TuningPlan, rows: Rows, device: str | None = None) -> None:
        where = torch.device(device or plan.device)
        super().__init__(plan, rows, where, f"{plan.dp_size} × {machine_name(where)}")
        self.memory = RankMemory(int(plan.memory_budget_gib * 2**30) or _available(plan, where))
        model = build_model(
            plan.model,
            vocab_at_least=vocabulary_at_least(plan, rows),
            dtype=plan.dtype,
            device="meta",
        )
        self.description = model.description
        elements = sum(p.numel() for p in model.parameters())
        width = getattr(torch, plan.optimizer_dtype).itemsize
        self.gradient_bytes = -(-elements // plan.dp_size) * width
        self.notes += (f"{plan.dp_size} ranks ran together; times are the slowest one's",)

    def measure(
        self,
        mode: Layout,
        cap: int,
        limit_s: float = math.inf,
        repeat_s: float = math.inf,
        progress: Progress = lambda repeat, of: None,
    ) -> Point:
        """Time whole steps of all ranks, as many as ``repeat_s`` seconds allow.

        A step longer than ``limit_s`` is run as well: a part of one would leave out the waits.
        """
        blank = self.blank(mode, cap)
        made = self.prepared(blank)
        if isinstance(made, Point):
            return made
        with tempfile.TemporaryDirectory(prefix="espalier-ranks-") as folder:
            try:
                ended = self._launched(
                    mode, cap, Path(folder), min(repeat_s, limit_s, 1e6), progress
                )
            except (ValueError, RuntimeError) as error:
                return replace(blank, message=str(error))
        if ended.out_of_memory is not None:
            message = f"does not fit: {self._needed(ended.out_of_memory)}"
            return replace(made.blank, outcome="out-of-memory", message=message)
        if ended.result is None:
            return replace(made.blank, outcome="crashed", message=ended.death)
        return self._point(made, ended.result)

    def _launched(
        self, mode: Layout, cap: int, folder: Path, repeat_s: float, progress: Progress
    ) -> Launched:
        """Ranks that ran over what is written into ``folder``.

        Raises ValueError or RuntimeError, in AReaL's words, where it would refuse the batch.
        """
        job, path = self._job(mode, cap, repeat_s), folder / "job.json"
        data = self.data
        save_rows(folder / job.rows, self.batch.rows, data.old_logp, data.advantages)
        job.write(path)
        return launch(path, self.plan.dp_size, progress, self._gpus(self.plan.dp_size))

    def _job(self, mode: Layout, cap: int, repeat_s: float) -> RankJob:
        plan = self.plan
        simulation = self.batch.simulation(plan, cap)
        return RankJob(
            model=plan.model,
            rows="rows.npz",
            updates=tuple(rank_pieces(one, mode) for one in simulation.ppo_update),
            logp=rank_pieces(simulation.compute_logp, mode),
            mode="tree" if mode == "tree" else "rows",
            device="cuda" if self.device.type == "cuda" else "cpu",
            dtype=plan.dtype,
            optimizer_dtype=plan.optimizer_dtype,
            gradient_checkpointing=plan.gradient_checkpointing,
            head_chunk=plan.head_chunk,
            vocab_at_least=vocabulary_at_least(plan, self.batch.rows),
            fold=self.read is not self.batch.rows,
            repeat_s=repeat_s,
            memory_budget=self.memory.budget,
        )

    def _gpus(self, ranks: int) -> Sequence[str]:
        if self.device.type != "cuda":
            return ()
        first = self.device.index or 0
        return visible_gpus()[first : first + ranks]

    def _needed(self, where: Mapping[str, Any]) -> str:
        phase = str(where["phase"])
        place = phase
        if phase != BUILDING:
            place = f"{phase} of micro-batch {int(where['micro_batch']) + 1}"
        gib = self.memory.budget / 2**30
        return f"needs more than {gib:.2f} GiB at {place} on rank {where['rank']}"

    def _point(self, made: Prepared, result: Mapping[str, Any]) -> Point:
        """The point of all ranks; phases are the slowest rank's."""
        ranks = result["ranks"]
        slowest = max(ranks, key=lambda rank: rank["step_s"])
        phases = ("inputs", "mask", "forward", "backward", "optimizer")
        dummies = [int(rank["dummies"]) for rank in ranks]
        cuda = self.device.type == "cuda"
        return replace(
            made.blank,
            outcome="measured",
            **step_times(made.packing_s + np.array(result["steps_s"])),
            **logp_times(made.logp_packing_s + np.array(result["logp_s"])),
            phases_s={"packing": made.packing_s} | {n: slowest[f"{n}_s"] for n in phases},
            memory_bytes=max(int(rank["peak_bytes"]) for rank in ranks),
            memory_kind="peak allocated on the fullest device"
            if cuda
            else "peak resident memory of the fullest rank",
            loss=float(result["loss"]),
            notes=(*made.blank.notes, f"dummy micro-batches by rank: {dummies}"),
        )


def together(plan: TuningPlan) -> bool:
    """Whether this machine has a GPU for every data-parallel rank, from the plan's device on."""
    if plan.dp_size < 2 or not plan.device.startswith("cuda"):
        return False
    first = torch.device(plan.device).index or 0
    return len(visible_gpus()) >= first + plan.dp_size


def _available(plan: TuningPlan, where: torch.device) -> int:
    if where.type != "cuda":
        return int(psutil.virtual_memory().available / plan.dp_size)
    first = where.index or 0
    totals = [
        torch.cuda.get_device_properties(index).total_memory
        for index in range(first, first + plan.dp_size)
    ]
    return min(int(total) for total in totals)
