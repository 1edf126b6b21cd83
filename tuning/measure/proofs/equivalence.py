"""Packed equals row by row, shown on the user's own rows: a few trees of their packing.

Notable:
- rows are taken next to each other in sorted order, where they share the most, until a budget of
  tokens is spent: row by row costs every token of every row
- a small model has a small vocabulary: token ids are folded into it after the trie was made from
  the true ones, so the tree is the user's own
- the comparison is made in float32 unless asked otherwise: in half precision a small fault would
  hide behind rounding

Events: "result" with every error and the verdict.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import torch

from kernels.model import build_model, check_equivalence, resolve_config
from packing.layout import TreeLayout, depth_first_layout
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import Forest, forest_of
from tuning.jobs.task import Task
from tuning.measure.machine import fixed_threads
from tuning.measure.proofs.problem import usable_device
from tuning.measure.shares import folded
from tuning.plan.batch import Batch
from tuning.plan.plan import Dtype

TREES = 3
ROW_TOKENS = 8_192
MODEL = "tiny"
_FEWEST_ROWS = 2


@dataclass(frozen=True, eq=False)
class ProofSample:
    """Depth-first layouts of a few trees, and how much of the packing they are."""

    layouts: list[TreeLayout]
    trees: list[int]
    rows: int
    rows_of_trees: int


def run(task: Task) -> str:
    """Do the job; arguments: ``trees`` (3), ``row_tokens`` (8,192), ``model``, ``dtype``."""
    trees = int(task.arguments.get("trees", TREES))
    budget = int(task.arguments.get("row_tokens", ROW_TOKENS))
    name = str(task.arguments.get("model", MODEL))
    dtype: Dtype = task.arguments.get("dtype", "float32")
    if trees < 1 or budget < 1:
        raise ValueError(f"at least one tree and one token are needed, not {trees} and {budget}")
    torch.set_num_threads(fixed_threads())
    task.emit("progress", message="choosing trees")
    order = PrefixOrder.of(task.rows)
    forest = Batch(task.rows, order).simulation(task.plan).forest
    vocabulary = int(resolve_config(name).vocab_size)
    fit = task.rows.tokens.max(initial=0) < vocabulary
    rows = task.rows if fit else folded(task.rows, vocabulary)
    sample = choose(rows, order, forest, trees, budget)
    task.emit("progress", message=f"building {name}")
    model = build_model(name, dtype=dtype, device=usable_device(task.plan.device))
    task.emit("progress", message=f"{sample.rows:,} rows, packed and one by one")
    begun = time.perf_counter()
    found = check_equivalence(model, rows, sample.layouts)
    task.emit(
        "result",
        **asdict(found),
        equal=found.equal,
        verdict=found.verdict,
        sampled=_scope(sample, len(forest)),
        tree_numbers=sample.trees,
        model=model.description,
        folded=rows is not task.rows,
        vocabulary=vocabulary,
        packed_tokens=sum(layout.n_tokens for layout in sample.layouts),
        row_tokens=sum(len(layout.row_positions) for layout in sample.layouts),
        seconds=time.perf_counter() - begun,
    )
    return found.verdict


def choose(
    rows: Rows, order: PrefixOrder, forest: Forest, trees: int, row_tokens: int
) -> ProofSample:
    """At most ``trees`` trees, the one with the most rows first, then some drawn evenly.

    Each gets an even share of ``row_tokens``, and at least two of its rows whatever they weigh.
    """
    members: list[npt.NDArray[np.int64]] = []
    chosen = _chosen_trees(forest, trees)
    for index in chosen:
        members.append(_neighbours(rows, forest, index, row_tokens // len(chosen)))
    tries = forest_of(order, members)
    layouts = [depth_first_layout(rows, tries.tree(index)) for index in range(len(tries))]
    whole = int(forest.rows_per_tree[chosen].sum())
    return ProofSample(layouts, chosen, sum(map(len, members)), whole)


def _chosen_trees(forest: Forest, trees: int) -> list[int]:
    filled = np.flatnonzero(forest.rows_per_tree)
    if len(filled) <= trees:
        return [int(index) for index in filled]
    fullest = int(np.argmax(forest.rows_per_tree))
    others = filled[filled != fullest]
    drawn = others[np.linspace(0, len(others) - 1, trees - 1).round().astype(np.int64)]
    return sorted([fullest, *drawn.tolist()])


def _neighbours(rows: Rows, forest: Forest, tree: int, row_tokens: int) -> npt.NDArray[np.int64]:
    """Rows of a tree next to each other in sorted order, from the middle of the tree on."""
    members = forest.tree(tree).sorted_rows
    lengths = rows.lengths[members]
    first = len(members) // 2 if lengths.sum() > row_tokens else 0
    first = min(first, max(len(members) - _FEWEST_ROWS, 0))
    fitting = int(np.searchsorted(np.cumsum(lengths[first:]), row_tokens, side="right"))
    return members[first : first + max(fitting, _FEWEST_ROWS)]


def _scope(sample: ProofSample, trees: int) -> str:
    return (
        f"{sample.rows:,} of the {sample.rows_of_trees:,} rows of {len(sample.layouts)} of "
        f"{trees:,} trees"
    )
