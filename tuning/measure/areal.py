"""Steps of AReaL's own engine, in another Python that has AReaL: as it is, or with Espalier inside.

Notable:
- flat and trees run through the same engine, AReaL's FSDP actor: the ratio that a team decides by
- every measurement is a launch of its own: ranks start, build, warm up, time and end
- that Python sees AReaL's packages and ours, and none of those beside ours: AReaL pins its torch
- on a CPU ranks speak over Gloo, and flat has one row a micro-batch, for AReaL keeps rows apart by
  flash attention alone
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels.model import resolve_config
from packing.rows import Rows
from packing.sources import BUNDLED_FOLDER
from tuning.jobs.points import Point, Question
from tuning.measure.batch import Prepared, vocabulary_at_least
from tuning.measure.launch import Launched, launch
from tuning.measure.machine import machine_name
from tuning.measure.ranks import RankBench, together
from tuning.measure.step import Bench, Progress, logp_times, step_times
from tuning.plan.plan import STEP_NAMES, Layout, TuningPlan

_ROOT = Path(__file__).resolve().parents[__package__.count(".") + 1]
_OURS = ("espalier",) if __package__.startswith("espalier.") else ("packing", "kernels", "tuning")
_WORKER = f"{__package__}.areal_worker"
_LEAST = (1, 0, 4)
_PROBE = """
import importlib.metadata, json
found = {}
for name in ("areal", "torch"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def areal_in(python: str) -> dict[str, str]:
    """Versions of AReaL and torch in an interpreter. Raises ValueError with the mend."""
    try:
        done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, timeout=120)
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise ValueError(
            f"{python} is no Python that runs: name one that has AReaL, such as "
            ".areal-env/bin/python, which scripts/areal_env makes."
        ) from None
    if "areal" not in found or "torch" not in found:
        raise ValueError(
            f"{python} has no {'AReaL' if 'areal' not in found else 'torch'}: install areal==1.0.4 "
            "there, or let scripts/areal_env make an environment."
        )
    version = tuple(int(part) for part in found["areal"].split(".")[:3] if part.isdecimal())
    if version < _LEAST:
        raise ValueError(
            f"{python} has AReaL {found['areal']}; its step is measured from 1.0.4 on: install "
            "areal==1.0.4 there."
        )
    return found


