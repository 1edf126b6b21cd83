"""Trees to time attention on: made up, and of real rows.

Notable:
- a tree is its ``subtree_end`` and the lengths of the rows it holds, so that the same rows can be
  run unshared beside it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packing.layout import TreeLayout, depth_first_layout
from packing.packers.areal import RowTooLong, pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import build_forest

GOLDEN_CAPS = (16_384, 65_536)
BLOCK = 128


@dataclass(frozen=True)
class GpuTree:
    """subtree_end: int32 ``(N,)``, padding included; row_lengths: int64 ``(R,)``."""

    name: str
    subtree_end: npt.NDArray[np.int32]
    row_lengths: npt.NDArray[np.int64]


def tree_of_nodes(name: str, nodes: Sequence[tuple[int, int]]) -> GpuTree:
    """A tree from ``(parent node or -1, tokens)`` in depth-first order; a row for each leaf."""
    lengths = np.array([tokens for _, tokens in nodes])
    size, depth = lengths.copy(), lengths.copy()
    leaf = np.ones(len(nodes), dtype=bool)
    for node, (parent, tokens) in enumerate(nodes):
        if parent >= 0:
            depth[node] = depth[parent] + tokens
            leaf[parent] = False
    for node in range(len(nodes) - 1, -1, -1):
        if nodes[node][0] >= 0:
            size[nodes[node][0]] += size[node]
    end = np.cumsum(lengths) - lengths + size
    return GpuTree(name, np.repeat(end, lengths).astype(np.int32), depth[leaf])


def prompt_groups(name: str, groups: int, samples: int, prompt: int, completion: int) -> GpuTree:
    """``groups`` prompts, each with ``samples`` completions: a GRPO batch."""
    nodes: list[tuple[int, int]] = []
    for _ in range(groups):
        root = len(nodes)
        nodes += [(-1, prompt), *[(root, completion)] * samples]
    return tree_of_nodes(name, nodes)


def agent_turns(name: str, system: int, tasks: int, turns: int, turn: int, thought: int) -> GpuTree:
    """One system prompt, ``tasks`` conversations; each turn's thought is dropped from the next."""
    nodes = [(-1, system)]
    for _ in range(tasks):
        trunk = 0
        for _ in range(turns):
            nodes.append((trunk, turn))
            trunk = len(nodes) - 1
            nodes.append((trunk, thought))
    return tree_of_nodes(name, nodes)


def random_nodes(name: str, nodes: int, tokens: int, seed: int = 0) -> GpuTree:
    """Equal small nodes, each under a random node of the path to the one before it."""
    rng = np.random.default_rng(seed)
    made, path = [(-1, tokens)], [0]
    for node in range(1, nodes):
        del path[int(rng.integers(1, len(path) + 1)) :]
        made.append((path[-1], tokens))
        path.append(node)
    return tree_of_nodes(name, made)


def synthetic_trees() -> list[GpuTree]:
    """Trees of 8k to 64k tokens, from no sharing at all to a deep shared trunk; headlines first."""
    return [
        agent_turns("agent_32k", 4_096, 8, 14, 192, 64),
        prompt_groups("prompts_64k", 1, 60, 4_096, 1_024),
        tree_of_nodes("chain_8k", [(-1, 8_192)]),
        prompt_groups("prompts_16k", 2, 14, 1_024, 512),
        prompt_groups("prompts_8k", 8, 8, 256, 96),
        agent_turns("agent_16k", 2_048, 4, 14, 192, 64),
    ]


def trees_to_time(golden: Iterable[Path], dry: bool) -> list[GpuTree]:
    """The trees of a run in order: headlines, real rows, the rest; tiny ones in a dry run."""
    if dry:
        return [
            agent_turns("agent_32k", 19, 2, 2, 9, 5),
            prompt_groups("prompts_64k", 1, 4, 20, 12),
        ]
    made = synthetic_trees()
    return [*made[:2], *golden_trees(golden), *made[2:]]


def read_rows(path: Path) -> Rows:
    """Rows of an ``.npz`` with ``tokens``, ``offsets`` and ``groups``."""
    with np.load(path) as file:
        return Rows(file["tokens"], file["offsets"], file["groups"])


def layouts(rows: Rows, cap: int) -> list[TreeLayout]:
    """All trees of the rows, packed as AReaL does, in depth-first order."""
    order = PrefixOrder.of(rows)
    forest = build_forest(order, pack_areal(order, cap))
    return [depth_first_layout(rows, forest.tree(index)) for index in range(len(forest))]


def golden_trees(paths: Iterable[Path]) -> list[GpuTree]:
    """The first tree of each file's rows at each cap, padded to whole blocks."""
    trees = []
    for path in paths:
        rows = read_rows(path)
        for cap in GOLDEN_CAPS:
            # Enough rows to fill a tree many times over; all of them would only take longer.
            few = rows.take(np.flatnonzero(np.cumsum(rows.lengths) <= 32 * cap))
            try:
                first = layouts(few, cap)[0]
            except RowTooLong:
                continue
            assert first.subtree_end is not None  # depth-first layouts have it
            end = np.zeros(-(-first.n_tokens // BLOCK) * BLOCK, dtype=np.int32)
            end[: first.n_tokens] = first.subtree_end
            name = f"{path.stem}_{cap // 1024}k"
            trees.append(GpuTree(name, end, few.lengths[first.rows]))
    return trees
