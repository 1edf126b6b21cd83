"""AReaL's own code, run in the environment that ``scripts/areal_env`` makes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.areal.worker import ROOT, Worker


@pytest.fixture(scope="session")
def areal_python() -> str:
    """The Python that has AReaL: $ESPALIER_AREAL_PYTHON, or that of .areal-env."""
    python = os.environ.get("ESPALIER_AREAL_PYTHON") or ROOT / ".areal-env" / "bin" / "python"
    if not Path(python).exists():
        pytest.skip("no environment with AReaL; scripts/areal_env makes one")
    return str(python)


@pytest.fixture(scope="module")
def start(areal_python: str) -> Iterator[Callable[..., Worker]]:
    """``start(module, NAME=value)``: a process of AReaL's environment, ended with the module."""
    workers: list[Worker] = []

    def begin(module: str, **environment: str) -> Worker:
        workers.append(Worker(areal_python, module, **environment))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.close()
