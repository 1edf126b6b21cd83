"""Whether what AReaL will run fits where the plan's own step did."""

from __future__ import annotations

from tuning.plan.gpus import gpu_named
from tuning.plan.numbers import gib
from tuning.plan.plan import STEP_NAMES, TuningPlan


def fits_only_alone(plan: TuningPlan) -> str:
    """A sentence where a plan of Espalier's own step does not fit as AReaL will run it."""
    if plan.step_of != "espalier" or plan.device == "cpu":
        return ""
    gpu = gpu_named(plan.device)
    budget_gib = plan.memory_budget_gib or (gpu.memory_gib if gpu else 0.0)
    if not budget_gib:
        return ""
    from kernels.memory import estimate_memory

    whose = plan.exported_step
    needed = estimate_memory(
        plan.model,
        plan.max_tokens_per_mb,
        dtype=plan.dtype,
        optimizer_dtype=plan.optimizer_dtype,
        gradient_checkpointing=plan.gradient_checkpointing,
        dp_size=plan.dp_size,
        target=whose,
        engine=plan.engine,
    )
    if needed.peak_bytes <= budget_gib * 2**30:
        return ""
    return (
        f"AReaL runs an export, and {STEP_NAMES[whose]} needs {gib(needed.peak_bytes)} of "
        f"{budget_gib:g} GiB at {plan.max_tokens_per_mb:,}, most of all for {needed.largest_part}: "
        "choose step areal or areal-espalier, and a max_tokens_per_mb that fits there."
    )
