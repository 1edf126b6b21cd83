"""The doctor: what AReaL will do with a configuration, and the mend where it will not train."""

from tuning.doctor.doctor import ConfigError, Report
from tuning.doctor.rules.base import RULES, Case, Finding

__all__ = [
    "RULES",
    "Case",
    "ConfigError",
    "Finding",
    "Report",
]
