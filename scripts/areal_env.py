"""``scripts/areal_env``: an environment of its own in which AReaL's FSDP engine runs on a CPU.

Notable:
- torch, transformers and numpy are the project's: a ``.pth`` line lends what .venv holds. AReaL
  1.0.4 asks for torch < 2.11 and transformers <= 5.3; its engine runs as well on the newer ones
- areal_env.txt is complete, so pip resolves nothing and never touches what is lent
- it has the checkout and the plugin of ``kernels/integrations/areal`` on its path
- the loggers that AReaL imports and a test never starts are stand-ins, written here
- a stamp, written last, says what was installed: while it fits, nothing is done
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.environment import prepare
from scripts.system import PYTHON, ROOT, SetupError, answer, say

REQUIREMENTS = ROOT / "scripts" / "areal_env.txt"
LOGGERS = ("swanlab", "tensorboardX", "trackio", "wandb")
STAND_IN = '''"""Stands in for {name}, which AReaL imports and does not need to train."""

from unittest.mock import MagicMock


def __getattr__(name: str) -> MagicMock:
    return MagicMock(name=f"{name}.{{name}}")
'''
# As the wheel's, for the checkout: the plugin answers to its switch in every process.
HOOK = (
    f"{ROOT}\n"
    'import os; os.environ.get("ESPALIER_AREAL") == "1" and '
    '__import__("kernels.integrations.areal.hook")\n'
)
ENGINE = "areal.engine.fsdp_engine"
# What .venv lends: its Python, its folders of packages, its torch.
PROBE = """
import json, sys, torch
folders = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
torch = list(map(int, torch.__version__.split("+")[0].split(".")[:3]))
print(json.dumps({"python": sys.version_info[:3], "folders": folders, "torch": torch}))
"""


def lent() -> dict[str, Any]:
    """What .venv lends; raises SetupError where AReaL could not use it."""
    text = answer(PYTHON, "-c", PROBE)
    if text is None:
        prepare("app")
        text = answer(PYTHON, "-c", PROBE)
    found: dict[str, Any] = json.loads(text or "{}")
    if not found:
        raise SetupError(f"{PYTHON} cannot import torch: run scripts/run once, which repairs it.")
    for what, least, below in (("python", [3, 11], [3, 13]), ("torch", [2, 9, 1], [3])):
        if not least <= found[what] < below:
            has, need = (".".join(map(str, version)) for version in (found[what], least))
            raise SetupError(
                f"AReaL needs {what} >= {need} and < {'.'.join(map(str, below))}, and .venv has "
                f"{has}: make .venv anew with PYTHON=python3.12 scripts/run."
            )
    return found


def run(what: str, *command: str | Path) -> None:
    """Run a command; raises SetupError with the end of what it said."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise SetupError(f"{what}; its last lines:\n{last}")


def make(folder: Path) -> None:
    """The environment at ``folder``: made, repaired where it was interrupted, else left alone."""
    found = lent()
    content = REQUIREMENTS.read_bytes() + STAND_IN.encode() + HOOK.encode()
    want = found | {"files": hashlib.sha256(content).hexdigest()}
    stamp, python = folder / "areal-env.json", folder / "bin" / "python"
    if stamp.exists() and json.loads(stamp.read_text()) == want and python.exists():
        say(f"{folder} is ready.")
        return
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "pyvenv.cfg").exists():
            raise SetupError(f"{folder} holds other files: give an empty or a new folder.")
        shutil.rmtree(folder)
    say(f"Installing AReaL into {folder}; this takes a few minutes, once.")
    run("The environment could not be made", PYTHON, "-m", "venv", "--without-pip", folder)
    version = ".".join(map(str, found["python"][:2]))
    packages = folder / "lib" / f"python{version}" / "site-packages"
    (packages / "lent.pth").write_text("\n".join(found["folders"]) + "\n")
    (packages / "espalier_areal.pth").write_text(HOOK)
    for name in LOGGERS:
        (packages / f"{name}.py").write_text(STAND_IN.format(name=name))
    pip = (python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check")
    options = ("--no-deps", "--no-warn-conflicts", "--only-binary", ":all:")
    # another torch beside the lent one would be taken for it: none is ever asked for
    run(
        "AReaL could not be installed: connect this machine to a package index, or set "
        "PIP_INDEX_URL to a mirror, then run this again",
        *(*pip, *options, "--ignore-installed", "-r", REQUIREMENTS),
    )
    run(
        "AReaL is installed, but its engine cannot be imported",
        python,
        "-c",
        f"import {ENGINE}",
    )
    stamp.write_text(json.dumps(want))
    say(f"{folder} is ready.")


def main() -> int:
    """``areal_env.py [FOLDER]``; returns the exit status."""
    try:
        make(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".areal-env").absolute())
    except (SetupError, OSError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. The next run makes the environment anew.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
