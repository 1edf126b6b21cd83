"""Tokenised rows on disk, by content: a second load of the same takes seconds.

Notable:
- the key is the content of the files, the spec, and the tokenizer: a changed byte is a new entry
- files that have not changed since a load of theirs are not read to find its entry
- plain ``.npy`` arrays, mapped into memory, and one JSON file: no pickle
- the folder keeps CACHE_BYTES at most; what was not used for longest goes first
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.sources.errors import LoadCancelled
from packing.sources.files.paths import SourceFile

FORMAT = 4
CACHE_BYTES = 8 << 30
HASH_BLOCK = 8 << 20
SETTLED_NS = 1_000_000_000

Arrays = Mapping[str, npt.NDArray[Any]]
# How a file is told from what it was: place, size, times of its content and entry, its number.
Told = tuple[str, int, int, int, int]
_known_digests: dict[Told, str] = {}


def cache_folder() -> Path:
    """``ESPALIER_CACHE``, or the folder for caches of this system's user."""
    import platformdirs

    return Path(os.environ.get("ESPALIER_CACHE") or platformdirs.user_cache_dir("espalier"))


def content_digest(
    files: Sequence[SourceFile],
    progress: Callable[[float], None],
    cancelled: Callable[[], bool],
) -> str:
    """16 hex digits over the names and bytes of files; a file unchanged since is not read again.

    progress: told the fraction of bytes that were read
    """
    total, done = max(1, sum(f.size for f in files)), 0
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        known = None
        if file.path is not None:
            known = _told(file.path)
        if known is None or known not in _known_digests:
            one = hashlib.blake2b(digest_size=16)
            with file.open() as raw:
                while block := raw.read(HASH_BLOCK):
                    one.update(block)
                    done += len(block)
                    progress(min(1.0, done / total))
                    if cancelled():
                        raise LoadCancelled
            found = one.hexdigest()
            if known:
                _known_digests[known] = found
        else:
            found = _known_digests[known]
        digest.update(f"{file.name}\0{found}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def seen_key(spec: Mapping[str, object], names: Sequence[str], files: Sequence[Path]) -> str | None:
    """What a load of these files is remembered by; None where one was written a moment ago.

    names: of files beside them, which the result lists
    """
    told = [_told(f) for f in files]
    # One that is written twice within a tick of the clock looks the same.
    settled = all(time.time_ns() - changed > SETTLED_NS for _, _, changed, *_ in told)
    return entry_key(dict(spec), list(names), told) if settled else None


def _told(file: Path) -> Told:
    s = file.stat()
    return str(file.resolve()), s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino


def read_seen(seen: str) -> str | None:
    """The entry that a load with this ``seen_key`` ended in, or None."""
    try:
        text = (cache_folder() / "seen" / seen).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return text if re.fullmatch("[0-9a-f]{32}", text) else None


def write_seen(seen: str, key: str) -> None:
    with contextlib.suppress(OSError):  # it costs only the next load
        folder = cache_folder() / "seen"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / seen).write_text(key, encoding="ascii")


def entry_key(*parts: object) -> str:
    """32 hex digits over whatever decides the rows."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def read_entry(
    key: str, kept: Path | None = None
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]] | None:
    """(arrays, meta) of an entry, or None; a broken entry is removed.

    kept: the folder of the cache, where it is not this process's own
    """
    folder = (kept or cache_folder()) / "rows" / key
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        arrays = {
            name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
            for name in meta["arrays"]
        }
        with contextlib.suppress(OSError):
            os.utime(folder / "meta.json")
        return arrays, dict(meta["meta"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        shutil.rmtree(folder, ignore_errors=True)
        return None


def write_entry(key: str, arrays: Arrays, meta: Mapping[str, Any]) -> bool:
    """Keep an entry; False where the disk does not take it, which costs only the next load."""
    rows = cache_folder() / "rows"
    try:
        rows.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=rows, prefix="new-"))
    except OSError:
        return False
    try:
        for name, array in arrays.items():
            np.save(made / f"{name}.npy", array, allow_pickle=False)
        stored = {"arrays": list(arrays), "meta": dict(meta)}
        (made / "meta.json").write_text(json.dumps(stored), encoding="utf-8")
        made.rename(rows / key)
    except OSError:  # a full disk, or another process kept the same entry first
        shutil.rmtree(made, ignore_errors=True)
        return (rows / key).is_dir()
    _drop_oldest(rows)
    return True


def _drop_oldest(rows: Path) -> None:
    entries = []
    for folder in rows.iterdir():
        with contextlib.suppress(OSError):
            size = sum(f.stat().st_size for f in folder.iterdir())
            entries.append(((folder / "meta.json").stat().st_mtime, size, folder))
    total = sum(size for _, size, _ in entries)
    for _, size, folder in sorted(entries)[:-1]:
        if total <= CACHE_BYTES:
            break
        shutil.rmtree(folder, ignore_errors=True)
        total -= size
