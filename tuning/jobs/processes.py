"""Processes by number and birth, and by group."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from tuning.jobs.host import boot


def identity(pid: int) -> dict[str, str | int] | None:
    """A process by number and birth: numbers are used again.

    The birth is counted from the start of the machine where the system tells: a date would move
    when the clock is set.
    """
    try:
        process = psutil.Process(int(pid))
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return {"pid": pid, "born": _born(process)}
    except (psutil.Error, ValueError, TypeError):
        return None


def _born(process: psutil.Process) -> str:
    try:
        # After the name, which may hold anything: field 22 of proc(5), in ticks since the start.
        after = Path(f"/proc/{process.pid}/stat").read_text(errors="replace").rpartition(")")[2]
        return f"{boot()} {after.split()[19]}"
    except (OSError, IndexError):
        return f"{process.create_time():.2f}"


def members(group: int) -> list[int]:
    """Living processes of a process group."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return found


def killed(status: int) -> str:
    """``killed (SIGKILL)``, and what that may mean, of a process that ended with ``-signal``."""
    hint = "; the system kills processes when memory runs out" if status == -signal.SIGKILL else ""
    return f"was killed ({signal.Signals(-status).name}){hint}"


def kill_group(pid: int, how: signal.Signals) -> None:
    """Send a signal to all of a process group; nothing where it is gone."""
    try:
        os.killpg(pid, how)
    except ProcessLookupError:
        return
