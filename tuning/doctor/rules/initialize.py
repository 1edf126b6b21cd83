"""What an engine refuses as it loads its model and optimizer, trees on or off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuning.doctor.rules.base import Case, Found, Refusal, rule

_SCHEDULERS = ("constant", "linear", "cosine")


def _sees(case: Case) -> bool:
    return case.model is not None and case.model.vision


def _trains(case: Case) -> bool:
    return isinstance(case.setting("optimizer"), Mapping)


_SCHEDULE = Refusal(
    "optimizer.lr_scheduler_type",
    lambda c: _trains(c) and c.setting("optimizer.lr_scheduler_type") not in _SCHEDULERS,
    "There is no such schedule of the learning rate.",
    "Unsupported lr scheduler type",
    {"optimizer.lr_scheduler_type": "constant"},
)
SETUPS: dict[str, tuple[Refusal, ...]] = {
    "megatron": (
        Refusal(
            "backend",
            lambda c: _sees(c) and c.backend is not None and c.backend.context > 1,
            "A model that takes images cannot be split by context parallelism.",
            "Context parallel (CP > 1) is not supported with VLM models.",
        ),
        Refusal(
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
        Refusal(
            "optimizer.type",
            lambda c: (
                _trains(c) and c.setting("optimizer.type") not in ("adam", "adam_bf16", "sgd")
            ),
            "Megatron has no such optimizer.",
            "Only AdamW/sgd optimizer is supported in this engine.",
            {"optimizer.type": "adam"},
        ),
    ),
    "archon": (
        Refusal(
            "optimizer.type",
            lambda c: _trains(c) and c.setting("optimizer.type") not in ("adam", "sgd"),
            "Archon has no such optimizer.",
            "Unsupported optimizer type",
            {"optimizer.type": "adam"},
        ),
        _SCHEDULE,
    ),
    "fsdp": (
        Refusal(
            "dtype",
            lambda c: _sees(c) and c.setting("dtype") in ("float16", "fp16"),
            "A model that takes images does not run in float16.",
            "Vision models do not support float16 dtype. Please use bfloat16.",
            {"dtype": "bfloat16"},
        ),
        Refusal(
            "init_from_scratch",
            lambda c: _sees(c) and c.setting("init_from_scratch") is True,
            "A model that takes images is always loaded, and init_from_scratch is true.",
            "Vision models do not support initialization from scratch.",
            {"init_from_scratch": False},
        ),
        Refusal(
            "optimizer.type",
            lambda c: (
                _trains(c) and c.setting("optimizer.type") not in ("adam", "adam_bf16", "sgd")
            ),
            "FSDP has no such optimizer.",
            "Only adam/adam_bf16/sgd optimizer is supported in this engine.",
            {"optimizer.type": "adam"},
        ),
        Refusal(
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
        Refusal(
            "optimizer.lr_scheduler_type",
            lambda c: _trains(c) and c.setting("optimizer.lr_scheduler_type") not in _SCHEDULERS,
            "There is no such schedule of the learning rate.",
            "Unknown lr scheduler type",
            {"optimizer.lr_scheduler_type": "constant"},
        ),
        Refusal(
            "peft_type",
            lambda c: c.setting("use_lora") is True and c.setting("peft_type") != "lora",
            "FSDP has no adapters but LoRA.",
            "NotImplementedError",
            {"peft_type": "lora"},
        ),
    ),
}


@rule("engine-settings", "fails at start", "engine/*_engine.py, initialize", "engine")
def engine_settings(case: Case) -> Iterator[Found]:
    for one in SETUPS.get(case.engine or "", ()):
        if one.wrong(case):
            yield one.found(case.path, when="when the engine loads its model")


@rule(
    "flat-attention",
    "silently wrong",
    "engine/fsdp_engine.py; seen on AReaL 1.0.4: rows 3 nats apart",
    "engine",
)
def flat_attention(case: Case) -> Iterator[Found]:
    """Packed rows are told apart by flash attention's variable lengths alone."""
    kind = case.setting("attn_impl")
    if case.engine == "fsdp" and not case.trees and kind in ("sdpa", "eager"):
        yield case.found(
            "attn_impl",
            f"attn_impl is {kind}: rows that share a micro-batch see each other; only flash "
            "attention keeps them apart.",
            "Use flash_attention_2, or give each micro-batch one row (a cap below two rows).",
        )
