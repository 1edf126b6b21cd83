"""Names that a config and the plan made of it share: trainers, and the value that is not known."""

from __future__ import annotations

from typing import Any, Literal

Trainer = Literal["ppo", "sft", "dpo", "rw", "engine", "rollout", "other"]
TRAINER_NAMES: dict[Trainer, str] = {
    "ppo": "a PPO/GRPO config",
    "sft": "an SFT config",
    "dpo": "a DPO config",
    "rw": "a reward-model config",
    "engine": "an engine config on its own",
    "rollout": "a rollout config, which trains nothing",
    "other": "no config of AReaL's",
}
TREES_SERVE: tuple[Trainer, ...] = ("ppo", "engine")
"""The kinds of config in which tree training can be turned on."""


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False

    def __deepcopy__(self, memo: object) -> _Unknown:
        return self


UNKNOWN: Any = _Unknown()
"""A value that cannot be known from the file: a resolver, a loop, or a wrong type."""

PLUGIN_ATTENTION = "espalier_tree"
"""The ``attn_impl`` that AReaL's FSDP engine has where Espalier's plugin is on, and only there."""
