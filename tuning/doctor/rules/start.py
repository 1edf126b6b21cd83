"""What AReaL's PPO trainer checks as it starts, before a worker is made, and what it needs then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tuning.areal.config import UNKNOWN
from tuning.areal.schema import REQUIRED, Version
from tuning.doctor.rules.base import Case, Found, Refusal, rule
from tuning.doctor.rules.placement import colocated

_TWO_CONTROLLERS: tuple[Version, ...] = ("1.0.4", "2.0.0", "main")


def _hands_over(case: Case) -> bool:
    """Awex moves weights by itself, without the offload machinery."""
    mode = case.get("actor.weight_update_mode")
    return case.version == "main" and mode == "awex" and case.get("actor._version") == "v1"


def _needs_offload(case: Case) -> bool:
    by_actor = (colocated(case) or case.get("actor.offload") is True) and not _hands_over(case)
    roles = ("critic", "ref", "teacher")
    return by_actor or any(case.get(f"{role}.offload") is True for role in roles)


def _online(case: Case) -> bool:
    return bool(case.get("rollout.agent.mode") == "online")


def _kind(case: Case) -> str | None:
    return None if case.server is None else case.server.kind


STARTS: tuple[Refusal, ...] = (
    Refusal(
        "enable_offload",
        lambda c: _needs_offload(c) and c.get("enable_offload") is False,
        "An engine is offloaded, or shares its GPUs with the rollout, and enable_offload is false.",
        "enable_offload must be True when colocation scheduling or train-engine offload is "
        "enabled. Please set enable_offload=True.",
        {"enable_offload": True},
    ),
    Refusal(
        "actor.weight_update_mode",
        lambda c: (
            colocated(c)
            and c.get("actor.weight_update_mode")
            not in (("disk", "awex") if c.version == "main" else ("disk",))
        ),
        "Actor and rollout share GPUs; their weights go over the disk then.",
        "weight_update_mode must be 'disk'",
        {"actor.weight_update_mode": "disk"},
    ),
    Refusal(
        "actor.weight_update_mode",
        lambda c: c.version == "main" and _hands_over(c) and c.engine not in ("megatron", None),
        "weight_update_mode awex needs a Megatron actor.",
        "weight_update_mode='awex' requires Megatron actor training backend",
        {"actor.weight_update_mode": "disk"},
    ),
    Refusal(
        "actor.weight_update_mode",
        lambda c: c.version == "main" and _hands_over(c) and _kind(c) not in ("sglang", None),
        "weight_update_mode awex needs an SGLang rollout.",
        "weight_update_mode='awex' requires SGLang rollout backend",
        {"actor.weight_update_mode": "disk"},
    ),
    Refusal(
        "rollout.return_routed_experts",
        lambda c: _kind(c) == "vllm" and c.get("rollout.return_routed_experts") is True,
        "vLLM does not return routed experts.",
        "return_routed_experts is only supported with SGLang backend.",
        {"rollout.return_routed_experts": False},
    ),
    Refusal(
        "actor.use_lora",
        lambda c: (
            c.engine == "megatron" and c.get("actor.use_lora") is True and _kind(c) == "sglang"
        ),
        "LoRA on a Megatron actor goes with a vLLM rollout only.",
        "Megatron actor with LoRA is not supported with SGLang rollout in RL trainer.",
        {"actor.use_lora": False},
    ),
    Refusal(
        "actor._version",
        lambda c: (
            c.version in _TWO_CONTROLLERS
            and UNKNOWN is not c.get("actor._version") != c.get("rollout._version")
        ),
        "actor._version and rollout._version differ.",
        "actor._version and rollout._version must match.",
        {"actor._version": "v1", "rollout._version": "v1"},
    ),
    Refusal(
        "teacher.engine_type",
        lambda c: (
            c.config.field("teacher.train", c.version) is not None
            and isinstance(c.get("teacher"), Mapping)
            and c.get("teacher.engine_type") not in (UNKNOWN, "rollout")
            and c.get("teacher.train") is None
        ),
        "The teacher is to train (engine_type is not rollout), and teacher.train is not there.",
        "AssertionError (teacher.train is None)",
        {"teacher.engine_type": "rollout"},
    ),
    Refusal(
        "valid_dataset",
        lambda c: _online(c) and isinstance(c.get("valid_dataset"), Mapping),
        "An online agent takes no validation set.",
        "valid_dataset must not be set when using online RL mode (agent.mode='online').",
    ),
    Refusal(
        "total_train_steps",
        lambda c: _online(c) and c.get("total_train_steps") is None,
        "An online agent needs total_train_steps: no data set says how many there are.",
        "total_train_steps must be set for online mode.",
    ),
    Refusal(
        "total_train_steps",
        lambda c: (
            _online(c)
            and (c.whole("total_train_steps") or 1) < (c.whole("total_train_epochs") or 1)
            and c.get("total_train_steps") is not None
        ),
        "total_train_steps is below total_train_epochs.",
        "total_train_steps must be >= total_train_epochs so that steps_per_epoch >= 1.",
        {"total_train_epochs": 1},
    ),
)


@rule("start-checks", "fails at start", "trainer/rl_trainer.py, _validate_cfg", "file")
def start_checks(case: Case) -> Iterator[Found]:
    if case.config.trainer != "ppo" or case.config.fragment:
        return
    for role in ("actor", "rollout", "ref", "critic", "teacher"):
        value = case.get(role)
        if not isinstance(value, Mapping) and value is not None and value is not UNKNOWN:
            yield Found(
                f"{role} comes to {value!r}, which is no section.",
                "Write its settings below it, indented.",
                says=f"AttributeError: '{type(value).__name__}' object has no attribute 'backend'",
                path=role,
            )
    for one in STARTS:
        if one.wrong(case):
            known = {k: v for k, v in one.fix.items() if case.config.field(k, case.version)}
            when = "when the trainer starts, before workers are made"
            yield replace(one, fix=known).found(when=when)


@rule("weight-update-mode", "fails at start", "trainer/rl_trainer.py, weight_update_meta", "file")
def weight_update_mode(case: Case) -> Iterator[Found]:
    """Its choices stand in AReaL's help only; the trainer knows no other."""
    known = case.config.field("actor.weight_update_mode", case.version)
    mode = case.get("actor.weight_update_mode")
    if case.config.trainer != "ppo" or known is None or not isinstance(mode, str):
        return
    if mode != REQUIRED and mode not in known.documented:
        yield Found(
            f"actor.weight_update_mode is {mode!r}; AReaL has "
            f"{', '.join(str(one) for one in known.documented)}.",
            f"Set it to {known.default}.",
            says=f"Invalid weight update mode: {mode}",
            path="actor.weight_update_mode",
            when="when the trainer starts, after workers are made",
            fix={"actor.weight_update_mode": known.default},
        )
