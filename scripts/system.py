"""Small helpers of the set-up scripts: talk to the person, ask a command, install a system package.

Notable:
- scripts/ uses only the standard library: it runs before anything is installed
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


CHROMIUM_PACKAGES = ("chromium-headless-shell", "chromium")
"""The first is Chromium without windows: it takes half the time of the whole one."""


class SetupError(Exception):
    """The environment cannot be made; the message says what to do."""


def say(text: str) -> None:
    """One line for the person at the terminal, at once."""
    print(text, flush=True)


def answer(*command: str | Path, seconds: float = 120) -> str | None:
    """What a command prints, or None when it is missing, fails or takes too long."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
        return done.stdout.strip()
    return None


def find_chromium() -> str | None:
    """A Chromium or Chrome that can be driven without a screen."""
    names = (*CHROMIUM_PACKAGES, "chromium-browser", "google-chrome", "google-chrome-stable")
    mac = "/Applications/{0}.app/Contents/MacOS/{0}"
    candidates = [*names, mac.format("Google Chrome"), mac.format("Chromium")]
    return next(filter(None, map(shutil.which, candidates)), None)


def admin() -> list[str] | None:
    """What to put before a command that installs system packages; None if we may not."""
    if os.geteuid() == 0:
        return []
    return ["sudo", "-n"] if answer("sudo", "-n", "true") is not None else None


def install_system_package(package: str) -> None:
    """Install one package with the system's package manager, where there is one and we may."""
    managers = {
        "apt-get": [["apt-get", "update"], ["apt-get", "install", "-y", package]],
        "dnf": [["dnf", "install", "-y", package]],
        "zypper": [["zypper", "--non-interactive", "install", package]],
        "pacman": [["pacman", "-S", "--noconfirm", package]],
    }
    manager = next((name for name in managers if shutil.which(name)), None)
    before = admin() if manager else None
    if manager is None or before is None:
        return
    say(f"Installing {package} with {manager}.")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in managers[manager]:
        subprocess.run([*before, *command], env=quiet, stdout=subprocess.DEVNULL)
