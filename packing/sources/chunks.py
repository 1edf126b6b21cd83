"""Records in chunks: what every file format is read as, before roles and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from packing.sources.errors import Where

Record = dict[str, Any]


@dataclass(frozen=True)
class Chunk:
    """Consecutive records of one file.

    file:      its name in messages
    first_row: number of ``records[0]`` in that file, from 0
    lines:     line of each record, from 1, or None where the format has no lines
    fraction:  how much of the file is read after this chunk, 0 … 1
    numbers:   of each record in the file, where they are not ``first_row, first_row + 1, …``
    """

    file: str
    first_row: int
    records: list[Record]
    lines: list[int] | None
    fraction: float
    numbers: list[int] | None = None

    def where(self, i: int) -> Where:
        """The place of ``records[i]``."""
        number = self.numbers[i] if self.numbers else self.first_row + i
        return Where(self.file, number, self.lines[i] if self.lines else None)

    def followed_by(self, other: Chunk) -> Chunk:
        """The records of both, each at its own number, under the name of the first file."""
        records = [*self.records, *other.records]
        numbers = [c.where(i).row or 0 for c in (self, other) for i in range(len(c.records))]
        lines = [*self.lines, *other.lines] if self.lines and other.lines else None
        return Chunk(self.file, self.first_row, records, lines, other.fraction, numbers)

    def only(self, kept: Sequence[int], records: list[Record]) -> Chunk:
        """``records`` at the places of the ``kept`` ones of this chunk."""
        rows = [self.numbers[i] if self.numbers else self.first_row + i for i in kept]
        lines = [self.lines[i] for i in kept] if self.lines else None
        return Chunk(self.file, self.first_row, records, lines, self.fraction, rows)

    def sliced(self, start: int, stop: int) -> Chunk:
        """Records ``start`` to ``stop`` of this chunk, at their own places."""
        lines = self.lines[start:stop] if self.lines else None
        numbers = self.numbers[start:stop] if self.numbers else None
        records = self.records[start:stop]
        return Chunk(self.file, self.first_row + start, records, lines, self.fraction, numbers)


def ranged(chunks: Iterator[Chunk], start: int, limit: int | None) -> Iterator[Chunk]:
    """The records ``start … start + limit`` over all files."""
    seen, stop = 0, None if limit is None else start + limit
    for chunk in chunks:
        low = max(0, start - seen)
        high = len(chunk.records) if stop is None else min(len(chunk.records), stop - seen)
        seen += len(chunk.records)
        if low < high:
            yield chunk.sliced(low, high)
        if stop is not None and seen >= stop:
            return
