"""``scripts/run`` and ``scripts/test``: what they do once there is a Python."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from scripts.environment import prepare
from scripts.system import (
    CHROMIUM_PACKAGES,
    PYTHON,
    ROOT,
    SetupError,
    find_chromium,
    install_system_package,
    say,
)

# Two processes: the browser waits most of the time, and the other tests use what it leaves.
_WHOLE_SUITE = ["-n", "2", "--dist", "loadgroup"]
_CHECKS = {
    "ruff check": ["-m", "ruff", "check", "."],
    "ruff format": ["-m", "ruff", "format", "--check", "."],
    "imports": ["-c", "from importlinter.cli import lint_imports_command as c; c()"],
    "dependencies": ["-m", "deptry", "."],
    "mypy": ["-m", "mypy"],
}


def run_app(arguments: list[str]) -> int:
    """Become the Streamlit server; it prints the URL, and takes the next port if 8501 is busy."""
    prepare("app")
    os.execv(PYTHON, [str(PYTHON), "-m", "streamlit", "run", "app.py", *arguments])


def run_tests(arguments: list[str]) -> int:
    """Checks and tests side by side; all of them run, and one failure fails the whole."""
    prepare("app", "test")
    if find_chromium() is None:
        for package in CHROMIUM_PACKAGES:
            install_system_package(package)
            if find_chromium() is not None:
                break
        else:
            say("The browser tests are skipped: install Chromium or Chrome to run them.")
    suite = [*_WHOLE_SUITE, *arguments] if set(arguments) <= {"--deep"} else arguments
    with ThreadPoolExecutor() as pool:  # what the checks print is kept until the tests are through
        checks = {name: pool.submit(_check, command) for name, command in _CHECKS.items()}
        say("== pytest, and beside it " + ", ".join(_CHECKS))
        passed = {"pytest": subprocess.run([PYTHON, "-m", "pytest", *suite]).returncode == 0}
        for name, check in checks.items():
            passed[name], printed = check.result()
            say(f"== {name}: " + ("passed" if passed[name] else f"failed\n{printed}"))
    bad = [name for name, good in passed.items() if not good]
    if bad:
        say(f"\nFailed: {', '.join(bad)}.")
    return 1 if bad else 0


def _check(command: list[str]) -> tuple[bool, str]:
    """Whether a command of this Python succeeds, and all that it prints."""
    done = subprocess.run(
        [PYTHON, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode == 0, done.stdout


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
