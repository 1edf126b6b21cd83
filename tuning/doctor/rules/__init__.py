"""AReaL's rules, grouped by theme; each module registers its own."""

from tuning.doctor.rules import (  # noqa: F401  # each registers its rules
    algorithm,
    cap,
    data,
    engine,
    environment,
    initialize,
    joined,
    memory,
    model,
    placement,
    schema,
    start,
)
from tuning.doctor.rules.base import RULES, Case, Finding, Rule, Severity

__all__ = ["RULES", "Case", "Finding", "Rule", "Severity"]
