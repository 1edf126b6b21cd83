"""Where Espalier keeps things: the user's data folder (never lost) and cache (may be deleted)."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def data_folder() -> Path:
    """Run history, jobs, uploads. ``ESPALIER_HOME`` moves it."""
    return _made(os.environ.get("ESPALIER_HOME") or platformdirs.user_data_dir("espalier"))


def uploads_folder() -> Path:
    """Files that came through the browser, by content hash."""
    return _made(data_folder() / "uploads")


def jobs_folder() -> Path:
    """One folder a job: its question, its events, its log."""
    return _made(data_folder() / "jobs")


def _made(path: str | Path) -> Path:
    folder = Path(path).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
