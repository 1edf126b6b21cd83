"""How the records of an opened source are read: their layout, roles, and values, decided once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packing.sources.chunks import Chunk, Record
from packing.sources.errors import SourceError
from packing.sources.files.opened import Opened
from packing.sources.layouts.known import Layout, layout_of
from packing.sources.odd import OddRecords
from packing.sources.records.gathered import Gathering, gathering_of
from packing.sources.records.values import Values
from packing.sources.role_names import CONTENT
from packing.sources.roles import Roles, resolve
from packing.sources.spec import SourceSpec

RECOGNISED_FROM = 100


@dataclass(frozen=True)
class Reading:
    """What the first records decide for all.

    gathering: of records that are messages, or None where each is rows of its own
    layout:    of a known tool, or None where columns are what they are
    head:      the first records, in that layout
    """

    opened: Opened
    gathering: Gathering | None
    layout: Layout | None
    roles: Roles
    values: Values
    head: Sequence[Record]

    @property
    def format(self) -> str:
        """Of the files, and of the records in them, for people."""
        return self.opened.format + (f" ({self.layout.name})" if self.layout else "")

    def notes(self) -> list[str]:
        """What a person should know of how the records are read."""
        packed = [f"'{p}' is {kind} written as JSON text" for p, kind in self.values.packed.items()]
        said = [f"Column {', '.join(packed)}."] if packed else []
        said += [self.gathering.note] if self.gathering and self.gathering.chat else []
        return said + ([self.layout.note] if self.layout and self.layout.note else [])

    def chunks(self, odd: OddRecords) -> Iterator[Chunk]:
        """All records as the expander takes them; what cannot be read goes to ``odd``."""
        wanted = None if self.layout or self.gathering else sorted(self.roles.columns)
        chunks = self.opened.chunks(wanted, odd)
        for chunk in self.gathering.chunks(chunks, odd) if self.gathering else chunks:
            yield self._read(self.layout.chunk(chunk) if self.layout else chunk, odd)

    def _read(self, chunk: Chunk, odd: OddRecords) -> Chunk:
        kept, records = [], []
        for i, record in enumerate(chunk.records):
            try:
                records.append(self.values.record(record, chunk.where(i)))
                kept.append(i)
            except SourceError as error:
                odd.take(error, chunk.where(i), record)
        return chunk.only(kept, records)


def reading_of(spec: SourceSpec, opened: Opened) -> Reading:
    """Raises SourceError where the first records hold no rows, or not the roles that are given."""
    first = opened.peek(RECOGNISED_FROM, OddRecords(spec.leave_out_odd))
    layout = gathering = None
    if opened.roles is None and not any(role in CONTENT for role, _ in spec.roles):
        gathering = gathering_of(first.records, spec.speakers)
        if gathering:
            first = next(gathering.chunks(iter([first]), OddRecords(True)))
        layout = layout_of(first.records)
    head = (layout.chunk(first) if layout else first).records[:RECOGNISED_FROM]
    if opened.roles is None:
        roles = resolve(head, spec.roles, opened.label)
    else:
        given = {role for role, _ in spec.roles}
        if given & set(CONTENT):
            given |= set(CONTENT)
        roles = Roles(tuple(p for p in opened.roles if p[0] not in given) + spec.roles)
    values = Values(roles, head, spec.speakers)
    if not opened.raw:  # a dump's texts are what an engine wrote
        head = [values.record(r, first.where(0)) for r in head]
    return Reading(opened, gathering, layout, roles, values, head)
