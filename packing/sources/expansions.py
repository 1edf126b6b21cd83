"""One row a conversation or one row a turn: both counts, before the choice is made."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def either_way(spec: SourceSpec) -> tuple[SourceSpec, SourceSpec]:
    """The first COUNTED_RECORDS records as (a row a conversation, a row a turn)."""
    few = replace(spec, limit=min(spec.limit or COUNTED_RECORDS, COUNTED_RECORDS))
    return replace(few, expand="conversation"), replace(few, expand="turn")


def expansions(spec: SourceSpec) -> tuple[Expansion, Expansion]:
    """Both counts of ``either_way``. Raises SourceError as ``load`` does."""
    conversation, turn = either_way(spec)
    return Expansion.of(load(conversation)), Expansion.of(load(turn))
