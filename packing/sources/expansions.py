"""One row a conversation or one row a turn: both counts, before the choice is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packing.prefixes import PrefixOrder
from packing.sources.load import load
from packing.sources.loaded import Loaded
from packing.sources.spec import SourceSpec

COUNTED_RECORDS = 200


@dataclass(frozen=True)
class Expansion:
    """What the first records are as rows of one kind.

    tokens, tree_tokens: of the rows, and of the trie they share
    """

    expand: str
    rows: int
    groups: int
    tokens: int
    tree_tokens: int
    longest: int

    @classmethod
    def of(cls, loaded: Loaded) -> Expansion:
        rows = loaded.rows
        tree = PrefixOrder.of(rows).tree_tokens()
        expand = loaded.spec.expand
        return cls(expand, len(rows), rows.n_groups, rows.n_tokens, tree, rows.longest)


def has_a_choice(loaded: Loaded) -> bool:
    """Whether rows come from conversations of several turns that somebody generated."""
    return loaded.prefix is not None and loaded.spec.simulate is None


def expansions(
    spec: SourceSpec,
    allowed_roots: Sequence[Path] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> tuple[Expansion, Expansion]:
    """(a row a conversation, a row a turn) of the first COUNTED_RECORDS records.

    Raises SourceError as ``load`` does.
    """
    limit = min(spec.limit or COUNTED_RECORDS, COUNTED_RECORDS)
    both = [
        Expansion.of(
            load(replace(spec, expand=expand, limit=limit), None, cancelled, allowed_roots)
        )
        for expand in ("conversation", "turn")
    ]
    return both[0], both[1]
