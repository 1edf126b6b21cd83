"""``rows``: what a source holds, before anything is packed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from packing.sources.spec import DROPPED
from tuning.cli.common import Json, RowOptions, row_options, say, sentences, show

if TYPE_CHECKING:
    from packing.sources.expansions import Expansion
    from packing.sources.loaded import Loaded

_LISTED = 5


def register(app: typer.Typer) -> None:
    app.command()(rows)


@row_options
def rows(
    options: RowOptions,
    save: Annotated[
        Path | None, typer.Option(help="Write tokens, offsets, groups and loss_mask as .npz.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count the rows, groups and tokens of ROWS, and what is odd about them."""
    from packing.sources.expansions import expansions, has_a_choice
    from packing.sources.files.columnar import write_npz
    from packing.sources.load import load

    with sentences():
        spec = options.spec()
        loaded = load(spec)
        both = expansions(spec) if has_a_choice(loaded) else ()
        if save is not None:
            if save.suffix != ".npz":
                raise ValueError(f"--save {save}: the file is an .npz; give it that ending")
            write_npz(loaded.rows, save)
        result = _told(loaded, both)
        show(result, as_json)
        if not as_json:
            _sentences(loaded, both)
            if save is not None:
                say(f"written: {save}")


def _told(loaded: Loaded, both: tuple[Expansion, ...]) -> dict[str, Any]:
    source, rows = loaded.provenance, loaded.rows
    roles: dict[str, Any] = {}
    for role in dict(loaded.roles.pairs):
        paths = loaded.roles.all(role)
        roles[role] = paths[0] if len(paths) == 1 else list(paths)
    trained = None if rows.loss_mask is None else int((rows.loss_mask != 0).sum())
    return {
        "source": source.source,
        "format": source.format,
        "files": source.files,
        "records": source.records,
        "rows": len(rows),
        "groups": rows.n_groups,
        "grouped_by": source.grouped_by,
        "tokens": rows.n_tokens,
        "trained_tokens": trained,
        "longest": rows.longest,
        "tokenizer": source.tokenizer or "none: token ids as they are",
        "content": source.content,
        "fingerprint": rows.fingerprint,
        "simulated": loaded.simulated,
        "origins": loaded.origin_counts,
        "roles": roles,
        "role_tokens": dict(loaded.role_tokens),
        "notes": list(source.notes),
        "prefix_breaks": asdict(loaded.prefix) if loaded.prefix else None,
        "expansions": [asdict(e) for e in both],
        "groups_areal_drops": dict(source.left_out_groups),
        "left_out": {
            "files": list(source.left_out_files),
            "records": source.left_out_records,
            "groups": list(loaded.spec.leave_out),
        },
        "odd_records": [asdict(o) for o in loaded.odd],
        "problems": [asdict(p) for p in loaded.problems],
    }


def _sentences(loaded: Loaded, both: tuple[Expansion, ...]) -> None:
    """What is no single figure, a line each."""
    source = loaded.provenance
    for words, count in loaded.origin_counts.items():
        say(f"{count:,} rows: {words}")
    for role, path in loaded.roles.pairs:
        say(f"{f'role {role}':<42} {path}")
    for expansion in both:
        first = " (first records)" if source.records > expansion.rows else ""
        say(
            f"{f'one row a {expansion.expand}{first}':<42} {expansion.rows:,} rows, "
            f"{expansion.tokens:,} tokens, {expansion.tree_tokens:,} in the trie they share"
        )
    for note in source.notes:
        say(note)
    for kind, count in source.left_out_groups.items():
        out = "left out" if kind in loaded.spec.leave_out else "counted; --leave-out takes them out"
        say(f"{count:,} groups {DROPPED[kind]}, AReaL may drop them: {out}")
    for what, names in (("files", source.left_out_files), ("records", _places(loaded))):
        if names:
            more = ", …" if len(names) > _LISTED else ""
            say(f"left out, {what}: {', '.join(names[:_LISTED])}{more}")
    for problem in loaded.problems:
        say(f"{problem.count:,} {problem.sentence}")


def _places(loaded: Loaded) -> list[str]:
    return [f"{o.file}, row {o.row}" for o in loaded.odd]
