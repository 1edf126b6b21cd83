"""Loaded: rows with everything that is known of where they come from, kept and taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.rows import Rows
from packing.sources import cache
from packing.sources.build import ORIGINS, PER_ROW, Built
from packing.sources.chat.tokenizer import Tokenizer
from packing.sources.columns import Column
from packing.sources.odd import OddRecord
from packing.sources.problems import Oddity, problems
from packing.sources.roles import Roles
from packing.sources.spec import SourceSpec

PREVIEW_ROWS = 3
PREVIEW_TOKENS = 400
_OF_ROWS = ("tokens", "offsets", "group", "loss_mask")


@dataclass(frozen=True)
class Provenance:
    """What the rows were made from, so that the same rows can be made again.

    content: 16 hex digits over the bytes of the files (or of the rows, where nothing is in files)
    notes:   sentences a person should read beside the numbers
    grouped_by:       what makes a group, in words
    left_out_files:   files of a folder that hold no such rows
    left_out_records: odd records that were left out
    left_out_groups:  groups that AReaL would drop, by kind, whether they were left out or not
    """

    source: str
    format: str
    files: int
    bytes: int
    content: str
    revision: str | None
    records: int
    tokenizer: str | None
    tokenizer_fingerprint: str | None
    notes: tuple[str, ...] = ()
    grouped_by: str = ""
    left_out_files: tuple[str, ...] = ()
    left_out_records: int = 0
    left_out_groups: Mapping[str, int] = field(default_factory=dict)
    from_cache: bool = False


@dataclass(frozen=True)
class PrefixReport:
    """Whether the chat template keeps prefixes; ``lost_tokens`` are computed a second time."""

    conversations: int
    turns: int
    broken: int
    first: str | None
    lost_tokens: int


@dataclass(frozen=True)
class PreviewRow:
    """The first tokens of a row as text, with whether each is trained on."""

    row: int
    tokens: tuple[str, ...]
    trained: tuple[bool, ...]
    length: int


@dataclass(frozen=True, eq=False)
class Loaded(Built):
    """Rows, and everything a page or a report says about where they come from.

    roles, columns: the roles in use, and what they could be given to
    prefix:         of conversations; None where there were none of two turns
    odd:            records that were left out because no row can be made of them
    """

    spec: SourceSpec
    provenance: Provenance
    roles: Roles
    columns: tuple[Column, ...]
    preview: tuple[PreviewRow, ...]
    prefix: PrefixReport | None
    odd: tuple[OddRecord, ...]

    @cached_property
    def problems(self) -> tuple[Oddity, ...]:
        """What is odd about the rows, the most frequent first."""
        return problems(self.flags)

    @property
    def simulated(self) -> bool:
        """Whether completions were made up."""
        return self.spec.simulate is not None

    @property
    def origin_counts(self) -> dict[str, int]:
        """Rows by where their tokens come from, in words; only what occurs."""
        counts = np.bincount(self.origins, minlength=len(ORIGINS))
        return {words: int(counts[o]) for o, words in ORIGINS.items() if counts[o]}


def preview_of(rows: Rows, tokenizer: Tokenizer | None) -> tuple[PreviewRow, ...]:
    """The first PREVIEW_ROWS rows."""
    out = []
    for row in range(min(PREVIEW_ROWS, len(rows))):
        ids = rows[row][:PREVIEW_TOKENS]
        start = int(rows.offsets[row])
        mask = rows.loss_mask[start : start + len(ids)] if rows.loss_mask is not None else None
        pieces = tokenizer.tokens_text(ids) if tokenizer else [str(t) for t in ids.tolist()]
        trained = [False] * len(ids) if mask is None else (mask != 0).tolist()
        out.append(PreviewRow(row, tuple(pieces), tuple(trained), int(rows.lengths[row])))
    return tuple(out)


def keep(key: str, loaded: Loaded) -> None:
    """Put a load into the cache."""
    arrays = {name: getattr(loaded.rows, name) for name in _OF_ROWS}
    arrays |= {name: getattr(loaded, name) for name in PER_ROW}
    meta = {
        "provenance": asdict(loaded.provenance),
        "roles": loaded.roles.pairs,
        "columns": [asdict(c) for c in loaded.columns],
        "role_tokens": dict(loaded.role_tokens),
        "prefix": asdict(loaded.prefix) if loaded.prefix else None,
        "odd": [asdict(o) for o in loaded.odd],
    }
    cache.write_entry(key, {k: v for k, v in arrays.items() if v is not None}, meta)


def restored(
    arrays: dict[str, npt.NDArray[Any]],
    meta: dict[str, Any],
    spec: SourceSpec,
    tokenizer: Tokenizer | None,
) -> Loaded:
    """What ``keep`` put into the cache, under the names that this load gives."""
    of_rows: dict[str, Any] = {name: arrays.get(name) for name in _OF_ROWS}
    rows = Rows(**of_rows, decoder=tokenizer.decode if tokenizer else None)
    known: dict[str, Any] = {name: arrays.get(name) for name in PER_ROW}
    stored = meta["provenance"] | {
        "source": spec.location,
        "tokenizer": tokenizer.name if tokenizer else None,
        "notes": tuple(meta["provenance"]["notes"]),
        "left_out_files": tuple(meta["provenance"]["left_out_files"]),
        "from_cache": True,
    }
    return Loaded(
        rows=rows,
        **known,
        role_tokens=meta["role_tokens"],
        spec=spec,
        provenance=Provenance(**stored),
        roles=Roles(tuple((role, path) for role, path in meta["roles"])),
        columns=tuple(Column(**c) for c in meta["columns"]),
        preview=preview_of(rows, tokenizer),
        prefix=PrefixReport(**meta["prefix"]) if meta["prefix"] else None,
        odd=tuple(OddRecord(**o) for o in meta["odd"]),
    )
