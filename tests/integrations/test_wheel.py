"""The wheel: the checkout's folders under ``espalier``, working where the checkout is not."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from setup import TOP, under_espalier

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "app.py", *(path for top in TOP for path in (ROOT / top).rglob("*.py"))]


def imported(tree: ast.AST) -> list[ast.ImportFrom]:
    """Imports of the checkout's folders, by either name; these are made alike."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            name = node.module.removeprefix("espalier.")
            if name.split(".")[0] in TOP:
                node.module = name
                found.append(node)
    return found


def test_only_imports_are_rewritten_and_all_of_them() -> None:
    rewritten = 0
    for path in SOURCES:
        source = path.read_text("utf-8")
        built = under_espalier(path.name, source)
        before, after = ast.parse(source), ast.parse(built)
        modules = re.findall(r"^\s*from espalier\.", built, re.MULTILINE)
        imports = imported(after)
        assert len(imported(before)) == len(imports) <= len(modules)
        assert ast.dump(before, include_attributes=False) == ast.dump(after)
        assert len(built) - len(source) == len("espalier.") * len(imports)
        rewritten += len(imports)
    assert rewritten > 500


@pytest.mark.parametrize("statement", ["import packing", "import kernels.model.model as model"])
def test_an_import_that_cannot_be_rewritten_stops_the_build(statement: str) -> None:
    with pytest.raises(ValueError, match=r"a\.py, line 2: write from … import …"):
        under_espalier("a.py", f"import os\n{statement}\n")


class Installed:
    """A fresh environment with the wheel, and a distribution named ``kernels`` beside it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.python = folder / "env" / "bin" / "python"
        self.run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
        (self.packages / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        (self.packages / "kernels").mkdir()
        (self.packages / "kernels" / "__init__.py").write_text("WHOSE = 'another'\n")
        pip = (self.python, "-m", "pip", "--disable-pip-version-check")
        wheel = (*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
        self.run(*wheel)
        (built,) = folder.glob("*.whl")
        self.run(*pip, "install", "-q", "--no-deps", built)

    @property
    def packages(self) -> Path:
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return self.home / "env" / "lib" / version / "site-packages"

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return kept | {"ESPALIER_HOME": str(self.home / "data"), "OMP_NUM_THREADS": "1"}

    def run(self, *command: str | Path) -> str:
        done = subprocess.run(
            [*map(str, command)],
            cwd=self.home,
            env=self.environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def espalier(self, *arguments: str) -> Any:
        return json.loads(self.run(self.home / "env" / "bin" / "espalier", *arguments, "--json"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"))


@pytest.mark.deep
@pytest.mark.process
def test_every_module_is_there_and_none_at_the_top(installed: Installed) -> None:
    code = """
import importlib, pkgutil, sys
import kernels
assert kernels.WHOSE == "another"
import espalier
for module in pkgutil.walk_packages(espalier.__path__, "espalier."):
    if module.name.rpartition(".")[2] in ("__main__", "app", "frame", "page"):
        continue
    importlib.import_module(module.name)
assert kernels is sys.modules["kernels"]
print(len([name for name in sys.modules if name.startswith("espalier.")]))
print([name for name in ("packing", "tuning", "pages", "kernels.model") if name in sys.modules])
"""
    count, leaked = installed.run(installed.python, "-c", code).splitlines()[-2:]
    assert int(count) > 200 and leaked == "[]"


@pytest.mark.deep
@pytest.mark.process
def test_the_library_and_the_command(installed: Installed) -> None:
    code = """
from espalier.packing.prefixes import PrefixOrder
from espalier.packing.packers.areal import pack_areal
from espalier.packing.rows import Rows
print(pack_areal(PrefixOrder.of(Rows.from_lists([[1, 2, 3], [1, 2, 4]])), 128).tree_tokens)
"""
    assert installed.run(installed.python, "-c", code).strip() == "4"
    packed = installed.espalier("pack", "sample:math-grpo", "--cap", "8192", "--prompts", "2")
    assert packed["n_trees"] > 0


@pytest.mark.deep
@pytest.mark.process
def test_a_sweep_in_its_worker(installed: Installed) -> None:
    options = ["--prompts", "2", "--samples", "2", "--model", "tiny", "--budget", "20s"]
    swept = installed.espalier("sweep", "sample:math-grpo", *options, "--caps", "4096,8192")
    assert any(point["step_kind"] == "measured" for point in swept["points"]), swept["points"]


@pytest.mark.deep
@pytest.mark.process
def test_the_console_answers(installed: Installed) -> None:
    with subprocess.Popen(
        [installed.home / "env" / "bin" / "espalier", "app", "--server.port", "0"],
        cwd=installed.home,
        env=installed.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout
        said, address = [], None
        try:
            for line in server.stdout:
                said.append(line)
                if address := re.search(r"http://[\d.]+:\d+", line):
                    break
            assert address, "".join(said)
            with urllib.request.urlopen(f"{address[0]}/packing", timeout=60) as page:
                assert page.status == 200
        finally:
            server.terminate()
