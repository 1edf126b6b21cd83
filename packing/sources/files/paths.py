"""Which files a path, a glob or a folder names, inside the folders a person allowed.

Notable:
- links are resolved before they are compared with the allowed folders
- archives and pickles are refused: nothing is unpacked and no code in data is run
- a folder of mixed formats is read in the format that has the most bytes
- a file without an ending is known by its first bytes
"""

from __future__ import annotations

import codecs
import difflib
import glob
import io
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from packing.sources.errors import SourceError, Where

FORMATS = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".jsonlines": "jsonl",
    ".ndjson": "jsonl",
    ".traj": "json",
    ".eval": "eval",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".npz": "npz",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz")
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".npy", ".bin", ".safetensors")
READABLE = "JSON, JSONL (also .gz, .zst), Parquet, Arrow, CSV, .npz or .eval"
MAX_FILES = 100_000


@dataclass(frozen=True)
class SourceFile:
    """One file to read: on disk, or the bytes of an upload.

    name: as shown in messages (relative to the folder that was given)
    """

    name: str
    path: Path | None = None
    data: bytes | None = field(default=None, repr=False)

    def open(self) -> BinaryIO:
        """The raw bytes from the start. Raises SourceError where the file cannot be opened."""
        if self.path is None:
            return io.BytesIO(self.data or b"")
        try:
            return self.path.open("rb")
        except OSError as error:
            raise Where(self.name).error(
                f"cannot be opened ({error.strerror})", "check that it is there and readable"
            ) from None

    @property
    def size(self) -> int:
        """Bytes on disk, compressed as they are."""
        return len(self.data or b"") if self.path is None else self.path.stat().st_size

    @property
    def suffixes(self) -> tuple[str, str | None]:
        """(suffix of the format, compression or None), lower case."""
        parts = [s.lower() for s in Path(self.name).suffixes]
        compression = COMPRESSIONS.get(parts[-1]) if parts else None
        if compression:
            parts = parts[:-1]
        return (parts[-1] if parts else ""), compression

    @property
    def format(self) -> str:
        """json, jsonl, parquet, arrow, csv or npz. Raises SourceError for what is not read."""
        suffix, compression = self.suffixes
        if suffix in ARCHIVES:
            raise Where(self.name).error(
                "is an archive, and archives are not unpacked here",
                "unpack it and give the folder",
            )
        if suffix in PICKLES:
            raise Where(self.name).error(
                f"{suffix} files may run code or have no rows in them",
                f"save the rows as {READABLE}",
            )
        kind = FORMATS.get(suffix, "json" if compression else None)
        if kind is None and not suffix:
            kind = self._by_first_bytes()
        if kind is None:
            raise Where(self.name).error(
                f"a file ending in '{suffix}' is not read", f"give {READABLE}"
            )
        if compression and kind not in ("json", "jsonl", "csv"):
            raise Where(self.name).error(
                f"{kind} inside {compression} is not read",
                f"unpack it: {kind} has its own compression",
            )
        return kind

    def _by_first_bytes(self) -> str | None:
        """The format of a file without an ending, or None where it shows none that is read."""
        with self.open() as raw:
            head = raw.read(64)
        if head[:4] == b"PAR1":
            return "parquet"
        if head[:6] == b"ARROW1":
            return "arrow"
        return "json" if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[") else None


def find_files(
    location: str,
    allowed_roots: Sequence[Path] | None = None,
    others: list[str] | None = None,
) -> list[SourceFile]:
    """The files named by a path, glob or folder, in natural order (``part-2`` before ``part-10``).

    allowed_roots: folders that files must lie in once links are followed; None: anywhere that
                   this process may read (the command line runs as the person who typed the path)
    others:        takes the names of a folder's files that are not among those returned

    Raises SourceError for nothing found, a file outside, or no file in a format that is read.
    """
    base = Path(location).expanduser()
    if re.search(r"[*?\[]", location) and not _exists(base, location, allowed_roots):
        check_allowed(_fixed(base), location, allowed_roots)  # before the disk is walked
        paths = [Path(p) for p in glob.glob(str(base), recursive=True)]
        for path in paths:
            check_allowed(path, location, allowed_roots)
        files = [SourceFile(str(p), p) for p in paths if p.is_file()]
        if not files:
            raise Where(location).error("no file matches", "check the pattern")
        return sorted(files, key=_natural)
    check_allowed(base, location, allowed_roots)
    if not base.exists():
        raise Where(location).error("does not exist", _nearest(base))
    if base.is_dir():
        return _folder(base, location, allowed_roots, others)
    if not stat.S_ISREG(base.stat().st_mode):
        raise Where(location).error("is not a regular file", "give a file, a folder or a glob")
    return [SourceFile(base.name, base)]


def check_allowed(path: Path, shown_as: str, allowed_roots: Sequence[Path] | None) -> None:
    """Raises SourceError where ``path``, links followed, lies outside every allowed folder."""
    if allowed_roots is None:
        return
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        raise Where(shown_as).error("its links lead in a circle", "give the file itself") from None
    if not any(_inside(real, root.resolve()) for root in allowed_roots):
        folders = ", ".join(str(root) for root in allowed_roots)
        raise Where(shown_as).error(
            "lies outside the folders that may be read", f"copy it into one of them: {folders}"
        )


def _inside(path: Path, root: Path) -> bool:
    """Whether a path lies in a folder, and not in what a dot hides there."""
    return path.is_relative_to(root) and not any(
        part.startswith(".") for part in path.relative_to(root).parts
    )


def _fixed(pattern: Path) -> Path:
    """The folder that a glob starts in; the root of all where it goes up again behind a ``*``."""
    parts = pattern.parts
    first = next(i for i, part in enumerate(parts) if re.search(r"[*?\[]", part))
    return Path("/") if ".." in parts[first:] else Path(*parts[:first])


def _exists(path: Path, shown_as: str, allowed_roots: Sequence[Path] | None) -> bool:
    """Whether it is there, asked only of what may be read: nobody learns what lies elsewhere."""
    try:
        check_allowed(path, shown_as, allowed_roots)
    except SourceError:
        return False
    return path.exists()


def _folder(
    base: Path,
    location: str,
    allowed_roots: Sequence[Path] | None,
    left: list[str] | None,
) -> list[SourceFile]:
    by_format: dict[str, list[SourceFile]] = {}
    seen, others = 0, []
    for folder, subfolders, names in os.walk(base):
        subfolders[:] = [s for s in subfolders if not s.startswith((".", "__"))]
        for name in names:
            seen += 1
            if seen > MAX_FILES:
                raise Where(location).error(
                    f"holds more than {MAX_FILES:,} files", "give the folder of the rollouts only"
                )
            path = Path(folder) / name
            file = SourceFile(str(path.relative_to(base)), path)
            if name.startswith(".") or not path.is_file():
                continue
            check_allowed(path, f"{location}: {file.name}", allowed_roots)
            try:
                by_format.setdefault(file.format.removesuffix("l"), []).append(file)
            except SourceError:
                others.append(file.name)
    if not by_format:
        found = f"{len(others)} others, such as {others[0]}" if others else "no files"
        raise Where(location).error(f"the folder has no file to read ({found})", f"give {READABLE}")
    chosen = max(by_format.values(), key=lambda files: sum(f.size for f in files))
    if left is not None:
        left += sorted(others)
        left += sorted(f.name for files in by_format.values() for f in files if files is not chosen)
    return sorted(chosen, key=_natural)


def _natural(file: SourceFile) -> list[tuple[int, int, str]]:
    pieces = re.split(r"(\d+)", file.name)
    return [(1, int(p), "") if p.isdecimal() else (0, 0, p) for p in pieces]


def _nearest(path: Path) -> str:
    try:
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / close[0]}" if close else "check the path"
