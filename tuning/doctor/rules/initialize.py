"""What an engine refuses as it loads its model and optimizer, trees on or off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuning.doctor.rules.base import Case, Found, rule

_OPTIMIZERS = ("adam", "adam_bf16", "sgd")
_SCHEDULERS = ("constant", "linear", "cosine")


def _sees(case: Case) -> bool:
    return case.model is not None and case.model.vision


def _trains(case: Case) -> bool:
    return isinstance(case.setting("optimizer"), Mapping)


@dataclass(frozen=True)
class _Setup:
    """One refusal: of which engine, of which of its keys, when, and what mends it."""

    engine: str
    key: str
    wrong: Callable[[Case], bool]
    problem: str
    says: str
    fix: Mapping[str, Any]


SETUPS: tuple[_Setup, ...] = (
    _Setup(
        "megatron",
        "backend",
        lambda c: _sees(c) and c.backend is not None and c.backend.context > 1,
        "A model that takes images cannot be split by context parallelism.",
        "Context parallel (CP > 1) is not supported with VLM models.",
        {},
    ),
    _Setup(
        "megatron",
        "megatron.bridge_type",
        lambda c: (
            not c.trees
            and c.setting("use_lora") is True
            and c.setting("megatron.bridge_type") == "mbridge"
        ),
        "LoRA on Megatron needs megatron-bridge, and bridge_type is mbridge.",
        "MegatronEngine LoRA POC currently only supports bridge_type='megatron-bridge'.",
        {"megatron.bridge_type": "megatron-bridge"},
    ),
    _Setup(
        "fsdp",
        "dtype",
        lambda c: _sees(c) and c.setting("dtype") in ("float16", "fp16"),
        "A model that takes images does not run in float16.",
        "Vision models do not support float16 dtype. Please use bfloat16.",
        {"dtype": "bfloat16"},
    ),
    _Setup(
        "fsdp",
        "init_from_scratch",
        lambda c: _sees(c) and c.setting("init_from_scratch") is True,
        "A model that takes images is always loaded, and init_from_scratch is true.",
        "Vision models do not support initialization from scratch.",
        {"init_from_scratch": False},
    ),
    _Setup(
        "fsdp",
        "optimizer.type",
        lambda c: _trains(c) and c.setting("optimizer.type") not in _OPTIMIZERS,
        "FSDP has no such optimizer.",
        "Only adam/adam_bf16/sgd optimizer is supported in this engine.",
        {"optimizer.type": "adam"},
    ),
    _Setup(
        "fsdp",
        "fsdp.per_layer_optim_step",
        lambda c: (
            _trains(c)
            and c.setting("fsdp.per_layer_optim_step") is True
            and c.setting("optimizer.type") != "adam"
        ),
        "A step layer by layer is there for adam only.",
        "per_layer_optim_step only supports 'adam' optimizer",
        {"fsdp.per_layer_optim_step": False},
    ),
    _Setup(
        "fsdp",
        "optimizer.lr_scheduler_type",
        lambda c: _trains(c) and c.setting("optimizer.lr_scheduler_type") not in _SCHEDULERS,
        "There is no such schedule of the learning rate.",
        "Unknown lr scheduler type",
        {"optimizer.lr_scheduler_type": "constant"},
    ),
    _Setup(
        "fsdp",
        "peft_type",
        lambda c: c.setting("use_lora") is True and c.setting("peft_type") != "lora",
        "FSDP has no adapters but LoRA.",
        "NotImplementedError",
        {"peft_type": "lora"},
    ),
)


@rule("engine-settings", "fails at start", "engine/*_engine.py, initialize", always=True, each=True)
def engine_settings(case: Case) -> Iterator[Found]:
    for one in SETUPS:
        if case.engine == one.engine and one.wrong(case):
            fix = {case.path(key): value for key, value in one.fix.items()}
            steps = " and ".join(f"{path} to {str(v).lower()}" for path, v in fix.items())
            yield Found(
                one.problem,
                f"Set {steps}." if steps else f"Correct {case.path(one.key)}.",
                says=one.says,
                path=case.path(one.key),
                when="when the engine loads its model",
                fix=fix,
            )


@rule(
    "flat-attention",
    "silently wrong",
    "engine/fsdp_engine.py; seen on AReaL 1.0.4: rows 3 nats apart",
    always=True,
    each=True,
)
def flat_attention(case: Case) -> Iterator[Found]:
    """Packed rows are told apart by flash attention's variable lengths alone."""
    kind = case.setting("attn_impl")
    if case.engine == "fsdp" and not case.trees and kind in ("sdpa", "eager"):
        yield Found(
            f"attn_impl is {kind}: rows that share a micro-batch see each other; only flash "
            "attention keeps them apart.",
            "Use flash_attention_2, or give each micro-batch one row (a cap below two rows).",
            path=case.path("attn_impl"),
        )
