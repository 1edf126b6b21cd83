"""Workers by fork: torch is read once, by a server that the workers of tests are forked from.

Notable:
- a worker runs the code, the folder and the environment that ``python -m tuning.worker`` would
- tests marked ``process`` start that command instead
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "tuning.worker",
        "tuning.sweep.run",
        "tuning.measure.run",
        "tuning.measure.proofs.kernels",
        "tuning.measure.proofs.equivalence",
    ]
)


class Popen:
    """What ``Jobs`` uses of ``subprocess.Popen``, for a worker and nothing else."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: IO[bytes],
        stderr: IO[bytes],
        cwd: Path,
        env: Mapping[str, str],
        **_rest: Any,
    ) -> None:
        assert command[:-1] == [sys.executable, "-m", "tuning.worker"]
        arguments = (command[-1], stdout.name, stderr.name, cwd, dict(env))
        # A daemon: it ends with the tests, however they end.
        self._process = _FORKS.Process(target=_work, args=arguments, daemon=True)
        self._process.start()
        assert self._process.pid is not None  # it was started
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode


DEVNULL = subprocess.DEVNULL


def _work(job: str, stdout: str, stderr: str, cwd: Path, env: dict[str, str]) -> None:
    """In the fork: become what the command would have been, then do its work."""
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for name, descriptor in ((stdout, 1), (stderr, 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), descriptor)
    from tuning.worker import main

    sys.exit(main(Path(job)))
