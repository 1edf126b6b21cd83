"""AReaL's configs: their schema by version, reading and writing a user's file, asking AReaL."""

from tuning.areal.backend import Backend, BackendError, Engine
from tuning.areal.config import ArealConfig
from tuning.areal.models import Model, find_model
from tuning.areal.names import TRAINER_NAMES, UNKNOWN
from tuning.areal.schema import (
    EXPORT_VERSIONS,
    VERSION_NAMES,
    Field,
    Version,
    WrongType,
    convert,
    is_open,
    table,
)
from tuning.areal.yaml_nodes import ConfigError

__all__ = [
    "EXPORT_VERSIONS",
    "TRAINER_NAMES",
    "UNKNOWN",
    "VERSION_NAMES",
    "ArealConfig",
    "Backend",
    "BackendError",
    "ConfigError",
    "Engine",
    "Field",
    "Model",
    "Version",
    "WrongType",
    "convert",
    "find_model",
    "is_open",
    "table",
]
