"""Builds the wheel: the top-level folders of the checkout become packages of ``espalier``.

Notable:
- the only change to a source file is in its imports: ``from packing.rows import Rows`` becomes
  ``from espalier.packing.rows import Rows``, found by the syntax tree, not in texts
- a ``.pth`` file lets ``ESPALIER_AREAL=1`` switch on AReaL's plugin in every process
- what is built goes to a temporary folder: nothing of an earlier build gets into the wheel
"""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

TOP = ("packing", "kernels", "tuning", "pages")
INIT = '"""Espalier tunes tree packing; its parts are packing, kernels, tuning and pages."""\n'
PTH = (
    'import os; os.environ.get("ESPALIER_AREAL") == "1" and '
    '__import__("espalier.kernels.integrations.areal.hook")\n'
)


def under_espalier(name: str, source: str) -> str:
    """A module's source with its imports of the checkout's folders moved under ``espalier``.

    Raises ValueError for ``import packing``, which would need another name in all of the module.
    """
    if not name.endswith(".py"):
        return source
    lines = source.encode().splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] in TOP]
            if names:
                raise ValueError(
                    f"{name}, line {node.lineno}: write from … import …, not import {names[0]}"
                )
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in TOP:
            line, start = lines[node.lineno - 1], node.col_offset + len("from ")
            lines[node.lineno - 1] = line[:start] + b"espalier." + line[start:]
    return b"".join(lines).decode()


class UnderEspalier(build_py):
    """Copies the modules, their imports rewritten, and what the wheel has beside them."""

    def run(self) -> None:
        super().run()
        root = Path(self.build_lib)
        console = root / "espalier" / "console"
        for name in ("app.py", ".streamlit/config.toml"):
            (console / name).parent.mkdir(parents=True, exist_ok=True)
            (console / name).write_text(
                under_espalier(name, Path(name).read_text("utf-8")), "utf-8"
            )
        (root / "espalier" / "__init__.py").write_text(INIT, "utf-8")
        (root / "espalier_areal.pth").write_text(PTH, "utf-8")

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        if package == "espalier":  # app.py has a folder of its own, and this file is none of it
            return []
        found: list[tuple[str, str, str]]
        found = super().find_package_modules(package, package_dir)  # type: ignore[no-untyped-call]
        return found

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        done: tuple[str, bool]
        done = super().build_module(module, module_file, package)  # type: ignore[no-untyped-call]
        built = Path(done[0])
        built.write_text(under_espalier(module_file, built.read_text("utf-8")), "utf-8")
        return done


def data_files(folder: str) -> list[str]:
    """What a package holds beside modules, relative to it."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    kept = (path for path in files if path.suffix not in (".py", ".pyc"))
    return [path.relative_to(folder).as_posix() for path in kept]


if __name__ == "__main__":
    build = tempfile.mkdtemp(prefix="espalier-wheel-")
    packages = find_packages(include=[name for top in TOP for name in (top, f"{top}.*")])
    setup(
        packages=["espalier", *(f"espalier.{name}" for name in packages)],
        package_dir={"espalier": ".", **{f"espalier.{top}": top for top in TOP}},
        package_data={
            "espalier": ["docs/compile_table.json"],
            **{f"espalier.{top}": data_files(top) for top in TOP},
        },
        include_package_data=False,
        cmdclass={"build_py": UnderEspalier},
        options={"build": {"build_base": build}, "egg_info": {"egg_base": build}},
    )
