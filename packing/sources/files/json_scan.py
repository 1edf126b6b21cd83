"""A JSON document read value by value: a buffer that is filled where a value is cut off.

Notable:
- places are kept on the way: every error names the row and the line it is in
- ijson does not do here: it names no place, takes the last of two equal keys and ``?`` for half a
  character in silence, and refuses NaN, which Python's own ``json`` writes
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any, BinaryIO

from packing.sources.errors import SourceError, Where, shown
from packing.sources.files.json_parse import (
    DECODER,
    DuplicateKeyError,
    cut_off,
    syntax_error,
    value_error,
)
from packing.sources.files.records import CHUNK_BYTES

_SPACE = re.compile(r"[ \t\r\n]*")
# A cut-off literal or escape is at most this long: `-Infinity`, `\ud83d\ude00`.
_LONGEST_CUT = 16


class TextFeed:
    """UTF-8 text of a stream in pieces, cut between characters."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name, self._read = stream, name, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")

    def more(self, size: int = CHUNK_BYTES) -> str:
        while True:
            raw = self._stream.read(size)
            first = self._read == 0
            try:
                text = self._decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                at = self._read + error.start
                raise Where(self._name).error(
                    f"byte {at} is not UTF-8 ({error.reason})", "save the file as UTF-8"
                ) from None
            self._read += len(raw)
            if first:
                text = text.removeprefix("\ufeff")
            if text or not raw:
                return text


class Scanner:
    """Goes through one document. ``row`` is the record that errors name.

    limit: characters of the longest value that is decoded whole
    """

    def __init__(self, stream: BinaryIO, name: str, limit: int) -> None:
        self._feed, self._name, self._limit = TextFeed(stream, name), name, limit
        self._buffer, self._at, self._read = self._feed.more(), 0, CHUNK_BYTES
        self.line, self.row = 1, 0

    @property
    def where(self) -> Where:
        """The record and line that is reached."""
        return Where(self._name, self.row, self.line)

    def peek(self) -> str:
        """The next character that is not space; empty at the end of the document."""
        while True:
            after = _SPACE.match(self._buffer, self._at).end()  # type: ignore[union-attr]
            self.line += self._buffer.count("\n", self._at, after)
            self._at = after
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            self._buffer, self._at = self._feed.more(), 0
            if not self._buffer:
                return ""

    def take(self) -> None:
        """Go past the character that ``peek`` saw."""
        self._at += 1

    def rest(self) -> str:
        """What follows, its first 64 KiB."""
        return self._buffer[self._at :] + self._feed.more(1 << 16)

    def ahead(self, characters: int) -> str:
        """The next characters, not taken."""
        while len(self._buffer) - self._at < characters and (more := self._feed.more()):
            self._buffer, self._at = self._buffer[self._at :] + more, 0
        return self._buffer[self._at : self._at + characters]

    def value(self, end: str) -> tuple[Any, str]:
        """(the next value, its text). ``end``: what closes the document, for messages."""
        while True:
            try:
                value, stop = DECODER.raw_decode(self._buffer, self._at)
                break
            except json.JSONDecodeError as error:
                self._fill_for(error, end)
            except (DuplicateKeyError, RecursionError, ValueError) as error:
                raise value_error(error, self.where) from None
        text, self._read = self._buffer[self._at : stop], CHUNK_BYTES
        self._at = stop
        return value, text

    def _fill_for(self, error: json.JSONDecodeError, end: str) -> None:
        """More text where a value is cut off; the error itself where it is not."""
        held = len(self._buffer) - self._at
        cut = error.msg.startswith("Unterminated") or error.pos >= len(self._buffer) - _LONGEST_CUT
        if cut and held <= self._limit:
            more = self._feed.more(self._read)
            line = self.line + self._buffer.count("\n", self._at, error.pos)
            self._buffer, self._at = self._buffer[self._at :] + more, 0
            self._read = min(self._read * 2, self._limit)
            if more:
                return
            if cut_off(error):
                raise self.where.error(
                    "the file ends inside this record", f"write it again, to its end '{end}'"
                ) from None
            raise syntax_error(error, self.where, line) from None
        if cut:
            raise self.too_long() from None
        line = self.line + self._buffer.count("\n", self._at, error.pos)
        raise syntax_error(error, self.where, line) from None

    def too_long(self) -> SourceError:
        return self.where.error(
            f"the record is longer than {self._limit >> 20} MiB, or a quote is not closed",
            "repair the JSON there, or save the rows as Parquet",
        )

    def unexpected(self, wanted: str) -> SourceError:
        return self.where.error(
            f"{shown(self.peek())} stands where {wanted} should be", "repair the JSON there"
        )
