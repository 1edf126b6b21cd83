"""Names that a config and the plan made of it share: trainers, and the value that is not known."""

from __future__ import annotations

from typing import Any, Literal

Trainer = Literal["ppo", "sft", "dpo", "rw", "engine"]
TRAINER_NAMES = {
    "ppo": "a PPO/GRPO config",
    "sft": "an SFT config",
    "dpo": "a DPO config",
    "rw": "a reward-model config",
    "engine": "an engine config on its own",
}


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Any = _Unknown()
"""A value that cannot be known from the file: a resolver, a loop, or a wrong type."""
