"""AReaL's own PPO actor on a tiny model, as a process that answers: one step, and what came of it.

Notable:
- flat, the reference, has one row a micro-batch: with ``attn_impl: sdpa`` AReaL lets rows of one
  micro-batch see each other
- the plugin is the hook's: this file never imports it
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import torch
from areal.api.cli_args import MicroBatchSpec, OptimizerConfig, PPOActorConfig, SchedulingSpec
from areal.api.io_struct import FinetuneSpec
from areal.engine.fsdp_engine import FSDPPPOActor
from areal.infra.rpc.rtensor import RTensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.areal.worker import ROOT, serve

VOCABULARY = 8192  # the bundled tokenizer's
TOKENIZER = ROOT / "packing" / "sources" / "assets" / "tokenizer"
SPEC = FinetuneSpec(total_train_epochs=1, dataset_size=64, train_batch_size=8)
Batch = dict[str, Any]
_alive: dict[str | None, FSDPPPOActor] = {}


def make_model(folder: str) -> None:
    """A Qwen3 of random fp32 weights, every one of which matters: none is 0 or 1."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0).add_(torch.randn_like(parameter) * 0.02)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(TOKENIZER).save_pretrained(folder)


def batch(rows: list[list[int]], prompts: list[int], left: bool = False) -> Batch:
    """A padded batch of rollouts; the first ``prompts[i]`` tokens of row i are not trained."""
    rng = torch.Generator().manual_seed(len(rows))
    shape = (len(rows), max(map(len, rows)))
    out: Batch = {
        "input_ids": torch.zeros(shape, dtype=torch.int64),
        "attention_mask": torch.zeros(shape, dtype=torch.bool),
        "loss_mask": torch.zeros(shape, dtype=torch.int32),
        "logprobs": torch.zeros(shape),
        "versions": torch.zeros(shape, dtype=torch.int32),
    }
    for i, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        at = slice(shape[1] - len(row), None) if left else slice(0, len(row))
        trained = torch.arange(len(row)) >= prompt
        out["input_ids"][i, at] = torch.tensor(row)
        out["attention_mask"][i, at] = True
        out["loss_mask"][i, at] = trained.int()
        out["logprobs"][i, at] = (torch.randn(len(row), generator=rng) - 8) * trained
    return out | {"rewards": torch.randn(len(rows), generator=rng)}


def config(path: str, tree: bool, cap: int | None, **fields: Any) -> PPOActorConfig:
    n_mbs = fields.pop("n_mbs", 1)
    return PPOActorConfig(
        **{
            "experiment_name": "espalier",
            "trial_name": "parity",
            "backend": "fsdp:d1p1t1",
            "path": path,
            "attn_impl": "sdpa",
            "dtype": "float32",
            "optimizer_dtype": "float32",
            "mb_spec": MicroBatchSpec(max_tokens_per_mb=cap, n_mbs=n_mbs),
            # plain descent: a weight moves by its gradient, where Adam's first step is its sign
            "optimizer": OptimizerConfig(
                type="sgd",
                lr=1e-2,
                weight_decay=0.0,
                gradient_clipping=1e9,
                warmup_steps_proportion=0.0,
            ),
            "pad_to_maximum": tree,
            "enable_tree_training": tree,
            "kl_ctl": 0.0,
            "ppo_n_minibatches": 1,
            "use_decoupled_loss": True,
            "recompute_logprob": True,
            "reward_norm": None,
            "adv_norm": None,
            "disable_dropout": True,
        }
        | fields
    )


def engine(settings: PPOActorConfig) -> FSDPPPOActor:
    """An engine in this process, alone in its group."""
    if "RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
        os.environ.update(alone, MASTER_PORT=port)
    torch.manual_seed(7)  # LoRA's random half
    actor = FSDPPPOActor(settings)
    actor.create_process_group()
    actor.initialize(None, SPEC)
    return actor


def full(tensor: Any) -> torch.Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def step(actor: Any, groups: list[Batch]) -> Batch:
    """``compute_logp``, advantages, ``ppo_update``; log-probabilities, gradients, weights."""
    seen: Batch = {}
    groups = [{k: v.clone() for k, v in group.items()} for group in groups]
    if isinstance(actor, FSDPPPOActor):
        real = actor.optimizer_step

        def optimizer_step() -> Any:
            named = actor.model.named_parameters()
            seen["gradients"] = {n: full(p.grad) for n, p in named if p.grad is not None}
            return real()

        actor.optimizer_step = optimizer_step
    logps = RTensor.localize(actor.compute_logp(groups))
    for group, logp in zip(groups, logps, strict=True):
        group["prox_logp"] = logp
    actor.ppo_update(RTensor.localize(actor.compute_advantages(groups)))
    seen |= {"logps": [x.clone() for x in logps], "stats": actor.export_stats()}
    if isinstance(actor, FSDPPPOActor):
        actor.optimizer_step = real
        seen["weights"] = {n: full(p) for n, p in actor.model.named_parameters()}
    else:  # the weights are elsewhere: what they give
        seen["logps"] += RTensor.localize(actor.compute_logp(groups))
    return seen


def run(
    path: str,
    groups: list[dict[str, Any]],
    out: str,
    tree: bool,
    cap: int | None = None,
    in_workers: bool = False,
    keep: str | None = None,
    environment: dict[str, str] | None = None,
    **fields: Any,
) -> dict[str, float]:
    """One step of an engine; tensors go to the file ``out``. Returns AReaL's own statistics.

    in_workers: through AReaL's controller and worker processes, else in this process
    keep:       a name under which the engine lives on, for the next step
    """
    os.environ.update(environment or {})
    if not Path(path, "config.json").exists():
        make_model(path)
    batches = [batch(**group) for group in groups]
    if not tree:
        rows = [row for group in groups for row in group["rows"]]
        cap, fields["n_mbs"] = cap or max(map(len, rows)), fields.get("n_mbs", len(rows))
    settings = config(path, tree, cap, **fields)
    if in_workers:
        seen = _in_workers(settings, batches, Path(out).parent)
    else:
        actor = _alive.get(keep) or engine(settings)
        if keep:
            _alive[keep] = actor
        seen = step(actor, batches)
    torch.save(seen, out)
    return seen["stats"]


def _in_workers(settings: PPOActorConfig, batches: list[Batch], folder: Path) -> Batch:
    from areal.infra.scheduler.local import LocalScheduler

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    settings.scheduling_spec = (
        SchedulingSpec(
            task_type="worker",
            port_count=2,
            gpu=0,
            cpu=1,
            mem=1024,
            cmd="python3 -m areal.infra.rpc.rpc_server",
            env_vars={
                name: os.environ[name]
                for name in ("TORCHDYNAMO_DISABLE", "OMP_NUM_THREADS", "ESPALIER_AREAL")
            },
        ),
    )
    scheduler = LocalScheduler(
        gpu_devices=[0],
        log_dir=str(folder / "log"),
        startup_timeout=240,
        experiment_name="espalier",
        trial_name="parity",
        fileroot=str(folder),
        nfs_record_root=str(folder),
    )
    actor = FSDPPPOActor.as_controller(settings, scheduler)
    try:
        actor.initialize(role="actor", addr=None, ft_spec=SPEC)
        return step(actor, batches)
    finally:
        actor.destroy()
        scheduler.delete_workers(None)


if __name__ == "__main__":
    serve(run)