class ArealBench(RankBench):
    """A plan's batch, trained by AReaL's FSDP actor on all ranks of the plan.

    python: an interpreter that has AReaL
    Raises ValueError where the plan's step cannot be run so, ModelNotFound or UnsupportedModel.
    """

    def __init__(self, plan: TuningPlan, rows: Rows, python: str) -> None:
        if problems := plan.unmeasurable(python):
            raise ValueError(" ".join(problems))
        self._python, self._versions = python, areal_in(python)
        super().__init__(plan, rows)
        self._ranks = plan.dp_size * plan.tp_size
        if self.device.type == "cuda" and len(self._gpus(self._ranks)) < self._ranks:
            raise ValueError(
                f"AReaL's engine needs {self._ranks} GPUs from {plan.device} on, one a rank: "
                "lower the data-parallel or tensor-parallel ranks, or estimate for a GPU by name."
            )
        name = machine_name(self.device)
        self.machine = f"{self._ranks} × {name}" if self._ranks > 1 else name
        flat = "; flat has one row a micro-batch" if self.device.type == "cpu" else ""
        self.notes = (
            *self.notes[:-1],
            f"steps are {STEP_NAMES[plan.step_of]}: its FSDP engine {self._versions['areal']} on "
            f"torch {self._versions['torch']}{flat}",
        )

    def question(self, mode: Layout, cap: int) -> Question:
        versions = f"{self._versions['torch']}, AReaL {self._versions['areal']}"
        return replace(super().question(mode, cap), torch=versions)

    def prepared(self, blank: Point) -> Prepared | Point:
        if blank.question.mode == "padded":
            return replace(blank, message="AReaL's engine trains no padded rows")
        return super().prepared(blank)

    def _launched(
        self, mode: Layout, cap: int, folder: Path, repeat_s: float, progress: Progress
    ) -> Launched:
        plan, cpu = self.plan, self.device.type == "cpu"
        rows = self._write_rows(mode, cap, folder)
        alone = mode == "flat" and cpu
        job = {
            "mode": mode,
            "plugin": plan.step_of == "areal-espalier",
            "cpu": cpu,
            "cap": self.batch.rows.longest if alone else cap,
            "n_mbs": max(min(rows) // plan.ppo_n_minibatches, 1) if alone else 1,
            "backend": plan.backend,
            "dtype": plan.dtype,
            "optimizer_dtype": plan.optimizer_dtype,
            "gradient_checkpointing": plan.gradient_checkpointing,
            "ppo_n_minibatches": plan.ppo_n_minibatches,
            "repeat_s": repeat_s,
            "budget": int(plan.memory_budget_gib * 2**30),
        }
        (folder / "job.json").write_text(json.dumps(job))
        config = resolve_config(plan.model, vocabulary_at_least(plan, self.batch.rows)).to_dict()
        config.pop("auto_map", None)  # AReaL would run a model's own code
        (folder / "config.json").write_text(json.dumps(config))
        shutil.copytree(BUNDLED_FOLDER, folder, dirs_exist_ok=True)
        path = folder / "path"
        path.mkdir()
        for name in _OURS:
            (path / name).symlink_to(_ROOT / name)
        variables = {
            "PYTHONPATH": str(path),
            "ESPALIER_AREAL": str(int(plan.step_of == "areal-espalier")),
            "ESPALIER_AREAL_PACKER": plan.packer,
        }
        if cpu:
            variables |= {"CUDA_VISIBLE_DEVICES": "", "TORCHDYNAMO_DISABLE": "1"}
        return launch(
            folder / "job.json",
            self._ranks,
            progress,
            self._gpus(self._ranks),
            module=_WORKER,
            python=self._python,
            folder=path,
            variables=variables,
        )

    def _write_rows(self, mode: Layout, cap: int, folder: Path) -> list[int]:
        """Every rank's rows in the order that AReaL deals them; how many each has."""
        simulation, read = self.batch.simulation(self.plan, cap), self.read
        trained = read.loss_mask
        if trained is None:
            trained = np.ones(read.n_tokens, dtype=np.uint8)
            trained[read.offsets[:-1]] = 0  # nothing predicts a first token
        counts = []
        for number, rank in enumerate(simulation.compute_logp.ranks):
            own = rank.members[read.lengths[rank.members] > 0]
            dealt = replace(read, loss_mask=trained).take(own)
            at = np.concatenate([np.arange(*read.offsets[i : i + 2]) for i in own])
            for peer in range(self.plan.tp_size):
                np.savez(
                    folder / f"rows-{number * self.plan.tp_size + peer}.npz",
                    tokens=dealt.tokens,
                    offsets=dealt.offsets,
                    group=dealt.group,
                    trained=trained[at],
                    old_logp=self.data.old_logp[at] * trained[at],
                )
            counts.append(len(own))
        return counts

    def _point(self, made: Prepared, result: Mapping[str, Any]) -> Point:
        stats = result["stats"]
        told = [
            f"{name} {stats[key]:.4g}"
            for name in ("tree_token_ratio", "num_micro_batches", "grad_norm")
            for key in [f"ppo_actor/update/{name}"]
            if key in stats
        ]
        once = () if result["warm"] else ("timed once, as it warmed up: no time was left",)
        return replace(
            made.blank,
            outcome="measured",
            **step_times(np.array(result["steps_s"])),
            **logp_times(np.array(result["logp_s"])),
            memory_bytes=int(result["peak_bytes"]),
            memory_kind=str(result["memory_kind"]),
            loss=stats.get("ppo_actor/update/actor_loss/avg"),
            versions=dict(made.blank.versions) | result["versions"],
            notes=(*made.blank.notes, *once, "AReaL says: " + ", ".join(told)),
        )


def bench_for(plan: TuningPlan, rows: Rows, areal_python: str = "") -> Bench | RankBench:
    """What times the plan's step.

    AReaL's engine where the step is AReaL's; else all ranks together where this machine has a GPU
    for each, else the slowest one's share. Raises ValueError as ``ArealBench`` does.
    """
    if plan.step_of != "espalier":
        return ArealBench(plan, rows, areal_python or os.environ.get("ESPALIER_AREAL_PYTHON", ""))
    return RankBench(plan, rows) if together(plan) else Bench(plan, rows)
