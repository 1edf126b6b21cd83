"""A plan written into a user's own config: the tuned settings, and what else must change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from packing.rows import Rows
from tuning.areal.config import REMOVED, TRAINER_NAMES, TREES_SERVE, ArealConfig
from tuning.areal.schema import Version
from tuning.doctor.doctor import Report, check
from tuning.doctor.rules import Case
from tuning.export.export import changes
from tuning.plan.plan import TuningPlan

_NO_GPU = (
    "This config asks for no GPU: AReaL's trees need flash attention there, so tree training is "
    "left off and attn_impl as it is."
)
_LEARNS = ("ppo_n_minibatches", "batch_size", "max_tokens", "engine_max_tokens")
"""Settings whose change is another training run, not only another speed."""


@dataclass(frozen=True)
class Tuned:
    """A user's config before and after.

    changes: paths and values asked for; only those that differ are written
    before, after: the doctor's reports
    notes:   what changes beside the plan, and what the plan says and the file was not given
    """

    config: ArealConfig
    changes: Mapping[str, Any]
    before: Report
    after: Report
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.config.yaml.text


def tune_config(
    config: ArealConfig,
    plan: TuningPlan,
    target: Version = "1.0.4",
    *,
    rows: Rows | None = None,
    mend: bool = True,
    trees: bool = True,
    minibatches: bool = False,
) -> Tuned:
    """``config`` with the plan's settings written into it.

    rows:        the plan's batch, for the doctor's rules on data
    mend:        write the doctor's mends of errors too, such as a batch size that divides
    trees:       whether tree training is turned on, or off
    minibatches: write the plan's ``ppo_n_minibatches`` too; else the file keeps its own, for
                 another number of optimizer steps is another algorithm

    A config that trees cannot serve (SFT, DPO, reward models, a rollout, no config of AReaL's) is
    returned as it is. Raises ConfigError where the file cannot take a setting.
    """
    asked = partial(check, rows=rows, version=target, memory_budget_gib=plan.memory_budget_gib)
    before = asked(config)
    if config.trainer not in TREES_SERVE:
        note = f"This is {TRAINER_NAMES[config.trainer]}: trees serve PPO and GRPO only."
        return Tuned(config, {}, before, before, (note,))
    notes = []
    if trees and _without_gpu(config):
        trees = False
        notes.append(_NO_GPU)
    wanted = _wanted(config, plan, target, trees)
    if not minibatches:
        notes += _kept_minibatches(config, plan, wanted)
    if config.backend is not None:
        theirs = (config.backend.engine, config.backend.data, config.backend.tensor)
        if theirs != (plan.engine, plan.dp_size, plan.tp_size):
            notes.append(
                f"The plan has {plan.backend}, the file {config.actor('backend')}: the "
                "backend is left as it is."
            )
    after_config = config.written(wanted)
    after = asked(after_config)
    if mend and after.errors:
        fixes = {path: value for one in after.errors for path, value in one.fix.items()}
        more = {path: value for path, value in fixes.items() if path not in wanted}
        notes += _mended(config, after, more)
        wanted |= more
        after_config = config.written(wanted)
        after = asked(after_config)
    scatter = [one.problem for one in after.findings if one.rule == "scatter-cost"]
    return Tuned(after_config, wanted, before, after, (*notes, *scatter))


def _wanted(config: ArealConfig, plan: TuningPlan, target: Version, trees: bool) -> dict[str, Any]:
    engine = plan.engine if config.backend is None else config.backend.engine
    wanted = changes(
        replace(plan, engine=engine),
        target,
        prefix=config.prefix,
        with_ref="ref" in Case(config, target).engines,
        trees=trees,
    )
    if not trees and not config.has(f"{config.prefix}enable_tree_training"):
        # Off is what a file without the key says already.
        wanted.pop(f"{config.prefix}enable_tree_training", None)
    return wanted


def _without_gpu(config: ArealConfig) -> bool:
    """Whether the file says that its actor has no GPU."""
    specs = config.actor("scheduling_spec")
    asked = [spec.get("gpu") for spec in specs] if isinstance(specs, list) else []
    none = config.has(f"{config.prefix}scheduling_spec") and bool(asked) and not any(asked)
    cluster = config.get("cluster.n_gpus_per_node") == 0 if config.prefix else False
    return cluster or (none and config.actor("attn_impl") in ("sdpa", "eager"))


def _kept_minibatches(config: ArealConfig, plan: TuningPlan, wanted: dict[str, Any]) -> list[str]:
    """Take ``ppo_n_minibatches`` out of what is written; say so where the plan has another."""
    path = f"{config.prefix}ppo_n_minibatches"
    wanted.pop(path, None)
    theirs = config.get(path)
    if theirs == plan.ppo_n_minibatches or not isinstance(theirs, int):
        return []
    default = "" if config.has(path) else ", AReaL's default"
    return [
        f"{path} stays {theirs}{default}: the plan's {plan.ppo_n_minibatches} would make "
        f"{plan.ppo_n_minibatches} optimizer steps of {theirs}."
    ]


def _mended(config: ArealConfig, after: Report, more: Mapping[str, Any]) -> list[str]:
    """A sentence for each mend that changes what is learned."""
    said = []
    for one in after.errors:
        for path, value in one.fix.items():
            learns = path.rpartition(".")[2] in _LEARNS or value == REMOVED
            if path in more and learns:
                said.append(
                    f"{path} is taken out: {one.problem}"
                    if value == REMOVED
                    else f"{path} goes from {config.get(path)} to {value}, which changes the run: "
                    f"{one.problem}"
                )
    return said
