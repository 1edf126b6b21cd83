"""The doctor: what AReaL will do with a configuration, and the mend where it will not train."""

from tuning.doctor.check import Answer, Areal, ask, validate
from tuning.doctor.doctor import ConfigError, Report, describe
from tuning.doctor.rules.base import RULES, Case, Finding
from tuning.doctor.rules.cap import longest_possible
from tuning.doctor.rules.data import lost_to_flat

__all__ = [
    "RULES",
    "Answer",
    "Areal",
    "Case",
    "ConfigError",
    "Finding",
    "Report",
    "ask",
    "describe",
    "longest_possible",
    "lost_to_flat",
    "validate",
]
