"""Loaded: rows with everything that is known of where they come from, kept and taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.rows import Rows
from packing.sources import cache
from packing.sources.build import ORIGINS, Built
from packing.sources.chat.tokenizer import Tokenizer
from packing.sources.odd import OddRecord
from packing.sources.problems import Oddity, problems
from packing.sources.roles import Column, Roles
from packing.sources.spec import SourceSpec

PREVIEW_ROWS = 3
PREVIEW_TOKENS = 400


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
class Loaded:
    """Rows, and everything a page or a report says about where they come from.

    roles, columns: the roles in use, and what they could be given to
    prompt_lengths: int64 ``(rows,)``, tokens before the first that is trained on, or None
    rewards:        float64 ``(rows,)`` with NaN for none, or None
    records:        int64 ``(rows,)``, number of the record each row comes from
    flags:          uint16 ``(rows,)``, bits of ``problems.Flag``: filter rows by a problem
    origins:        uint8 ``(rows,)``, of ``build.Origin``: where each row's tokens come from
    role_tokens:    tokens by who wrote them (system, user, assistant, tool, prompt, completion)
    odd:            records that were left out because no row can be made of them
    prefix:         of conversations; None where there were none of two turns
    simulated:      completions were made up
    """

    rows: Rows
    spec: SourceSpec
    provenance: Provenance
    roles: Roles
    columns: tuple[Column, ...]
    problems: tuple[Oddity, ...]
    preview: tuple[PreviewRow, ...]
    simulated: bool
    prompt_lengths: npt.NDArray[np.int64] | None
    rewards: npt.NDArray[np.float64] | None
    records: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint16]
    origins: npt.NDArray[np.uint8]
    role_tokens: Mapping[str, int]
    prefix: PrefixReport | None
    odd: tuple[OddRecord, ...] = ()

    @property
    def origin_counts(self) -> dict[str, int]:
        """Rows by where their tokens come from, in words; only what occurs."""
        counts = np.bincount(self.origins, minlength=len(ORIGINS))
        return {words: int(counts[o]) for o, words in ORIGINS.items() if counts[o]}


def _preview(rows: Rows, tokenizer: Tokenizer | None) -> tuple[PreviewRow, ...]:
    out = []
    for row in range(min(PREVIEW_ROWS, len(rows))):
        ids = rows[row][:PREVIEW_TOKENS]
        start = int(rows.offsets[row])
        mask = rows.loss_mask[start : start + len(ids)] if rows.loss_mask is not None else None
        pieces = tokenizer.tokens_text(ids) if tokenizer else [str(t) for t in ids.tolist()]
        trained = [False] * len(ids) if mask is None else (mask != 0).tolist()
        out.append(PreviewRow(row, tuple(pieces), tuple(trained), int(rows.lengths[row])))
    return tuple(out)


def assembled(
    rows: Rows,
    spec: SourceSpec,
    provenance: Provenance,
    roles: Roles,
    columns: tuple[Column, ...],
    built: Built,
    prefix: PrefixReport | None,
    tokenizer: Tokenizer | None,
    odd: tuple[OddRecord, ...] = (),
) -> Loaded:
    return Loaded(
        rows,
        spec,
        provenance,
        roles,
        columns,
        problems(built.flags),
        _preview(rows, tokenizer),
        spec.simulate is not None,
        built.prompt_lengths,
        built.rewards,
        built.records,
        built.flags,
        built.origins,
        built.role_tokens,
        prefix,
        odd,
    )


def keep(key: str, loaded: Loaded) -> None:
    rows = loaded.rows
    arrays: dict[str, npt.NDArray[Any] | None] = {
        "tokens": rows.tokens,
        "offsets": rows.offsets,
        "group": rows.group,
        "loss_mask": rows.loss_mask,
        "prompt_lengths": loaded.prompt_lengths,
        "rewards": loaded.rewards,
        "records": loaded.records,
        "flags": loaded.flags,
        "origins": loaded.origins,
    }
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
    rows = Rows(
        arrays["tokens"],
        arrays["offsets"],
        arrays["group"],
        arrays.get("loss_mask"),
        tokenizer.decode if tokenizer else None,
    )
    stored = meta["provenance"] | {
        "source": spec.location,
        "tokenizer": tokenizer.name if tokenizer else None,
        "notes": tuple(meta["provenance"]["notes"]),
        "left_out_files": tuple(meta["provenance"]["left_out_files"]),
        "from_cache": True,
    }
    built = Built(
        rows,
        arrays.get("prompt_lengths"),
        arrays.get("rewards"),
        arrays["records"],
        arrays["flags"],
        np.empty(0, dtype=np.float64),
        meta["role_tokens"],
        arrays["origins"],
    )
    roles = Roles(tuple((role, path) for role, path in meta["roles"]))
    columns = tuple(Column(**c) for c in meta["columns"])
    prefix = PrefixReport(**meta["prefix"]) if meta["prefix"] else None
    odd = tuple(OddRecord(**o) for o in meta["odd"])
    provenance = Provenance(**stored)
    return assembled(rows, spec, provenance, roles, columns, built, prefix, tokenizer, odd)
