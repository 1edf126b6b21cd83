"""AReaL's first fit the plain way: token by token through dictionaries. The specification.

Slow on purpose and short enough to be checked by eye; ``packers.areal`` must give its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Node = dict[int, Any]


def pack_naive(
    rows: Iterable[Sequence[int]], max_tokens_per_mb: int
) -> tuple[list[int], list[int]]:
    """Each row into the first tree with room for its new tokens.

    Returns the tree of each row (-1 for an empty one) and the tokens of each tree.
    Raises ValueError for a row longer than the cap.
    """
    trees: list[Node] = []
    tokens: list[int] = []
    tree_of_row = []
    for row in rows:
        ids = [int(token) for token in row]
        if len(ids) > max_tokens_per_mb:
            raise ValueError(f"Sequence length {len(ids)} exceeds {max_tokens_per_mb}")
        tree_of_row.append(_place(ids, trees, tokens, max_tokens_per_mb) if ids else -1)
    return tree_of_row, tokens


def _place(ids: Sequence[int], trees: list[Node], tokens: list[int], cap: int) -> int:
    for index, tree in enumerate(trees):
        new = len(ids) - _shared(tree, ids)
        if tokens[index] + new <= cap:
            _insert(tree, ids)
            tokens[index] += new
            return index
    trees.append({})
    tokens.append(len(ids))
    _insert(trees[-1], ids)
    return len(trees) - 1


def _shared(tree: Node, ids: Sequence[int]) -> int:
    for depth, token in enumerate(ids):
        if token not in tree:
            return depth
        tree = tree[token]
    return len(ids)


def _insert(tree: Node, ids: Sequence[int]) -> None:
    for token in ids:
        tree = tree.setdefault(token, {})
