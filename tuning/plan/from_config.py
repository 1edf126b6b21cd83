"""From a user's config to a plan: what it says, and what a plan does not cover."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tuning.areal.config import ArealConfig
from tuning.areal.models import find_model
from tuning.areal.names import PLUGIN_ATTENTION, TRAINER_NAMES, TREES_SERVE, UNKNOWN
from tuning.plan.plan import DTYPES, TuningPlan, options


def fill_plan(config: ArealConfig, start: TuningPlan) -> tuple[TuningPlan, list[str]]:
    """``start`` with batch, samples, ranks, minibatches, cap, lengths and model of ``config``.

    The second value is one sentence for each part of the config that a plan does not cover.
    """
    changes: dict[str, Any] = {}
    notes = list(config.notes)
    if config.trainer not in TREES_SERVE:
        notes.append(
            f"This is {TRAINER_NAMES[config.trainer]}: AReaL's tree training serves PPO and GRPO "
            "only, so the plan shows what packing would look like, not what it can run."
        )
    _number(config, changes, "prompts_per_step")
    if config.multi_turn:
        changes["samples_per_prompt"] = 0
        samples = config.get("gconfig.n_samples")
        notes.append(
            f"n_samples is {samples}, and a sample of an agent becomes one row or more; all rows "
            "of a prompt are kept."
        )
    else:
        _number(config, changes, "samples_per_prompt")
    _number(config, changes, "max_new_tokens")
    if config.actor("prox_logp_method") == "reuse_train_logp":
        changes["ppo_n_minibatches"] = 1  # AReaL forces it
    else:
        _number(config, changes, "ppo_n_minibatches")
    _number(config, changes, "max_tokens_per_mb")
    _parallel(config, changes, notes)
    _engine(config, changes)
    if config.actor("mb_spec.max_tokens_per_mb") is None:
        notes.append("max_tokens_per_mb is not set; the plan keeps its own.")
    _model(config, changes, notes)
    if config.get("dynamic_bs") is True:
        notes.append("dynamic_bs: a step may have fewer prompts than batch_size.")
    return replace(start, **changes), notes


def _number(config: ArealConfig, changes: dict[str, Any], name: str) -> None:
    """Take a positive whole number; where the file has none, AReaL's default counts."""
    path = options()[name].areal
    section = path.partition(".")[0]
    if section not in ("gconfig", "train_dataset"):
        path = config.prefix + path
    elif not config.has(section):
        return
    value = config.get(path)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        changes[name] = value


def _parallel(config: ArealConfig, changes: dict[str, Any], notes: list[str]) -> None:
    backend = config.backend
    if backend is None:
        notes.append("No training backend could be read; engine and ranks are the plan's own.")
        return
    changes |= {
        "engine": backend.engine,
        "dp_size": backend.data,
        "tp_size": backend.tensor,
        "dispatch": "spmd" if config.env().get("AREAL_SPMD_MODE") == "1" else "controller",
    }
    for name, size in (
        ("pipeline", backend.pipeline),
        ("context", backend.context),
        ("expert", backend.expert),
    ):
        if size > 1:
            notes.append(f"{name.capitalize()} parallelism of {size} is not part of a plan.")


def _engine(config: ArealConfig, changes: dict[str, Any]) -> None:
    for name in ("dtype", "optimizer_dtype"):
        if (dtype := config.actor(options()[name].areal)) in DTYPES:
            changes[name] = dtype
    if config.actor("attn_impl") == PLUGIN_ATTENTION:
        changes["step"] = "areal-espalier"
    if isinstance(config.actor("gradient_checkpointing"), bool):
        changes["gradient_checkpointing"] = config.actor("gradient_checkpointing")


def _model(config: ArealConfig, changes: dict[str, Any], notes: list[str]) -> None:
    path = config.actor("path")
    if path is UNKNOWN or not isinstance(path, str) or not path:
        notes.append("The model path is not known; the plan keeps its own model.")
        return
    changes["model"] = path
    model = find_model(path, config.folder)
    if model is not None and model.vision:
        notes.append("The model takes images; Espalier packs and times its text only.")
