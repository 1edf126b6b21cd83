"""AReaL's configs: their schema by version, reading and writing a user's file, asking AReaL."""

from tuning.areal.backend import Backend, BackendError, Engine, Server
from tuning.areal.compose import asked
from tuning.areal.config import AGENT_KEYS, ArealConfig
from tuning.areal.models import Model, find_model
from tuning.areal.names import PLUGIN_ATTENTION, TRAINER_NAMES, TREES_SERVE, UNKNOWN
from tuning.areal.parser import Refusal, raw_at, sections
from tuning.areal.schema import (
    EXPORT_VERSIONS,
    REQUIRED,
    VERSION_NAMES,
    VERSIONS,
    Field,
    Version,
    field_at,
    least_version,
    table,
    versions_with,
)
from tuning.areal.yaml_nodes import REMOVED, ConfigError

__all__ = [
    "AGENT_KEYS",
    "EXPORT_VERSIONS",
    "PLUGIN_ATTENTION",
    "REMOVED",
    "REQUIRED",
    "TRAINER_NAMES",
    "TREES_SERVE",
    "UNKNOWN",
    "VERSIONS",
    "VERSION_NAMES",
    "ArealConfig",
    "Backend",
    "BackendError",
    "ConfigError",
    "Engine",
    "Field",
    "Model",
    "Refusal",
    "Server",
    "Version",
    "asked",
    "field_at",
    "find_model",
    "least_version",
    "raw_at",
    "sections",
    "table",
    "versions_with",
]
