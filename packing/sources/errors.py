"""Sentences for people: what is wrong with a source, where, and the smallest mend."""

from __future__ import annotations

from dataclasses import dataclass

from packing.sources.fields import type_name


class SourceError(ValueError):
    """A source cannot be read as rows; the message names file, row, field and the mend."""


class LoadCancelled(Exception):
    """The person who started the load asked for it to stop."""


@dataclass(frozen=True)
class Where:
    """A place in a source: a file (or dataset), a row of it, and for text its line.

    row:  counted from 0, as rows are everywhere else; None for the file as a whole
    line: counted from 1, as editors do; None where the file has no lines
    """

    file: str
    row: int | None = None
    line: int | None = None

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row}"
        line = (
            "" if self.line is None else (f" (line {self.line})" if row else f", line {self.line}")
        )
        return f"{self.file}{row}{line}"

    def error(self, what: str, mend: str, field: str | None = None) -> SourceError:
        """A SourceError in the one form all have: place, field, what is wrong; the mend."""
        at = f"{self}, field '{field}'" if field else str(self)
        return SourceError(f"{at}: {what}; {mend}.")

    def unlike(self, value: object, wanted: str, mend: str, field: str | None) -> SourceError:
        """A SourceError for a value of another type than is wanted."""
        return self.error(f"is {type_name(value)}, not {wanted}", mend, field)


def shown(value: object, width: int = 60) -> str:
    """A value for a message: one line of printable characters, cut after ``width``."""
    if isinstance(value, list | str) and len(value) > width:
        value = value[:width]  # no more than this can be shown, and it may be millions
        text = repr(value)
        return (text[:-1] if len(text) < width else text[: width - 1]) + "…"
    text = repr(value)
    return text if len(text) <= width else text[: width - 1] + "…"
