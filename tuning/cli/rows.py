"""``rows``: what a source holds, before anything is packed."""

from __future__ import annotations

import typer

from tuning.cli.common import Json, RowOptions, row_options, sentences, show


def register(app: typer.Typer) -> None:
    app.command()(rows)


@row_options
def rows(options: RowOptions, as_json: Json = False) -> None:
    """Count the rows, groups and tokens of ROWS, and what is odd about them."""
    from packing.sources.load import load

    with sentences():
        loaded = load(options.spec())
        result = {
            "source": loaded.provenance.source,
            "format": loaded.provenance.format,
            "records": loaded.provenance.records,
            "rows": len(loaded.rows),
            "groups": loaded.rows.n_groups,
            "tokens": loaded.rows.n_tokens,
            "longest": loaded.rows.longest,
            "tokenizer": loaded.provenance.tokenizer or "none: token ids as they are",
            "content": loaded.provenance.content,
            "fingerprint": loaded.rows.fingerprint,
            "simulated": loaded.simulated,
            "roles": dict(loaded.roles.pairs),
            "problems": [
                {
                    "kind": p.kind,
                    "count": p.count,
                    "sentence": p.sentence,
                    "examples": list(p.examples),
                }
                for p in loaded.problems
            ],
        }
        show(result, as_json)
        if not as_json:
            for problem in loaded.problems:
                typer.echo(f"{problem.count:,} {problem.sentence}")
