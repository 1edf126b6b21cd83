"""Where things are kept: nobody else's, and where that cannot be, a sentence instead of an end."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from tuning.jobs import folders
from tuning.jobs.health import problems
from tuning.jobs.jobs import Jobs
from tuning.jobs.store import Store


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_their_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    monkeypatch.setenv("ESPALIER_HOME", str(home))
    assert folders.problem() == ""
    for folder in (folders.data_folder(), folders.uploads_folder(), folders.jobs_folder()):
        assert mode(folder) == 0o700


def test_a_home_that_cannot_be_written_is_a_sentence_and_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "espalier"
    monkeypatch.setenv("ESPALIER_HOME", str(home))
    said = folders.problem()
    assert str(home) in said and "ESPALIER_HOME" in said
    lent = folders.data_folder()
    assert lent == folders.data_folder() and mode(lent) == 0o700
    assert Store().entries() == [] and Jobs().active() == []


def test_health_writes_and_starts_what_a_worker_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path))
    monkeypatch.setattr("tuning.jobs.health._KEPT_S", -1.0)
    assert problems() == []
    monkeypatch.setattr("tuning.jobs.health.WORKER", "tuning.no_worker")
    assert any("no worker starts" in said and "no_worker" in said for said in problems())
    (tmp_path / "history.sqlite").write_bytes(b"broken" * 1000)
    assert any("history.sqlite" in said for said in problems())


def test_a_network_file_system_has_a_rollback_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = f"x / ext4 rw 0 0\nlab:/x {tmp_path}/n\\\\040fs nfs4 rw 0 0\n".replace("\\\\", "\\")
    read = Path.read_text

    def told(path: Path, **how: Any) -> str:
        return mounts if str(path) == "/proc/mounts" else read(path, **how)

    monkeypatch.setattr(Path, "read_text", told)
    for name, network in (("n fs", True), ("here", False), ("n fs 2", False)):
        path = tmp_path / name / "history.sqlite"
        path.parent.mkdir()
        assert folders.on_network(path) is network
        Store(path)
        db = sqlite3.connect(path)
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == ("delete" if network else "wal")
        db.close()
