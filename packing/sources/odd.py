"""Records that no row can be made of: the load stops at the first, or lists what it left out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from packing.sources.errors import SourceError, Where

KEPT = 1000
KEPT_CHARACTERS = 20_000


@dataclass(frozen=True)
class OddRecord:
    """A record that was left out: where it stands, why, and (cut) what it is."""

    file: str
    row: int | None
    line: int | None
    why: str
    record: str


@dataclass
class OddRecords:
    """Those left out; ``allowed`` is off by default, then the first one stops the load.

    count: all of them; ``kept`` holds the first KEPT
    """

    allowed: bool = False
    count: int = 0
    kept: list[OddRecord] = field(default_factory=list)

    def take(self, error: SourceError, where: Where, record: Any) -> None:
        """Leave a record out. Raises the error itself where that was not asked for."""
        if not self.allowed:
            raise error
        self.count += 1
        if len(self.kept) < KEPT:
            text = record if isinstance(record, str) else json.dumps(record, default=str)
            made = OddRecord(where.file, where.row, where.line, str(error), text[:KEPT_CHARACTERS])
            self.kept.append(made)
