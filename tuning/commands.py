"""A plan as the command line that asks the same question."""

from __future__ import annotations

import shlex

from packing.sources.spec import SourceSpec
from tuning.plan import TuningPlan


def rows_argument(source: SourceSpec) -> str:
    """ROWS as the command line takes it."""
    if source.kind == "sample":
        return f"sample:{source.location}"
    if source.kind == "hub":
        revision = f"@{source.revision}" if source.revision else ""
        split = f":{source.split}" if source.split else ""
        return f"hub:{source.location}{revision}{split}"
    return source.location


def source_options(source: SourceSpec) -> list[str]:
    """Options that say how records become rows, where they differ from the defaults."""
    options: list[str] = []
    if source.expand != "conversation":
        options += ["--expand", source.expand]
    if source.style != "individual":
        options += ["--style", source.style]
    if source.tokenizer:
        options += ["--tokenizer", source.tokenizer]
    if source.limit is not None:
        options += ["--limit", str(source.limit)]
    for version in source.versions:
        options += ["--version", version]
    for role, path in source.roles:
        options += ["--role", f"{role}={path}"]
    return options


_OPTIONS = {
    "pack": {"max_tokens_per_mb": "--cap", "packer": "--packer"},
    "chain": {
        "max_tokens_per_mb": "--cap",
        "dp_size": "--dp",
        "ppo_n_minibatches": "--ppo-n-minibatches",
        "dispatch": "--mode",
    },
    "rows": {},
    "sweep": {
        "model": "--model",
        "device": "--device",
        "dp_size": "--dp",
        "ppo_n_minibatches": "--ppo-n-minibatches",
        "dispatch": "--mode",
        "packer": "--packer",
        "dtype": "--dtype",
        "gradient_checkpointing": "--gradient-checkpointing",
        "memory_budget_gib": "--memory",
        "caps": "--caps",
    },
    "export": {
        "max_tokens_per_mb": "--cap",
        "engine": "--engine",
        "model": "--model",
        "dp_size": "--dp",
        "tp_size": "--tp",
        "ppo_n_minibatches": "--ppo-n-minibatches",
    },
}
_BATCH = {"prompts_per_step": "--prompts", "samples_per_prompt": "--samples"}


def command_line(name: str, plan: TuningPlan) -> str:
    """``python -m tuning NAME ROWS …`` for a plan; only what differs from the defaults."""
    default = TuningPlan()
    words = ["python", "-m", "tuning", name, rows_argument(plan.source)]
    words += source_options(plan.source)
    options = _OPTIONS[name] | (_BATCH if name != "rows" else {})
    for field, option in options.items():
        value = getattr(plan, field)
        if value == getattr(default, field) and option != "--cap":
            continue
        if isinstance(value, bool):
            words.append(option)
        else:
            words += [option, ",".join(map(str, value)) if field == "caps" else str(value)]
    return shlex.join(words) + (" --json" if name != "export" else "")
