"""Which machine this is, so that what one has measured never answers for another."""

from __future__ import annotations

import hashlib
import os
import platform
import uuid
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@cache
def cpu_model() -> str:
    """Such as ``AMD EPYC 7763 64-Core Processor``; the architecture where nobody says more."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine()


@cache
def host() -> str:
    """16 hex digits of the installation, its processor and its cores; no name is in them."""
    installed = _read(Path("/etc/machine-id")).strip() or f"{uuid.getnode():x}"
    text = "\n".join([installed, cpu_model(), str(os.cpu_count())])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@cache
def boot() -> str:
    """Names the time since this machine was started; empty where the system does not."""
    return _read(_BOOT).strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
