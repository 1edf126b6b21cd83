"""Environments with one release of Triton each, for what is compiled ahead of time.

Notable:
- made once, in the user's cache, with Triton alone: compiling ahead needs neither torch nor a GPU
- the newest patch of a release is taken: 3.6 means 3.6.x
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "espalier" / "triton"
RELEASES = ("3.5", "3.6", "3.9")


def python_with(release: str, folder: Path = FOLDER) -> Path:
    """The interpreter of the environment with Triton ``release``, which is made if it is missing.

    Raises CalledProcessError where pip cannot install that release.
    """
    home = folder / f"{release}-python{sys.version_info.major}.{sys.version_info.minor}"
    python = home / "bin" / "python"
    mark = home / "complete"
    if not mark.exists():
        venv.create(home, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", f"triton=={release}.*"]
        subprocess.run(install, check=True, stdout=sys.stderr)
        mark.touch()
    return python
