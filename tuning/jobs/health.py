"""Whether this server can do its work: keep a point, and start a worker."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from threading import Lock

from tuning.jobs.folders import data_folder
from tuning.jobs.jobs import ROOT, WORKER
from tuning.jobs.store import Store, StoreError

_PROBE_BYTES = 64 << 10
_KEPT_S = 30.0
_PATIENCE_S = 60.0
_lock = Lock()
_last: list[tuple[float, list[str]]] = []


def problems() -> list[str]:
    """A sentence for each thing that does not work; looked at again after half a minute."""
    with _lock:
        if not _last or time.monotonic() - _last[0][0] > _KEPT_S:
            found = [said for said in (_disk(), _history(), _worker()) if said]
            _last[:] = [(time.monotonic(), found)]
        return _last[0][1]


def _disk() -> str:
    try:
        with tempfile.TemporaryFile(dir=data_folder()) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError as error:
        return f"the data folder cannot be written: {error.strerror}"
    return ""


def _history() -> str:
    try:
        Store().probe()
    except (StoreError, OSError) as error:
        return str(error)
    return ""


def _worker() -> str:
    """The worker's module and all that it needs before its kind of job, in a process of its own."""
    command = [sys.executable, "-c", f"import {WORKER}"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=_PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no worker starts: {error}"
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return f"no worker starts: {said[-1] if said else done.returncode}" if done.returncode else ""
