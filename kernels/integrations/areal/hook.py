"""Patches AReaL's modules as they are imported, in every process that has ``ESPALIER_AREAL=1``.

Notable:
- a line in a ``.pth`` file of site-packages imports this at the start of Python, workers included;
  nothing heavy is imported until AReaL is
- a refusal of the patch is the import's error: AReaL stops at its start
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODULES = (
    "areal.engine.fsdp_engine",
    "areal.engine.fsdp_utils.attn_impl",
    "areal.trainer.ppo.actor",
)


class _Finder(MetaPathFinder):
    """Finds what the other finders find, and has it patched once it has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _MODULES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (f.find_spec(name, path, target) for f in others)), None)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            importlib.import_module(".patch", __package__).patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())
