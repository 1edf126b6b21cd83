"""Bytes of plain, gzip and zstandard files as one kind of stream; broken ones end in a sentence."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any, BinaryIO

import pyarrow as pa

from packing.sources.errors import SourceError, Where
from packing.sources.files.paths import SourceFile


class ByteCounter(io.RawIOBase):
    """A raw stream that counts what was read: progress through a compressed file."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self.read_bytes += len(data)
        return len(data)


class _Sentences(io.RawIOBase):
    """A decompressing stream whose faults are SourceErrors naming the file."""

    def __init__(self, inner: Any, name: str, kind: str, faults: tuple[type[Exception], ...]):
        self._inner, self._name, self._kind, self._faults = inner, name, kind, faults

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data: bytes = self._inner.read(len(buffer))
        except EOFError:
            raise self._error("ends too early: it was cut off") from None
        except self._faults as error:
            raise self._error(f"is not readable as {self._kind} ({error})") from None
        buffer[: len(data)] = data
        return len(data)

    def _error(self, what: str) -> SourceError:
        return Where(self._name).error(
            f"the compressed file {what}",
            "copy it again, or take the ending off its name if it is not compressed",
        )


def decompressed(counter: ByteCounter, file: SourceFile) -> io.BufferedReader[Any]:
    """The file's content by the ending of its name, with ``peek`` and ``readline``."""
    _, compression = file.suffixes
    buffered: io.BufferedReader[Any] = io.BufferedReader(counter, 1 << 18)
    if compression is None:
        return buffered
    if compression == "gzip":
        inner: Any = gzip.GzipFile(fileobj=buffered, mode="rb")
        faults: tuple[type[Exception], ...] = (OSError, zlib.error)
    else:
        # Arrow's reader says when a stream was cut off; the zstandard package ends silently.
        if buffered.peek(4)[:4] != b"\x28\xb5\x2f\xfd":
            raise Where(file.name).error(
                "the compressed file is not readable as zstandard (wrong first bytes)",
                "copy it again, or take the ending off its name if it is not compressed",
            )
        inner = pa.CompressedInputStream(pa.PythonFile(buffered, mode="r"), "zstd")
        faults = (OSError, pa.ArrowException)
    return io.BufferedReader(_Sentences(inner, file.name, compression, faults), 1 << 18)
