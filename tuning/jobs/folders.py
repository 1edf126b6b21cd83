"""Where Espalier keeps things: the user's data folder (never lost) and cache (may be deleted)."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import platformdirs

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "sshfs", "glusterfs", "lustre", "beegfs",
            "ceph", "gpfs", "afs", "9p"}  # fmt: skip


def data_folder() -> Path:
    """Run history, jobs, uploads. ``ESPALIER_HOME`` moves it.

    Where it cannot be written, a folder that lasts as long as this process; ``problem`` says so.
    """
    folder = _wanted()
    return folder if not _unwritable(folder) else _lent()


def problem() -> str:
    """Why results are not kept, and what to do; empty where they are."""
    folder = _wanted()
    why = _unwritable(folder)
    return why and (
        f"The data folder {folder} cannot be written ({why}): what is measured now is gone when "
        "this program ends. Give ESPALIER_HOME a folder that can be written, or free disk space."
    )


@cache
def on_network(path: Path) -> bool:
    """Whether a file lies on a file system that several machines may have open."""
    best, kind = "", ""
    with suppress(OSError):
        real = str(path.resolve())
        for line in Path("/proc/mounts").read_text(errors="replace").splitlines():
            place, of = line.split()[1:3]
            place = place.replace("\\040", " ")
            inside = real == place or real.startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(best):
                best, kind = place, of
    return kind.removeprefix("fuse.") in _NETWORK


def uploads_folder() -> Path:
    """Files that came through the browser, by content hash."""
    return _made(data_folder() / "uploads")


def jobs_folder() -> Path:
    """One folder a job: its question, its events, its log."""
    return _made(data_folder() / "jobs")


def _wanted() -> Path:
    return Path(
        os.environ.get("ESPALIER_HOME") or platformdirs.user_data_dir("espalier")
    ).expanduser()


@cache
def _unwritable(folder: Path) -> str:
    """The system's reason, asked once; empty where a file can be made there."""
    try:
        with tempfile.TemporaryFile(dir=_made(folder)):
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__


@cache
def _lent() -> Path:
    return Path(tempfile.mkdtemp(prefix="espalier-"))


def _made(folder: Path) -> Path:
    """Rows and results are nobody else's: the folder is open to its owner alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        with suppress(OSError):  # another's folder: they decide
            folder.chmod(0o700)
    return folder
