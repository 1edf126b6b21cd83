"""Run by ``areal_check`` in a process of its own: merge a config into AReaL's real classes.

Notable:
- imports ``areal.api.cli_args`` alone; packages of AReaL that pull in engines are left unrun, and
  heavy third-party modules, which the config classes do not use, are replaced by blanks
- needs numpy, omegaconf, hydra-core and pyyaml; imports nothing of Espalier
- reads one JSON object from standard input, writes one to standard output
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

_PACKAGES = (
    "areal",
    "areal.api",
    "areal.engine",
    "areal.engine.fsdp_utils",
    "areal.utils",
    "areal.infra",
)
_BLANK_PARTS = ("areal.utils.logging", "areal.utils.name_resolve", "areal.infra.platforms")
_HEAVY = frozenset(
    {"aiohttp", "colorlog", "httpx", "numba", "orjson", "ray", "torch", "transformers", "uvloop"}
)


class _Blank:
    """Anything: attributes, calls and decorators give blanks or what they were given."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Blank()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else _Blank()


class _BlankModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "is_kernel":
            return _is_kernel
        return _Blank()


def _is_kernel(name: str) -> bool:
    """Whether ``name`` has the form of a Hugging Face kernels repo."""
    pattern = r"(?:[\w-]+\|)?[\w.-]+/[\w.-]+(?:@[\w./-]+)?(?::[\w.-]+)?"
    return re.fullmatch(pattern, name) is not None


class _Finder:
    """Gives blanks for heavy modules and for parts of AReaL that need an engine."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if name in _BLANK_PARTS or name.split(".")[0] in _HEAVY:
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = _BlankModule(spec.name)
        module.__path__ = []  # a package: modules below it are blank too
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """A blank has nothing to run."""


def load_cli_args(root: str) -> Any:
    """The module ``areal.api.cli_args`` found under ``root``."""
    import hydra  # noqa: F401  # before the blanks: it probes for optional modules
    import omegaconf  # noqa: F401

    for name in _PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [f"{root}/{name.replace('.', '/')}"]
        sys.modules[name] = package
    sys.meta_path.insert(0, _Finder())
    sys.path.insert(0, root)
    return importlib.import_module("areal.api.cli_args")


def _merge(cli_args: Any, class_name: str, text: str, whole: bool) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    cls = getattr(cli_args, class_name)
    try:
        config: Any = OmegaConf.create(text)
        left_out = []
        if whole:
            known = set(cls.__dataclass_fields__)
            left_out = [str(key) for key in config if key not in known]
            for key in left_out:
                del config[key]
        merged = OmegaConf.merge(OmegaConf.structured(cls), config)
        OmegaConf.to_object(merged)
    except (OmegaConfBaseException, ValueError, TypeError, AssertionError) as error:
        return {"accepted": False, "error": f"{type(error).__name__}: {error}"}
    return {"accepted": True, "left_out": left_out}


def _overrides(lines: list[str]) -> dict[str, Any]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_overrides(lines)
    except HydraException as error:
        return {"accepted": False, "error": str(error)}
    return {"accepted": True}


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """``{"root", "class", "text", "whole"}``, ``{"root", "fields"}``, or ``{"overrides"}``."""
    if "overrides" in question:
        return _overrides(question["overrides"])
    cli_args = load_cli_args(question["root"])
    if "fields" in question:
        return {"fields": _fields(cli_args, question["fields"])}
    return _merge(cli_args, question["class"], question["text"], question["whole"])


def _fields(cli_args: Any, names: list[str]) -> dict[str, dict[str, Any]]:
    """Name to type and default of each field of each class."""
    import dataclasses

    found: dict[str, dict[str, Any]] = {}
    for name in names:
        found[name] = {}
        for one in dataclasses.fields(getattr(cli_args, name)):
            default: Any = one.default
            make: Any = one.default_factory
            if default is dataclasses.MISSING and make is not dataclasses.MISSING:
                default = make()
            plain = isinstance(default, str | int | float | bool | None)
            found[name][one.name] = {
                "type": one.type.__name__ if isinstance(one.type, type) else str(one.type),
                "default": default if plain else type(default).__name__,
                "plain": plain,
            }
    return found


if __name__ == "__main__":
    result = answer(json.loads(sys.stdin.read()))
    sys.stdout.write("\n" + json.dumps(result) + "\n")
