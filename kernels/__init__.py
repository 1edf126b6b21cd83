"""Attention and training on packed trees; what others call stands here, made when first asked for.

Notable:
- importing this imports no torch: the names below load what they need
- Hugging Face has a distribution of this name, whose modules and names transformers imports from
  here where it is installed: what is not ours is looked for in theirs
"""

from contextlib import suppress
from importlib import import_module, metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = [
    "PackedLogprobs",
    "Transitions",
    "TreeCollator",
    "TreeContext",
    "TreeLM",
    "TreeMask",
    "build_model",
    "check_equivalence",
    "dpo_loss",
    "head_logprobs",
    "padded_logprobs",
    "policy_loss",
    "sft_loss",
    "tree_attention",
    "tree_logprobs",
    "use_trees",
]

_ATTENTION = ("TreeMask", "tree_attention")
_theirs: ModuleType | None = None

if __name__ == "kernels":
    with suppress(metadata.PackageNotFoundError):
        __path__.append(str(metadata.distribution(__name__).locate_file(__name__)))


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = "attention" if name in _ATTENTION else "model"
        return getattr(import_module(f"{__name__}.{home}"), name)
    if not name.startswith("__") and (theirs := _hugging_face()) is not None:
        with suppress(AttributeError):
            return getattr(theirs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _hugging_face() -> ModuleType | None:
    """Their package's own face, run under its own name; its modules are found by our path."""
    global _theirs
    if _theirs is None and len(__path__) > 1:
        spec = spec_from_file_location(__name__, Path(__path__[-1]) / "__init__.py")
        assert spec is not None and spec.loader is not None
        _theirs = module_from_spec(spec)  # known before it runs: it may import from itself
        _theirs.__package__ = __name__
        spec.loader.exec_module(_theirs)
    return _theirs
