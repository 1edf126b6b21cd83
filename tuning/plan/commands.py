"""A plan as the command line that asks the same question."""

from __future__ import annotations

import shlex
from dataclasses import replace

from packing.sources.spec import SourceSpec, parse_rows
from tuning.plan.plan import TuningPlan

_AS_OPTIONS = ("expand", "style", "tokenizer", "limit", "versions", "roles")


def rows_argument(source: SourceSpec) -> str:
    """ROWS as the command line takes it; JSON where the source has settings without an option."""
    short = source.location
    if source.kind == "sample":
        short = f"sample:{source.location}"
    elif source.kind == "hub":
        revision = f"@{source.revision}" if source.revision else ""
        split = f":{source.split}" if source.split else ""
        short = f"hub:{source.location}{revision}{split}"
    told = {name: getattr(source, name) for name in _AS_OPTIONS}
    return short if replace(parse_rows(short), **told) == source else source.to_query()


def source_options(source: SourceSpec) -> list[str]:
    """Options that say how records become rows, where they differ from what ROWS says."""
    told = parse_rows(rows_argument(source))
    options: list[str] = []
    for name in ("expand", "style", "tokenizer", "limit"):
        if (value := getattr(source, name)) != getattr(told, name):
            options += [f"--{name}", str(value)]
    for version in source.versions if source.versions != told.versions else ():
        options += ["--version", version]
    for role, path in source.roles if source.roles != told.roles else ():
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
    "prove": {"max_tokens_per_mb": "--cap", "packer": "--packer", "device": "--device"},
    "kernels": {
        "max_tokens_per_mb": "--cap",
        "packer": "--packer",
        "model": "--model",
        "dtype": "--dtype",
        "device": "--device",
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
PROGRAM = "espalier" if __package__.startswith("espalier.") else "python -m tuning"
"""How this command line is called: by the wheel's command, or in the checkout."""
_BATCH = {"prompts_per_step": "--prompts", "samples_per_prompt": "--samples"}


def command_line(name: str, plan: TuningPlan) -> str:
    """``python -m tuning NAME ROWS …`` for a plan; only what differs from the defaults."""
    default = TuningPlan()
    words = [*PROGRAM.split(), name, rows_argument(plan.source)]
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
