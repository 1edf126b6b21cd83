"""JSON lists and JSON lines as records, one record in memory at a time.

Notable:
- a JSON list is read element by element: a 2 GB file needs the memory of its longest record
- one record may have MAX_RECORD_BYTES (64 MiB, some 10 million tokens as ids); longer is refused
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from packing.sources.errors import Where, shown
from packing.sources.files.decompress import ByteCounter, decompressed
from packing.sources.files.json_parse import (
    DECODER,
    DuplicateKeyError,
    as_record,
    cut_off,
    decoded,
    parsed,
    syntax_error,
    value_error,
)
from packing.sources.files.paths import SourceFile
from packing.sources.files.records import CHUNK_BYTES, CHUNK_RECORDS, Chunk, Record

MAX_RECORD_BYTES = 64 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
# A cut-off literal or escape is at most this long: `-Infinity`, `\ud83d\ude00`.
_LONGEST_CUT = 16


def json_chunks(file: SourceFile) -> Iterator[Chunk]:
    """Records of a JSON list, of JSON lines, or of one JSON object, whichever the file holds.

    Raises SourceError naming file, row, line and column at the first that is not a record.
    """
    with file.open() as raw:
        counter = ByteCounter(raw)
        stream = decompressed(counter, file)
        head = stream.peek(64 << 10)
        _check_encoding(head, file.name)
        start = head.removeprefix(codecs.BOM_UTF8).lstrip()
        if start[:1] == b"[":
            found = _list_records(stream, file.name)
        elif start[:1] == b"{" and file.format == "json" and not _first_line_is_record(head):
            found = _document_records(stream, file.name)
        else:
            found = _line_records(stream, file.name)
        yield from _chunked(found, file, counter)


def _chunked(
    found: Iterator[tuple[Record, int, int]], file: SourceFile, counter: ByteCounter
) -> Iterator[Chunk]:
    records: list[Record] = []
    lines: list[int] = []
    first, size, total = 0, 0, max(file.size, 1)
    for record, line, length in found:
        records.append(record)
        lines.append(line)
        size += length
        if size >= CHUNK_BYTES or len(records) >= CHUNK_RECORDS:
            yield Chunk(file.name, first, records, lines, min(1.0, counter.read_bytes / total))
            first, records, lines, size = first + len(records), [], [], 0
    if records or first == 0:
        yield Chunk(file.name, first, records, lines, 1.0)


def _line_records(stream: BinaryIO, name: str) -> Iterator[tuple[Record, int, int]]:
    row = 0
    for line in range(1, 1 << 62):
        raw = stream.readline(MAX_RECORD_BYTES + 1)
        if not raw:
            return
        where = Where(name, row, line)
        if len(raw) > MAX_RECORD_BYTES:
            raise where.error(
                f"the line is longer than {MAX_RECORD_BYTES >> 20} MiB",
                "write one record a line, or save the rows as Parquet",
            )
        if line == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if not raw.strip():
            continue
        # Without the line break: an error at the end is on this line, not on the next.
        text = decoded(raw, where).rstrip("\r\n")
        yield (
            as_record(parsed(text, where, last=not raw.endswith(b"\n")), text, where),
            line,
            len(raw),
        )
        row += 1


def _list_records(stream: BinaryIO, name: str) -> Iterator[tuple[Record, int, int]]:
    """Elements of ``[{…}, {…}]`` from a buffer that is filled when an element is cut off."""
    feed = _TextFeed(stream, name)
    buffer, at, line, row, read = feed.more(), 0, 1, 0, CHUNK_BYTES
    at = _SPACE.match(buffer, 0).end() + 1  # type: ignore[union-attr]
    line += buffer.count("\n", 0, at)
    wants_comma = False
    while True:
        where = Where(name, row, line)
        after = _SPACE.match(buffer, at).end()  # type: ignore[union-attr]
        line += buffer.count("\n", at, after)
        at = after
        where = Where(name, row, line)
        if at >= len(buffer):
            buffer, at = feed.more(), 0
            if not buffer:
                raise where.error("the file ends inside the list", "write it again, to its end ']'")
            continue
        if buffer[at] == "]":
            rest = buffer[at + 1 :] + feed.rest(1 << 16)
            if rest.strip():
                raise where.error(
                    f"after the end of the list comes {shown(rest.strip()[:20])}",
                    "keep one list in a file, or write one record a line",
                )
            return
        if wants_comma:
            if buffer[at] != ",":
                raise where.error(
                    f"{shown(buffer[at])} stands where a comma or ']' should be",
                    "repair the JSON there",
                )
            at, wants_comma = at + 1, False
            continue
        try:
            value, end = DECODER.raw_decode(buffer, at)
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated") or error.pos >= len(buffer) - _LONGEST_CUT
            if cut and len(buffer) - at <= MAX_RECORD_BYTES:
                more = feed.more(read)
                buffer, at = buffer[at:] + more, 0
                read = min(read * 2, MAX_RECORD_BYTES)
                if more:
                    continue
                if cut_off(error):
                    raise where.error(
                        "the file ends inside this record", "write it again, to its end ']'"
                    ) from None
            elif cut:
                raise where.error(
                    f"the record is longer than {MAX_RECORD_BYTES >> 20} MiB, or a quote is "
                    "not closed",
                    "repair the JSON there, or save the rows as Parquet",
                ) from None
            raise syntax_error(error, where, line + buffer.count("\n", at, error.pos)) from None
        except (DuplicateKeyError, RecursionError, ValueError) as error:
            raise value_error(error, where) from None
        text, read = buffer[at:end], CHUNK_BYTES
        yield as_record(value, text, where), line, len(text)
        line += text.count("\n")
        at, row, wants_comma = end, row + 1, True


def _document_records(stream: BinaryIO, name: str) -> Iterator[tuple[Record, int, int]]:
    """One object over many lines: a record, or a wrapper around one list of records."""
    where = Where(name, 0, 1)
    raw = stream.read(MAX_RECORD_BYTES + 1)
    if len(raw) > MAX_RECORD_BYTES:
        raise where.error(
            f"one JSON object of more than {MAX_RECORD_BYTES >> 20} MiB is not read",
            "write a JSON list of records, or one record a line (.jsonl)",
        )
    text = decoded(raw.removeprefix(codecs.BOM_UTF8), where)
    value = as_record(parsed(text, where), text, where)
    lists = [v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
    others = [v for v in value.values() if isinstance(v, list | dict) and v not in lists]
    inside = lists[0] if len(lists) == 1 and not others else [value]
    if any(isinstance(m, dict) and ("role" in m or "from" in m) for m in inside[:1]):
        inside = [value]  # the list is a conversation, not a list of records
    for row, record in enumerate(inside):
        if not isinstance(record, dict):
            raise Where(name, row).error(f"is {shown(record)}, not an object", "remove it")
        yield record, 1, len(raw) // len(inside)


class _TextFeed:
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

    def rest(self, size: int) -> str:
        return self.more(size)


def _check_encoding(head: bytes, name: str) -> None:
    if not head:
        raise Where(name).error("the file is empty", "give a file with rows")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Where(name, 0, 1).error("the file is UTF-16", "save it as UTF-8")


def _first_line_is_record(head: bytes) -> bool:
    line, newline, rest = head.removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")
    if not newline:
        return len(head) >= 64 << 10  # longer than what was looked at: a line of JSON lines
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return bool(rest.strip())
