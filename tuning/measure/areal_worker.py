"""AReaL's own PPO actor over one rank's share of a batch: run by a Python that has AReaL.

``python -m torch.distributed.run … -m tuning.measure.areal_worker JOB.json``, with AReaL's packages
and ours on its path and nothing else. Notable:
- a step is what AReaL's trainer does with a batch: ``compute_logp``, advantages, ``ppo_update``;
  the first and the last are timed, each by the rank that took longest
- ``plugin``: Espalier inside, by the hook that a ``.pth`` line would bring in
- AReaL's flat path keeps rows of one micro-batch apart by flash attention alone: without it, as on
  a CPU, each micro-batch has one row
- what takes longer than ``repeat_s`` is timed as it warms up, once
- weights are random, of the model's shape; nothing is loaded and no code of a model is run
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

_LR = 1e-6


def main(path: Path) -> int:
    """Prints ``{"repeat", "of"}`` as it goes, then what ``tuning.measure.areal`` reads."""
    job = json.loads(path.read_text())
    if job["plugin"]:
        from kernels.integrations.areal import hook  # noqa: F401 - it patches what is imported next
    import torch

    try:
        told = _run(job, path.parent)
    except torch.OutOfMemoryError as error:
        return _out_of_memory(str(error))
    except MemoryError:
        return _out_of_memory("memory ran out")
    except RuntimeError as error:
        if "can't allocate memory" in str(error) or "not enough memory" in str(error):
            return _out_of_memory(str(error))
        raise
    if int(os.environ["RANK"]) == 0:
        _say(told)
    return 0


def _run(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Warm up, then time steps of every rank."""
    import torch
    import torch.distributed as dist
    from areal.api.io_struct import FinetuneSpec
    from areal.engine.fsdp_engine import FSDPPPOActor

    from kernels.model import repeats_within
    from tuning.measure.memory_watch import MemoryWatch

    rank = int(os.environ["RANK"])
    device = torch.device("cpu" if job["cpu"] else f"cuda:{os.environ['LOCAL_RANK']}")
    watch = MemoryWatch(device)
    torch.manual_seed(0)  # the same random weights on every rank
    actor = FSDPPPOActor(_config(job, folder))
    actor.create_process_group()
    actor.initialize(None, FinetuneSpec(1, 64, 8))
    if job["budget"]:
        from kernels.memory import limit_memory

        limit_memory(device, job["budget"])
    groups = _groups(folder / f"rows-{rank}.npz")

    def once() -> tuple[float, float]:
        batch = [{k: v.clone() for k, v in group.items()} for group in groups]
        logps, logp_s = _timed(lambda: actor.compute_logp(batch), device)
        for group, logp in zip(batch, logps, strict=True):
            group["prox_logp"] = logp
        ready = actor.compute_advantages(batch)
        return logp_s, _timed(lambda: actor.ppo_update(ready), device)[1]

    with watch.peak() as peak:
        if rank == 0:
            _say({"repeat": 0, "of": 0})
        first = _slowest(once())
        once_s = sum(first)
        repeats, times = repeats_within(once_s, job["repeat_s"]), []
        if once_s > job["repeat_s"]:  # a second time would take as long
            repeats, times = 0, [first]
        for number in range(repeats):
            if rank == 0:
                _say({"repeat": number + 1, "of": repeats})
            actor.export_stats()
            times.append(_slowest(once()))
    peaks: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(peaks, peak.bytes)
    stats = actor.export_stats()
    dist.barrier()  # no rank leaves while another still listens to it
    return {
        "step_s": sorted(step for _, step in times)[len(times) // 2],
        "steps_s": [step for _, step in times],
        "logp_s": [logp for logp, _ in times],
        "warm": repeats > 0,
        "peak_bytes": max(peaks),
        "memory_kind": watch.kind,
        "stats": {name: value for name, value in stats.items() if isinstance(value, float | int)},
        "versions": {name: version(name) for name in ("areal", "torch", "transformers")},
    }


def _config(job: dict[str, Any], folder: Path) -> Any:
    """AReaL's configuration of the actor."""
    from areal.api.cli_args import MicroBatchSpec, OptimizerConfig, PPOActorConfig

    trees = job["mode"] == "tree"
    return PPOActorConfig(
        experiment_name="espalier",
        trial_name="measured",
        backend=job["backend"],
        path=str(folder),
        init_from_scratch=True,
        attn_impl="sdpa" if job["cpu"] or (job["plugin"] and trees) else "flash_attention_2",
        dtype=job["dtype"],
        optimizer_dtype=job["optimizer_dtype"],
        gradient_checkpointing=job["gradient_checkpointing"],
        mb_spec=MicroBatchSpec(max_tokens_per_mb=job["cap"], n_mbs=job["n_mbs"]),
        pad_to_maximum=trees,
        enable_tree_training=trees,
        optimizer=OptimizerConfig(type="adam", lr=_LR, warmup_steps_proportion=0.0),
        ppo_n_minibatches=job["ppo_n_minibatches"],
        kl_ctl=0.0,
        use_decoupled_loss=True,
        recompute_logprob=True,
        reward_norm=None,
        adv_norm=None,
        disable_dropout=True,
    )


def _groups(path: Path) -> list[dict[str, Any]]:
    """This rank's groups as rollouts hand them over: padded on the right to their longest row."""
    import numpy as np
    import torch

    with np.load(path, allow_pickle=False) as file:
        rows = np.split(file["tokens"], file["offsets"][1:-1])
        masks = np.split(file["trained"], file["offsets"][1:-1])
        old = np.split(file["old_logp"], file["offsets"][1:-1])
        group = file["group"]
    parts = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(group)) + 1)
    random = torch.Generator().manual_seed(0)

    def padded(values: list[Any], members: Any, dtype: torch.dtype) -> torch.Tensor:
        width = max(len(rows[i]) for i in members)
        out = torch.zeros(len(members), width, dtype=dtype)
        for at, i in enumerate(members):
            out[at, : len(rows[i])] = torch.as_tensor(values[i]).to(dtype)
        return out

    return [
        {
            "input_ids": padded(rows, members, torch.int64),
            "attention_mask": padded([np.ones(len(row)) for row in rows], members, torch.bool),
            "loss_mask": padded(masks, members, torch.int32),
            "logprobs": padded(old, members, torch.float32),
            "versions": torch.zeros_like(padded(rows, members, torch.int32)),
            "rewards": torch.randn(len(members), generator=random),
        }
        for members in parts
    ]


def _timed(do: Any, device: Any) -> tuple[Any, float]:
    """What ``do`` gives, and its seconds on this rank, from when all ranks are there."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    begun = time.perf_counter()
    found = do()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return found, time.perf_counter() - begun


def _slowest(seconds: Sequence[float]) -> tuple[float, float]:
    """Of all ranks the longest, of each of the two."""
    import torch.distributed as dist

    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, tuple(seconds))
    logp_s, step_s = (max(one) for one in zip(*every, strict=True))
    return logp_s, step_s


def _out_of_memory(reason: str) -> int:
    where = {"rank": int(os.environ["RANK"]), "phase": "a step", "micro_batch": 0}
    _say({"out_of_memory": where | {"reason": reason}})
    return 1


def _say(told: dict[str, Any]) -> None:
    """A line of its own, though AReaL writes to the same stream."""
    sys.stdout.write("\n" + json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    from kernels.ranks.fsdp import tie

    tie()
    status = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # AReaL's and Gloo's threads may still run
