"""The virtual environment in .venv: made once, repaired when it was interrupted, else left alone.

Notable:
- a stamp in .venv says what was installed; while it fits, pip is not called: no network needed
- the stamp is written last, and a mark lies in .venv while pip works: with the mark, it is remade
- a lock, which pip inherits, lets one run at a time touch .venv
- a .venv made by hand is added to, never deleted
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

from scripts.system import (
    PYTHON,
    ROOT,
    VENV,
    SetupError,
    answer,
    install_system_package,
    say,
)
from scripts.torch_build import (
    check_torch,
    has_nvidia_gpu,
    keeps_base_torch,
    torch_indexes,
    torch_requirement,
)

STAMP = VENV / "espalier-installed.json"
UNFINISHED = VENV / "espalier-unfinished"
PIP_LOG = VENV / "pip.log"

FILES = {
    "app": ("requirements.txt", "constraints.txt"),
    "test": ("requirements-dev.txt", "constraints.txt"),
}
# Building these from source takes an hour and a compiler: only wheels.
WHEELS_ONLY = "numpy,pandas,pyarrow,scipy,tokenizers,torch,triton"

PROBE_VENV = """
import sys
from importlib.metadata import PackageNotFoundError, version
try:
    torch = version("torch")
except PackageNotFoundError:
    torch = ""
print("%d.%d.%d" % sys.version_info[:3], torch)
"""


@contextlib.contextmanager
def only_one() -> Iterator[int]:
    """Hold the lock on .venv; yields its file descriptor for child processes to inherit."""
    with open(ROOT / ".venv.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another run is preparing .venv: waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def make_venv(system_site_packages: bool) -> None:
    """A new, empty .venv, marked unfinished; what was there goes."""
    if importlib.util.find_spec("ensurepip") is None:  # Debian and Ubuntu split it off
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        if shutil.which("apt-get"):
            install_system_package(package)
        importlib.invalidate_caches()
        if importlib.util.find_spec("ensurepip") is None:
            raise SetupError(
                "This Python cannot make virtual environments: install what it lacks (on Debian "
                f"and Ubuntu: sudo apt install {package}), then run this again."
            )
    old = ROOT / ".venv.old"
    shutil.rmtree(old, ignore_errors=True)
    if VENV.exists():  # a rename first: a half-deleted .venv must not look like a whole one
        VENV.rename(old)
        shutil.rmtree(old)
    VENV.mkdir()
    UNFINISHED.touch()
    builder = venv.EnvBuilder(
        with_pip=True, symlinks=True, system_site_packages=system_site_packages
    )
    try:
        builder.create(VENV)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(
            f"This Python could not make a virtual environment in {VENV}: {error}. "
            "Set PYTHON to another one, then run this again."
        ) from error


def without(name: str, packages: tuple[str, ...]) -> Path:
    """A requirements file less the lines of some packages: itself, or a copy in .venv."""
    if not packages:
        return ROOT / name
    drop = re.compile(rf"({'|'.join(packages)})\b")
    kept = [line for line in (ROOT / name).read_text().splitlines() if not drop.match(line)]
    copy = VENV / name
    copy.write_text("\n".join(kept) + "\n")
    return copy


def pip(lock: int, *arguments: str | Path) -> bool:
    """Run pip in .venv; whether it succeeded. Its output is the person's to see."""
    PIP_LOG.unlink(missing_ok=True)
    command = [PYTHON, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    options = ["--log", PIP_LOG, "--only-binary", WHEELS_ONLY]
    done = subprocess.run([*map(str, (*command, *options, *arguments))], pass_fds=[lock])
    if done.returncode < 0:  # killed: leave the mark
        raise KeyboardInterrupt
    return done.returncode == 0


def no_network() -> bool:
    """Whether pip's last failure was that it could not reach an index."""
    return PIP_LOG.exists() and "connection broken by" in PIP_LOG.read_text(errors="replace")


def failed(what: str) -> SetupError:
    """The sentence for a pip that gave up."""
    if no_network():
        return SetupError(
            f"{what} could not be installed: pip could not reach the package index. Connect this "
            "machine to the internet, or set PIP_INDEX_URL to a mirror, then run this again."
        )
    return SetupError(
        f"{what} could not be installed: pip's last lines above say why (all of it is in "
        f"{PIP_LOG.relative_to(ROOT)}). Mend that, then run this again."
    )


def install_torch(lock: int, gpu: bool) -> None:
    """Torch alone and without its dependencies: the next step takes those from the usual index."""
    torch = ["--no-deps", torch_requirement()]
    for index in torch_indexes(gpu):
        if pip(lock, *torch, *index, "-c", ROOT / "constraints.txt"):
            return
        if no_network():
            continue
        say("The tested torch is not to be had here for this Python: taking the newest one.")
        if pip(lock, *torch, *index):
            return
    raise failed("torch")


def install(lock: int, level: str, keep_torch: bool) -> None:
    """The packages of one level, in the tested versions where they exist for this Python."""
    packages: list[str | Path] = ["-r", without(FILES[level][0], ("torch",) if keep_torch else ())]
    tested = without("constraints.txt", ("torch", "triton") if keep_torch else ("torch",))
    if pip(lock, *packages, "-c", tested):
        return
    if not no_network():
        say("The tested versions are not all to be had here: taking the newest that fit.")
        if pip(lock, *packages):
            return
    raise failed("The packages")


def expected(level: str) -> dict[str, str] | None:
    """What the stamp must say of one level now; None if .venv's Python does not run."""
    text = answer(PYTHON, "-c", PROBE_VENV)
    if text is None:
        return None
    python, _, torch = text.partition(" ")
    content = b"\0".join((ROOT / name).read_bytes() for name in FILES[level])
    return {"files": hashlib.sha256(content).hexdigest(), "python": python, "torch": torch}


def uses_base_torch() -> bool:
    """Whether .venv was made on top of a base Python that has torch."""
    return "include-system-site-packages = true" in (VENV / "pyvenv.cfg").read_text()


def prepare(*levels: str) -> None:
    """Make .venv hold the packages of these levels; at once if it does already."""
    with only_one() as lock:
        gpu = has_nvidia_gpu()
        stamp = {}
        with contextlib.suppress(OSError, ValueError):
            stamp = json.loads(STAMP.read_text())
        gpu_is_new = bool(stamp) and gpu and not stamp.get("gpu")
        now = expected("app")
        is_broken = now is None or (uses_base_torch() and not now["torch"])
        if is_broken or UNFINISHED.exists() or gpu_is_new:
            if VENV.exists():
                say("The last installation did not finish or does not fit: making .venv anew.")
            make_venv(system_site_packages=keeps_base_torch(gpu))
            stamp = {}
        levels = tuple(level for level in levels if stamp.get(level) != expected(level))
        if not levels:
            return
        say("Installing into .venv; this takes a few minutes, once.")
        UNFINISHED.touch()
        try:
            keep_torch = uses_base_torch()
            if "app" in levels and not keep_torch:
                install_torch(lock, gpu)
            for level in levels:
                install(lock, level, keep_torch)
            check_torch(gpu)
        except SetupError:  # pip leaves a consistent state when it gives up by itself
            UNFINISHED.unlink()
            raise
        stamp |= {level: expected(level) for level in levels} | {"gpu": gpu}
        draft = STAMP.with_suffix(".draft")
        draft.write_text(json.dumps(stamp, indent=1))
        UNFINISHED.unlink()
        draft.replace(STAMP)
