"""Who imports whom, where the contracts in pyproject.toml do not reach."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp

FOLDERS = ("packing", "kernels", "tuning", "pages")


def test_no_module_reaches_itself_by_a_detour() -> None:
    """The contract on folders leaves out a module that imports the face of its own folder."""
    graph = grimp.build_graph(*FOLDERS, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 200
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
