"""Faces: a folder's ``__init__`` names all that others use of it, and each name is explained."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.reference import FACES

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("packing", "kernels", "tuning", "pages", "benchmarks", "scripts")
# Brings plotly, which the report's commands do without: its rooms are imported one by one.
APART = "tuning.report.figures"


def face_of(module: str) -> str | None:
    """The innermost face that a module is behind."""
    behind = [face for face in FACES if f"{module}.".startswith(f"{face}.")]
    return max(behind, key=len, default=None) if not module.startswith(APART) else None


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or path.is_dir()


def names_used_outside() -> Iterator[tuple[str, str, str]]:
    """(face, name, file) of whatever a module takes from a folder that it is not in."""
    for path in (p for folder in PRODUCT for p in (ROOT / folder).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                face = face_of(node.module)
                if face is None or f"{module}.".startswith(f"{face}."):
                    continue
                for name in (alias.name for alias in node.names):
                    # A module is its own face; where a function shares its name, it is the module.
                    if not is_module(f"{node.module}.{name}") and (
                        not is_module(f"{face}.{name}") or name in public(face)
                    ):
                        yield face, name, str(path.relative_to(ROOT))


def public(face: str) -> list[str]:
    return list(importlib.import_module(face).__all__)


@pytest.mark.parametrize("face", FACES)
def test_a_face_has_what_it_names_and_explains_it(face: str) -> None:
    module = importlib.import_module(face)
    assert module.__doc__ and len(set(module.__all__)) == len(module.__all__)
    shown = {name for name in vars(module) if not name.startswith("_")}
    assert set(module.__all__) <= shown
    hidden = {n for n in shown - set(module.__all__) if not is_module(f"{face}.{n}")}
    assert not hidden, f"imported by {face}, but not in its __all__"
    explained = {n: vars(module)[n] for n in module.__all__ if inspect.isroutine(vars(module)[n])}
    explained |= {n: vars(module)[n] for n in module.__all__ if inspect.isclass(vars(module)[n])}
    bare = [name for name, made in explained.items() if not made.__doc__]
    assert explained and not bare, f"without a docstring in {face}"


def test_what_others_use_of_a_folder_is_in_its_face() -> None:
    used = list(names_used_outside())
    assert len(used) > 100
    missing = sorted({(face, name, file) for face, name, file in used if name not in public(face)})
    assert not missing
