"""JSON lists, JSON lines and wrappers around lists as records, one record in memory at a time.

Notable:
- a JSON list is read element by element: a 2 GB file needs the memory of its longest record, also
  where the list stands inside an object
- one record may have MAX_RECORD_BYTES (64 MiB, some 10 million tokens as ids); longer is refused
- a list of chats is a record each
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from packing.sources import fields
from packing.sources.chunks import Chunk, Record
from packing.sources.dialects import is_conversation
from packing.sources.errors import SourceError, Where, shown
from packing.sources.files.decompress import ByteCounter, decompressed
from packing.sources.files.json_parse import as_record, decoded, parsed
from packing.sources.files.json_scan import Scanner
from packing.sources.files.paths import SourceFile
from packing.sources.files.records import CHUNK_BYTES, CHUNK_RECORDS
from packing.sources.layouts.known import layout_of
from packing.sources.odd import OddRecords
from packing.sources.role_names import CONTENT
from packing.sources.roles import recognise

MAX_RECORD_BYTES = 64 << 20
# A member of a wrapper that is longer than this is gone into, not decoded whole.
MEMBER_BYTES = 1 << 20
DEPTH = 4

Found = Iterator[tuple[Record, int, int]]


def json_chunks(file: SourceFile, odd: OddRecords | None = None) -> Iterator[Chunk]:
    """Records of a JSON list, of JSON lines, or of one JSON object, whichever the file holds.

    odd: takes what is no record, where that is allowed

    Raises SourceError naming file, row, line and column at the first that is not a record.
    """
    with file.open() as raw:
        counter = ByteCounter(raw)
        stream = decompressed(counter, file)
        head = stream.peek(64 << 10)
        _check_encoding(head, file.name)
        start = head.removeprefix(codecs.BOM_UTF8).lstrip()
        odd = odd or OddRecords()
        if start[:1] == b"[" and not (file.format == "jsonl" and _lines_of_lists(start)):
            found = _list_records(stream, file.name, odd)
        elif start[:1] == b"{" and (
            b"\n" not in start.rstrip()
            if file.format == "jsonl" and len(head) == file.size
            else file.format == "json" and not _first_line_is_record(head)
        ):
            found = _document_records(stream, file.name, odd)
        else:
            found = _line_records(stream, file.name, odd)
        yield from _chunked(found, file, counter)


def _chunked(found: Found, file: SourceFile, counter: ByteCounter) -> Iterator[Chunk]:
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


def as_records(value: Any, text: str, where: Where) -> list[Record]:
    """The records in one element: itself, a chat, or what a list of them holds."""
    if isinstance(value, list) and value:
        if is_conversation(value):
            return [as_record({"messages": value}, text, where)]
        if isinstance(value[0], Mapping | list) and not fields.is_ids(value[0]):
            return [r for v in value for r in as_records(v, text, where)]
    return [as_record(value, text, where)]


def _line_records(stream: BinaryIO, name: str, odd: OddRecords) -> Found:
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
        try:
            # Without the line break: an error at the end is on this line, not on the next.
            text = decoded(raw, where).rstrip("\r\n")
            value = parsed(text, where, last=not raw.endswith(b"\n"))
            found = as_records(value, text, where)
        except SourceError as error:
            odd.take(error, where, raw.decode("utf-8", "replace"))
            found = []
        for record in found:
            yield record, line, len(raw) // len(found)
        row += 1


def _list_records(stream: BinaryIO, name: str, odd: OddRecords) -> Found:
    """Elements of ``[{…}, {…}]``; the document ends with the list."""
    scanner = Scanner(stream, name, MAX_RECORD_BYTES)
    scanner.peek()
    yield from _elements(scanner, odd)
    rest = scanner.rest()
    if rest.strip():
        raise scanner.where.error(
            f"after the end of the list comes {shown(rest.strip()[:20])}",
            "keep one list in a file, or write one record a line",
        )


def _elements(scanner: Scanner, odd: OddRecords) -> Found:
    """Elements of the list that starts here, up to and with its end."""
    scanner.take()
    wants_comma = False
    while True:
        seen = scanner.peek()
        if not seen:
            raise scanner.where.error(
                "the file ends inside the list", "write it again, to its end ']'"
            )
        if seen == "]":
            scanner.take()
            return
        if wants_comma:
            if seen != ",":
                raise scanner.unexpected("a comma or ']'")
            scanner.take()
            wants_comma = False
            continue
        where = scanner.where
        value, text = scanner.value("]")
        try:
            found = as_records(value, text, where)
        except SourceError as error:
            odd.take(error, where, text)
            found = []
        for record in found:
            yield record, where.line or 1, len(text) // len(found)
        scanner.line += text.count("\n")
        scanner.row += 1
        wants_comma = True


# -- one object --------------------------------------------------------------------------------


def _document_records(stream: BinaryIO, name: str, odd: OddRecords) -> Found:
    """One object: a record, or a wrapper of any size around a list of records."""
    scanner = Scanner(stream, name, MAX_RECORD_BYTES)
    scanner.peek()
    if len(scanner.ahead(MAX_RECORD_BYTES + 1)) > MAX_RECORD_BYTES:
        yield from _of_long_wrapper(scanner, odd)
        return
    where = scanner.where
    text = scanner.ahead(MAX_RECORD_BYTES).removeprefix("\ufeff")
    value = as_record(parsed(text.rstrip(), where, last=True), text, where)
    yield from _decoded_records(unwrapped(value) or [value], len(text), name)


def _decoded_records(elements: list[Any], size: int, name: str) -> Found:
    """Records of a list that was decoded whole, from so many characters."""
    for row, element in enumerate(elements):
        for record in as_records(element, "", Where(name, row)):
            yield record, 1, size // len(elements)


def unwrapped(value: Record, depth: int = DEPTH) -> list[Any] | None:
    """The list of records that an object wraps; None where it is a record itself.

    Where it wraps several lists of one kind, those of all.
    """
    if layout_of([value], nested=False) or _holds_rows([value]):
        return None
    lists: list[list[Any]] = []
    for found in value.values() if depth else ():
        if isinstance(found, Mapping):
            found = unwrapped(dict(found), depth - 1) or (
                list(found.values()) if _are_rows(list(found.values())) else None
            )
        if isinstance(found, list) and _are_rows(found):
            lists.append(found)
    if lists:
        # All lists of one kind: of tasks by name, of splits.
        kind = _kind(max(lists, key=len))
        return [element for found in lists if _kind(found) == kind for element in found]
    by_name = list(value.values())
    return by_name if depth == DEPTH and len(by_name) > 1 and _are_rows(by_name) else None


def _kind(found: list[Any]) -> object:
    records = [r for r in found[:20] if isinstance(r, dict)]
    return {p for p in recognise(records) if p[0] in CONTENT} if records else "chats"


def _are_rows(found: list[Any]) -> bool:
    """Whether the elements of a list are records that hold rows, or chats."""
    heads = [r for v in found[:20] for r in (v if isinstance(v, list) else [v])][:20]
    if is_conversation(found):
        return False
    if found and all(is_conversation(v) for v in found[:20]):
        return True
    records = [r for r in heads if isinstance(r, dict)]
    if not records or len(records) < len(heads):
        return False
    return layout_of(records, nested=False) is not None or _holds_rows(records)


def _holds_rows(records: list[Record]) -> bool:
    return any(role in CONTENT and "*" not in path for role, path in recognise(records))


def _of_long_wrapper(scanner: Scanner, odd: OddRecords) -> Found:
    """Records of an object that is too long to decode whole: of its first long list or object.

    Where no member is long, those of the longest list of records inside the short ones.
    """
    short: list[Any] = []
    size = 0
    scanner.take()  # the brace
    while True:
        seen = scanner.peek()
        if seen == ",":
            scanner.take()
            continue
        if seen == "}" and short:
            yield from _decoded_records(short, size, scanner.where.file)
            return
        if seen in ("}", ""):
            raise scanner.where.error(
                f"one JSON object of more than {MAX_RECORD_BYTES >> 20} MiB is not read",
                "write a JSON list of records, or one record a line (.jsonl)",
            )
        key, _ = scanner.value("}")
        if not isinstance(key, str) or scanner.peek() != ":":
            raise scanner.unexpected("':'")
        scanner.take()
        seen = scanner.peek()
        if seen in ("[", "{") and _is_long(scanner):
            if seen == "{":
                yield from _of_long_wrapper(scanner, odd)
            else:
                yield from _elements(scanner, odd)
            return
        value, text = scanner.value("}")
        inside = unwrapped({key: value}) or []
        if len(inside) > len(short):
            short, size = inside, len(text)


def _is_long(scanner: Scanner) -> bool:
    """Whether the value that starts here does not end within MEMBER_BYTES."""
    text = scanner.ahead(MEMBER_BYTES)
    if len(text) < MEMBER_BYTES:
        return False
    try:
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return True
    return False


def _check_encoding(head: bytes, name: str) -> None:
    if not head:
        raise Where(name).error("the file is empty", "give a file with rows")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Where(name, 0, 1).error("the file is UTF-16", "save it as UTF-8")


def _lines_of_lists(head: bytes) -> bool:
    """Whether lists stand one a line, rather than one list in the whole file."""
    line, newline, rest = head.partition(b"\n")
    if not newline or rest.lstrip()[:1] != b"[":
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _first_line_is_record(head: bytes) -> bool:
    line, newline, rest = head.removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")
    if not newline:
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return bool(rest.strip())
