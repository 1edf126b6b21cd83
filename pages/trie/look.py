"""What the Trie page looks at: tree, node, token, highlighted row, as the URL names them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import streamlit as st

from packing.rows import Rows
from packing.trie import Forest, Trie
from pages.shared import data, state
from pages.trie.explorer import batch_row_numbers, node_at, row_path
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan


@dataclass(frozen=True, eq=False)
class Look:
    """What the page looks at; row numbers as ``row`` are those of the data set.

    row:       highlighted row, -1: none; batch_row: its number in the batch, -1: not in it
    row_tree:  the tree that holds it, -1: none; path: its nodes, where that is the tree on screen
    numbers:   number in the data set of each row of the batch; last_row: of the whole data set
    """

    batch: Batch
    forest: Forest
    plan: TuningPlan
    tree: int
    trie: Trie
    node: int
    token: int
    row: int
    batch_row: int
    row_tree: int
    path: list[int]
    numbers: npt.NDArray[np.int64]
    last_row: int

    @property
    def tree_key(self) -> str:
        """Names the tree among all trees of all packings."""
        rows = self.batch.rows.fingerprint
        return f"{rows}:{self.plan.max_tokens_per_mb}:{self.plan.packer}:{self.tree}"


@st.cache_resource(show_spinner=False, max_entries=8)
def _numbers(
    fingerprint: str, prompts: int, samples: int, _rows: Rows, _plan: TuningPlan
) -> npt.NDArray[np.int64]:
    return batch_row_numbers(_rows, _plan)


def look(batch: Batch, forest: Forest, plan: TuningPlan) -> Look:
    """Tree, node, token and row of the view, as far as this packing has them.

    Without a chosen tree, the one of the highlighted row is looked at.
    """
    rows = data.loaded().rows
    numbers = _numbers(rows.fingerprint, plan.prompts_per_step, plan.samples_per_prompt, rows, plan)
    row = state.view("row", -1)
    if row >= len(rows):
        state.set_view(row=None)  # said once, and not carried along
    at = int(np.searchsorted(numbers, row))
    batch_row = at if row >= 0 and at < len(numbers) and numbers[at] == row else -1
    tree_of_row = batch.simulation(plan).packing.tree_of_row
    row_tree = int(tree_of_row[batch_row]) if batch_row >= 0 else -1
    tree = min(max(state.view("tree", max(row_tree, 0)), 0), len(forest) - 1)
    trie = forest.tree(tree)
    node = state.view("node", -1)
    token = state.view("token", -1)
    return Look(
        batch,
        forest,
        plan,
        tree,
        trie,
        node if -1 <= node < len(trie) else -1,
        token if -1 <= token < trie.n_tokens else -1,
        row,
        batch_row,
        row_tree,
        row_path(trie, batch_row) if row_tree == tree else [],
        numbers,
        len(rows) - 1,
    )


def open_tree(tree: int) -> None:
    """Look at a tree from its beginning."""
    state.set_view(tree=tree, node=None, token=None, x0=None, x1=None)


def open_node(node: int, token: int = -1) -> None:
    """Look at a node (-1: the whole tree), and at one of its tokens."""
    state.set_view(node=None if node < 0 else node, token=None if token < 0 else token)


def highlight(tree: int, row: int | None) -> None:
    """Stay at a tree and highlight a row of the data set everywhere; None takes it away."""
    state.set_view(tree=tree, row=row)


def chosen_node(look: Look) -> int:
    """The node that the card is about: the chosen one, or the first of the tree."""
    return look.node if look.node >= 0 else node_at(look.trie, max(look.token, 0))
