"""Fixtures of the tuner's tests: workers by fork, and AReaL itself (its wheel, unpacked)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tuning import forked
from tuning.doctor.check import FOLDER_VARIABLE, Areal, find_areal

WHEEL = "areal==1.0.4"


@pytest.fixture(autouse=True)
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs fork their workers from a server that has read torch, but for tests of processes."""
    if not request.node.get_closest_marker("process"):
        monkeypatch.setattr("tuning.jobs.jobs.subprocess", forked)


@pytest.fixture(scope="session")
def areal(request: pytest.FixtureRequest) -> Areal:
    """AReaL 1.0.4 from ``ESPALIER_AREAL``, from the tests' cache, or from the package index."""
    pytest.importorskip("hydra", reason="hydra-core is needed to ask AReaL")
    named = os.environ.get(FOLDER_VARIABLE)
    folder = Path(named) if named else Path(request.config.cache.mkdir("areal-1.0.4"))
    found = find_areal(folder)
    if found is None and not named:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        done = subprocess.run(
            [*pip, "--retries", "1", "--timeout", "15", "--target", str(folder), WHEEL],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        found = find_areal(folder)
        if found is None:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            pytest.skip(f"{WHEEL} could not be downloaded: {last}")
    if found is None or found.version != "1.0.4":
        pytest.skip(f"{FOLDER_VARIABLE} holds no AReaL 1.0.4")
    return found
