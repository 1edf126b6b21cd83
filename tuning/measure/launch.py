"""Ranks as processes: started by torchrun, heard while they run, and gone whatever happens.

Notable:
- ranks read a pipe whose other end only this process holds: when it ends, however it ends, the
  system closes the pipe and every rank leaves at once
- what ranks write as they fail is kept in a file beside the job, passed on to standard error, and
  read for who died of what
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuning.jobs.processes import killed

_ROOT = Path(__file__).resolve().parents[__package__.count(".") + 1]
_RANKS = __package__.replace("tuning.measure", "kernels.ranks.fsdp")
_PATIENCE_S = 5.0
_DEATH = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s*exitcode\s*:\s*(-?\d+)")


@dataclass(frozen=True)
class Launched:
    """How ranks ended.

    result:        what rank 0 printed last, where all went well
    out_of_memory: rank, phase and micro-batch, where memory ran out
    death:         a sentence, where a rank died of something else
    """

    result: Mapping[str, Any] | None = None
    out_of_memory: Mapping[str, Any] | None = None
    death: str = ""


def launch(
    job: Path,
    ranks: int,
    hear: Callable[[int, int], None],
    gpus: Sequence[str] = (),
    *,
    module: str = _RANKS,
    python: str = sys.executable,
    folder: Path = _ROOT,
    variables: Mapping[str, str] | None = None,
) -> Launched:
    """Run ``kernels.ranks.fsdp``, or another module, over a job file on this machine.

    hear: is told each repeat as it begins, and how many there are
    gpus: as ``CUDA_VISIBLE_DEVICES`` names them, one a rank
    python, folder, variables: the interpreter, where it starts (modules are found there), and
            what its environment has beside this one's
    """
    environment = {"OMP_NUM_THREADS": str(max((os.cpu_count() or 1) // ranks, 1))} | os.environ
    environment |= variables or {}
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    torchrun = [python, "-m", "torch.distributed.run", "--standalone"]
    what = ["--nproc-per-node", str(ranks), "-m", module, str(job), "--tied"]
    said = job.with_suffix(".log")
    result, out_of_memory = None, None
    with said.open("wb") as log:
        process = subprocess.Popen(
            [*torchrun, *what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env=environment,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None  # they are pipes
        try:
            for line in process.stdout:
                told = _read(line)
                if "repeat" in told:
                    hear(int(told["repeat"]), int(told["of"]))
                elif "out_of_memory" in told:
                    out_of_memory = out_of_memory or told["out_of_memory"]
                elif "step_s" in told:
                    result = told
            process.wait()
        finally:
            process.stdin.close()
            _end(process)
            process.stdout.close()
    words = said.read_text(errors="replace")
    sys.stderr.write(words)
    sys.stderr.flush()
    if out_of_memory is not None:
        return Launched(out_of_memory=out_of_memory)
    if process.returncode or result is None:
        return Launched(death=_death(words))
    return Launched(result=result)


def _read(line: str) -> dict[str, Any]:
    """A line of a rank; nothing where a library printed it."""
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _death(words: str) -> str:
    """Who died of what, by torchrun's account; it ends the others by SIGTERM, which tells least."""
    deaths = [(int(rank), int(status)) for rank, status in _DEATH.findall(words)]
    if not deaths:
        lines = [line for line in words.strip().splitlines() if line.strip()]
        return f"the ranks ended without a result: {lines[-1] if lines else 'no message'}"
    rank, status = min(deaths, key=lambda death: (death[1] == -signal.SIGTERM, death[1] >= 0))
    if status >= 0:
        return f"rank {rank} ended with status {status}; the job's log has its words"
    return f"rank {rank} {killed(status)}"
