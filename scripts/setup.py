"""``scripts/run`` and ``scripts/test``: what they do once there is a Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from scripts.environment import prepare
from scripts.system import PYTHON, ROOT, SetupError, install_system_package, say

# Two processes: the browser waits most of the time, and the other tests use what it leaves.
_WHOLE_SUITE = ["-n", "2", "--dist", "loadgroup"]


def find_chromium() -> str | None:
    """A Chromium or Chrome that the browser tests can drive."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    mac = "/Applications/{0}.app/Contents/MacOS/{0}"
    candidates = [*names, mac.format("Google Chrome"), mac.format("Chromium")]
    return next(filter(None, map(shutil.which, candidates)), None)


def run_app(arguments: list[str]) -> int:
    """Become the Streamlit server; it prints the URL, and takes the next port if 8501 is busy."""
    prepare("app")
    os.execv(PYTHON, [str(PYTHON), "-m", "streamlit", "run", "app.py", *arguments])


def run_tests(arguments: list[str]) -> int:
    """Lint, types, tests; all of them run, and one failure fails the whole."""
    prepare("app", "test")
    if find_chromium() is None:
        install_system_package("chromium")
        if find_chromium() is None:
            say("The browser tests are skipped: install Chromium or Chrome to run them.")
    steps = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy"],
        "pytest": ["pytest", *(arguments or _WHOLE_SUITE)],
    }
    bad = []
    for name, command in steps.items():
        say(f"\n== {name}")
        if subprocess.run([PYTHON, "-m", *command]).returncode != 0:
            bad.append(name)
    if bad:
        say(f"\nFailed: {', '.join(bad)}.")
    return 1 if bad else 0


def main() -> int:
    """``setup.py run|test ARGUMENTS``; returns the exit status."""
    os.chdir(ROOT)  # Streamlit reads .streamlit/config.toml of the working directory
    try:
        return {"run": run_app, "test": run_tests}[sys.argv[1]](sys.argv[2:])
    except (SetupError, OSError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. The next run puts .venv right.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
