"""The folders' faces: complete, used by all others, cheap; Hugging Face's package beside ours."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernels

ROOT = Path(kernels.__file__).resolve().parents[1]
FOLDERS = ("attention", "memory", "model", "ranks")


def sources() -> Iterator[Path]:
    for folder in ("kernels", "tuning", "pages", "benchmarks", "tests"):
        yield from (ROOT / folder).rglob("*.py")


@pytest.mark.parametrize("folder", FOLDERS)
def test_others_take_from_a_face_what_it_has(folder: str) -> None:
    face = set(importlib.import_module(f"kernels.{folder}").__all__)
    taken: set[str] = set()
    past = []
    for path in sources():
        if path.parent == ROOT / "kernels" / folder:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = {alias.name for alias in node.names}
                if node.module == f"kernels.{folder}":
                    taken |= names
                elif node.module.startswith(f"kernels.{folder}.") and names & face:
                    past.append(f"{path.relative_to(ROOT)}: {sorted(names & face)}")
    theirs = ("benchmarks/gpu", "tests/kernels/t")  # of the Triton kernels, beside their own face
    assert not [line for line in past if not line.startswith(theirs)]
    door = set(kernels.__all__)
    nobody = face - taken - door
    assert not nobody, f"in the face of {folder}, and used by nobody: {sorted(nobody)}"


def test_every_name_of_the_door_is_there() -> None:
    assert sorted(kernels.__all__) == list(kernels.__all__)
    for name in kernels.__all__:
        assert getattr(kernels, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = kernels.nothing


def run(code: str, path: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_kernels_imports_no_torch() -> None:
    run("import kernels, sys; assert not {'torch', 'transformers', 'numpy'} & sys.modules.keys()")


THEIRS = """
from kernels.layer import Mode
from . import importer
from .importer import get_kernel

CUDAProperties = Device = KernelizeFallback = LayerRepository = LocalLayerRepository = Mode
ROCMProperties = register_kernel_mapping = use_kernel_mapping = kernelize = Mode


def use_kernel_forward_from_hub(*_):
    return lambda layer: layer


replace_kernel_forward_from_hub = use_kernelized_func = use_kernel_forward_from_hub
"""


@pytest.mark.parametrize("first", ["transformers.integrations.hub_kernels", "kernels.model"])
def test_hugging_faces_kernels_stand_beside_ours(tmp_path: Path, first: str) -> None:
    """Whichever is imported first, on a stand-in of the version that transformers asks for."""
    info = tmp_path / "kernels-0.18.2.dist-info"
    for folder in (info, tmp_path / "kernels" / "layer"):
        folder.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 0.18.2\n")
    (tmp_path / "kernels" / "__init__.py").write_text(THEIRS)
    (tmp_path / "kernels" / "importer.py").write_text("def get_kernel(*_, **__): return 'theirs'\n")
    (tmp_path / "kernels" / "layer" / "__init__.py").write_text(
        "from kernels.layer.mode import Mode\n"
    )
    (tmp_path / "kernels" / "layer" / "mode.py").write_text("class Mode:\n    name = 'theirs'\n")
    code = f"""
import sys
sys.path.append(sys.argv[1])
import {first}
from transformers.utils import is_kernels_available
assert is_kernels_available()
import kernels, transformers.integrations.hub_kernels as hub
from kernels.layer.mode import Mode
assert kernels.__file__ == {str(ROOT / "kernels" / "__init__.py")!r}
assert kernels.Mode is Mode is hub.Mode and kernels.get_kernel() == "theirs"
assert not hasattr(kernels, "nothing")
print(kernels.build_model("tiny").description)
"""
    assert run(code, str(tmp_path)).startswith("tiny: 188,992 parameters")
