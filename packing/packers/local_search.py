"""Local search: empty a few trees, fill them again, keep what is not worse.

Trees that are not full, or that share a trunk, are taken apart and packed again by themselves;
that is the packer's own problem with few leaves. What counts is first the number of trees, then
the sum of squares of their room: it grows when room gathers in few trees, until one is empty.

Notable:
- work is counted, not timed, and the random numbers are seeded: the result is the same on every
  machine, however busy
"""

from __future__ import annotations

from bisect import insort
from random import Random

import numpy as np

from packing.packers.filling import Recipe, fill_trees
from packing.packers.leaves import Leaves

_TAKEN_APART = (2, 8)  # trees in one step
_NEARBY = 32  # leaves around a leaf in which a related tree is looked for
_STEP_COST = 40  # what a step costs beside its leaves, in leaves (measured)


def improve(
    leaves: Leaves,
    trees: list[list[int]],
    max_tokens_per_mb: int,
    enough: int,
    work: int,
) -> list[list[int]]:
    """Trees (ascending leaf numbers) after steps that pack about ``work`` leaves again in all.

    Stops at ``enough`` trees.
    """
    search = _Search(leaves, trees, max_tokens_per_mb)
    while work > 0 and len(search.trees) > max(enough, 1):
        work -= _STEP_COST + search.step()
    return list(search.trees.values())


class _Search:
    """The trees as they are, by a number that is never used again."""

    def __init__(self, leaves: Leaves, trees: list[list[int]], cap: int) -> None:
        self.leaves, self.cap, self.random = leaves, cap, Random(0)
        self.tree_of = [0] * len(leaves)
        self.trees: dict[int, list[int]] = {}
        self.tokens: dict[int, int] = {}
        self.emptiest: list[tuple[int, int]] = []  # (tokens, tree), ascending
        self.numbers = 0
        for tree, tokens in zip(trees, leaves.tokens_per_tree(trees), strict=True):
            self._add(tree, tokens)

    def step(self) -> int:
        """Pack a few trees again; returns the number of leaves in them."""
        taken = self._some_trees()
        members = np.array(sorted(leaf for t in taken for leaf in self.trees[t]), dtype=np.int64)
        refilled = fill_trees(
            self.leaves.lengths[members].tolist(),
            self.leaves.shared_among(members).tolist(),
            self.cap,
            self._some_recipe(),
            self.random,
        )
        if len(refilled) > len(taken):
            return len(members)
        trees = [members[tree].tolist() for tree in refilled]
        tokens = self.leaves.tokens_per_tree(trees)
        if self._value(tokens) < self._value([self.tokens[t] for t in taken]):
            return len(members)
        for tree in taken:
            self._remove(tree)
        for leaves, n in zip(trees, tokens, strict=True):
            self._add(leaves, n)
        return len(members)

    def _value(self, tokens: list[int]) -> tuple[int, int]:
        return -len(tokens), sum((self.cap - n) ** 2 for n in tokens)

    def _some_recipe(self) -> Recipe:
        r = self.random
        return Recipe(
            short_edge=self.cap // r.choice((16, 256, self.cap + 1)),
            tolerance=self.cap // r.choice((20, 50, 100, 200, 500)),
            split=r.random() < 0.7,
        )

    def _some_trees(self) -> list[int]:
        """Mostly trees with room; half of the time trees near one another in the trie."""
        r, emptiest = self.random, self.emptiest
        wanted = min(r.randint(*_TAKEN_APART), len(emptiest))
        at = 0 if r.random() < 0.5 else int(len(emptiest) * r.random() ** 2)
        taken = [emptiest[at][1]]
        if r.random() < 0.5:
            for _ in range(2 * wanted):
                leaf = r.choice(self.trees[taken[0]]) + r.randint(-_NEARBY, _NEARBY)
                tree = self.tree_of[min(max(leaf, 0), len(self.tree_of) - 1)]
                if tree not in taken and len(taken) < wanted:
                    taken.append(tree)
        while len(taken) < wanted:
            tree = emptiest[int(len(emptiest) * r.random() ** 2)][1]
            if tree not in taken:
                taken.append(tree)
        return taken

    def _add(self, leaves: list[int], tokens: int) -> None:
        number = self.numbers
        self.numbers += 1
        self.trees[number] = leaves
        self.tokens[number] = tokens
        insort(self.emptiest, (tokens, number))
        for leaf in leaves:
            self.tree_of[leaf] = number

    def _remove(self, number: int) -> None:
        del self.trees[number]
        self.emptiest.remove((self.tokens.pop(number), number))
