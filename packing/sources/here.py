"""A source read into rows in this process: records to drafts, drafts to tokens, what is odd said.

Notable:
- records are read in chunks and become token ids at once: text of one chunk is in memory
- the result of a load is kept on disk by content
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from packing.sources import cache, fields
from packing.sources.build import RowBuilder
from packing.sources.chat.tokenizer import BUNDLED, Tokenizer, TokenizerError
from packing.sources.chat.tokenizer_files import load_tokenizer
from packing.sources.chunks import ranged
from packing.sources.columns import describe
from packing.sources.drafts import Draft
from packing.sources.errors import LoadCancelled, SourceError, Where
from packing.sources.expand import Expander
from packing.sources.files.opened import Opened, open_source
from packing.sources.files.paths import check_allowed
from packing.sources.layouts.known import WITHOUT_PROMPT
from packing.sources.loaded import Loaded, PrefixReport, Provenance, keep, preview_of, restored
from packing.sources.odd import OddRecords
from packing.sources.problems import Flag, find_flags
from packing.sources.records.given import padding_of
from packing.sources.records.groups import without_dropped
from packing.sources.records.reading import Reading, reading_of
from packing.sources.role_names import CONTENT
from packing.sources.roles import Roles
from packing.sources.simulate import simulated
from packing.sources.spec import SourceSpec

# Text per call of the tokenizer: enough to keep its threads busy, little enough to cancel soon.
BATCH_CHARACTERS = 1_000_000
BATCH_RECORDS = 64
OTHER_TOKENIZER = (
    "Tokens are counted with the bundled tokenizer, which makes about 30 % more of them than "
    "Qwen's on tau-bench: give the tokenizer of the model that is trained before a cap is chosen."
)
BEGUN = (
    "Prompts of plain text begin with {}: the tokenizer's own encode puts it there, and so do "
    "AReaL and vLLM's completions."
)


@dataclass(frozen=True)
class Progress:
    """How far a load is: stage for people, fraction 0 … 1 (None: not known), rows and tokens."""

    stage: str
    fraction: float | None
    rows: int = 0
    tokens: int = 0


def no_word(_: Progress) -> None:
    """Nobody is told how far a load is."""


def never() -> bool:
    """Nobody stops a load."""
    return False


def load_here(
    spec: SourceSpec,
    progress: Callable[[Progress], None] = no_word,
    cancelled: Callable[[], bool] = never,
    allowed_roots: Sequence[Path] | None = None,
    upload: bytes | None = None,
) -> Loaded:
    """The rows of a source, read in this process.

    progress:      told after every chunk
    cancelled:     asked at every chunk (well under a second of work); then LoadCancelled is raised
    allowed_roots: folders that local files must lie in, links followed; None: no limit. A page
                   that others can reach must give them
    upload:        the bytes of a spec of kind "upload"

    Raises SourceError, a sentence naming file, row and field, for whatever is wrong in the source.
    """
    return load_with_key(spec, progress, cancelled, allowed_roots, upload)[0]


def load_with_key(
    spec: SourceSpec,
    tell: Callable[[Progress], None],
    stop: Callable[[], bool],
    allowed_roots: Sequence[Path] | None,
    upload: bytes | None,
) -> tuple[Loaded, str | None]:
    """The rows, and their entry in the cache; None where their content is not known before."""
    tell(Progress("opening", None))
    opened = open_source(spec, allowed_roots, upload)
    reading = reading_of(spec, opened)
    tokenizer = _tokenizer_for(spec, reading.roles, reading.head, allowed_roots)
    content = _content(opened, tell, stop)
    key = None
    if content is not None:
        chosen = spec.to_json() | {"location": "", "tokenizer": ""}
        mark = tokenizer.fingerprint if tokenizer else None
        key = cache.entry_key(chosen, reading.format, content, mark)
        kept_rows = cache.read_entry(key)
        if kept_rows:
            return restored(*kept_rows, spec, tokenizer), key
    loaded = _build(spec, reading, tokenizer, content, tell, stop)
    if key is not None:
        keep(key, loaded)
    return loaded, key


def tokenizer_named(name: str) -> Tokenizer:
    """The tokenizer of a spec. Raises SourceError where it cannot be loaded."""
    try:
        return load_tokenizer(name)
    except TokenizerError as error:
        raise SourceError(str(error)) from None


def _tokenizer_for(
    spec: SourceSpec,
    roles: Roles,
    head: Sequence[Mapping[str, Any]],
    allowed_roots: Sequence[Path] | None,
) -> Tokenizer | None:
    """The chosen tokenizer; the bundled one where rows are text and none is chosen."""
    check_tokenizer(spec, allowed_roots)
    if spec.tokenizer is not None:
        return tokenizer_named(spec.tokenizer)
    for role in CONTENT:
        for path in roles.all(role):
            for record in head:
                if any(_is_text(value) for _, value in fields.find(record, path)):
                    return tokenizer_named(BUNDLED)
    return None


def check_tokenizer(spec: SourceSpec, allowed_roots: Sequence[Path] | None) -> None:
    """A link may name any folder: its files are read, so it is held to where rows may lie."""
    if spec.tokenizer is None:
        return
    folder = Path(spec.tokenizer).expanduser()
    if folder.is_absolute() or folder.exists() or ".." in folder.parts:
        check_allowed(folder, f"tokenizer {spec.tokenizer}", allowed_roots)


def _is_text(value: Any) -> bool:
    if isinstance(value, list) and value:
        return _is_text(value[0]) or isinstance(value[0], dict)
    return isinstance(value, str)


def _content(
    opened: Opened, tell: Callable[[Progress], None], stop: Callable[[], bool]
) -> str | None:
    if opened.fixed is not None:
        return cache.entry_key(opened.fixed)[:16]
    if not opened.files:
        return None
    return cache.content_digest(
        opened.files, lambda done: tell(Progress("checking the files", done)), stop
    )


def _build(
    spec: SourceSpec,
    reading: Reading,
    tokenizer: Tokenizer | None,
    content: str | None,
    tell: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> Loaded:
    opened = reading.opened
    # A source that decides its roles itself holds rows as they are.
    place, exact = Where(opened.label), opened.roles is not None
    padding = None if exact else padding_of(reading.head, reading.roles, place, tokenizer)
    expander = Expander(spec, reading.roles, tokenizer, padding, opened.raw)
    builder = RowBuilder(tokenizer)
    odd = OddRecords(spec.leave_out_odd)
    records = 0
    for chunk in ranged(reading.chunks(odd), spec.start, spec.limit):
        waiting: list[Draft] = []
        for start in range(0, len(chunk.records), BATCH_RECORDS):
            if stop():
                raise LoadCancelled
            for i, record in enumerate(chunk.records[start : start + BATCH_RECORDS], start):
                try:
                    waiting += expander.drafts(record, chunk.where(i), records)
                except SourceError as error:
                    odd.take(error, chunk.where(i), record)
                records += 1
            if sum(len(p.content) for d in waiting for p in d.parts) >= BATCH_CHARACTERS:
                _add(builder, waiting, odd)
                waiting = []
        if stop():
            raise LoadCancelled
        _add(builder, waiting, odd)
        tell(Progress("reading and tokenising", chunk.fraction, len(builder), builder.n_tokens))
    if not len(builder) and expander.without_turns:
        raise SourceError(
            f"{opened.label}: none of {records:,} conversations has an assistant turn; expand "
            "them as conversations, or simulate completions."
        )
    built, lengths = builder.finish(opened.label)
    prefix = _prefix_report(expander, builder, tokenizer, opened.label)
    wrong = int(np.count_nonzero(built.flags & np.uint16(Flag.LENGTH_DIFFERS)))
    if spec.simulate is not None:
        built = simulated(built, lengths, spec.simulate)
    built = replace(built, flags=find_flags(built.rows, built.flags))
    built, left_out = without_dropped(built, spec)
    foreign = tokenizer is not None and tokenizer.name == BUNDLED and spec.kind != "sample"
    alone = reading.roles.first("completion") and not reading.roles.asked
    broken = (
        prefix
        and prefix.broken
        and (
            f"The chat template does not keep prefixes: {prefix.broken:,} of {prefix.turns:,} "
            f"turns looked at are computed again, {prefix.lost_tokens:,} tokens ({prefix.first})."
        )
    )
    said = (
        broken,
        expander.without_turns
        and f"{expander.without_turns:,} conversations have no assistant turn: no rows.",
        builder.compared
        and f"{builder.compared - wrong:,} of {builder.compared:,} rows have the number of tokens "
        "they were generated with.",
        padding and (built.flags & np.uint16(Flag.PADDING)).any() and padding.note,
        alone and WITHOUT_PROMPT,
        expander.begun and tokenizer and BEGUN.format(tokenizer.decode(tokenizer.start_ids)),
        spec.simulate and "Completions are simulated: lengths are drawn, tokens are made up.",
        foreign and OTHER_TOKENIZER,
    )
    return Loaded(
        **vars(built),
        spec=spec,
        provenance=Provenance(
            source=spec.location,
            format=reading.format,
            files=len(opened.files),
            bytes=sum(f.size for f in opened.files),
            content=content or built.rows.fingerprint,
            revision=opened.revision,
            records=records,
            tokenizer=tokenizer.name if tokenizer else None,
            tokenizer_fingerprint=tokenizer.fingerprint if tokenizer else None,
            notes=(*reading.notes(), *(s for s in said if s), *expander.groups.notes()),
            grouped_by=expander.groups.sentence(),
            left_out_files=opened.left_out,
            left_out_records=odd.count,
            left_out_groups=left_out,
        ),
        roles=reading.roles,
        columns=describe(reading.head),
        preview=preview_of(built.rows, tokenizer),
        prefix=prefix,
        odd=tuple(sorted(odd.kept, key=lambda o: (o.file, o.row or 0))),
    )


def _add(builder: RowBuilder, drafts: list[Draft], odd: OddRecords) -> None:
    try:
        builder.add(drafts)
    except SourceError:
        if not odd.allowed:
            raise
        for draft in drafts:
            try:
                builder.add([draft])
            except SourceError as error:
                odd.take(error, draft.where, "".join(str(p.content) for p in draft.parts))


def _prefix_report(
    expander: Expander, builder: RowBuilder, tokenizer: Tokenizer | None, label: str
) -> PrefixReport | None:
    seen = expander.check
    if not seen.conversations or tokenizer is None:
        return None
    lost = builder.encode_texts(seen.lost, [Where(label)] * len(seen.lost))
    return PrefixReport(
        seen.conversations, seen.turns, seen.broken, seen.first, sum(len(ids) for ids in lost)
    )
