"""Processes by number and birth, and by group."""

from __future__ import annotations

import os
import signal

import psutil


def identity(pid: int) -> dict[str, float] | None:
    """A process by number and birth: numbers are used again."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return {"pid": pid, "created": process.create_time()}
    except psutil.NoSuchProcess:
        return None


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
