"""A plan written into a user's own config: the tuned settings, and what else must change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from packing.rows import Rows
from tuning.areal.config import TRAINER_NAMES, ArealConfig
from tuning.areal.schema import Version
from tuning.doctor.doctor import Report, check
from tuning.doctor.rules import Case
from tuning.export.export import changes
from tuning.plan.plan import TuningPlan


@dataclass(frozen=True)
class Tuned:
    """A user's config before and after.

    changes: paths and values asked for; only those that differ are written
    before, after: the doctor's reports
    notes:   what the plan says and the file was not given
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
) -> Tuned:
    """``config`` with the plan's settings written into it.

    rows: the plan's batch, for the doctor's rules on data
    mend: write the doctor's mends of errors too, such as a batch size that divides
    trees: whether tree training is turned on, or off

    A config that trees cannot serve (SFT, DPO, reward models) is returned as it is. Raises
    ConfigError where the file cannot take a setting.
    """
    budget = plan.memory_budget_gib
    before = check(config, rows, version=target, memory_budget_gib=budget)
    if config.trainer in ("sft", "dpo", "rw"):
        note = f"This is {TRAINER_NAMES[config.trainer]}: trees serve PPO and GRPO only."
        return Tuned(config, {}, before, before, (note,))
    notes = []
    engine = plan.engine if config.backend is None else config.backend.engine
    wanted = changes(
        replace(plan, engine=engine),
        target,
        prefix=config.prefix,
        with_ref="ref" in Case(config, target).engines,
        trees=trees,
    )
    minibatches = f"{config.prefix}ppo_n_minibatches"
    if config.trainer == "engine" and not config.has(minibatches):
        del wanted[minibatches]
    if config.backend is not None:
        theirs = (config.backend.engine, config.backend.data, config.backend.tensor)
        if theirs != (plan.engine, plan.dp_size, plan.tp_size):
            notes.append(
                f"The plan has {plan.backend}, the file {config.actor('backend')}: the "
                "backend is left as it is."
            )
    after_config = config.written(wanted)
    after = check(after_config, rows, version=target, memory_budget_gib=budget)
    if mend and after.errors:
        more = {path: value for path, value in after.mends.items() if path not in wanted}
        if more:
            wanted |= more
            after_config = config.written(wanted)
            after = check(after_config, rows, version=target, memory_budget_gib=budget)
    return Tuned(after_config, wanted, before, after, tuple(notes))
