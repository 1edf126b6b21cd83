"""TreeLayout: one tree as the arrays a model step reads.

Notable:
- *depth-first* order makes every subtree one slice: token ``k`` is seen by ``q`` exactly when
  ``k <= q < subtree_end[k]``; one int32 a token replaces an N x N mask
- *AReaL* order numbers tokens as they were inserted; the same tree, its subtrees scattered
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packing.rows import Rows, offsets_of, ragged_ranges
from packing.trie import Trie


@dataclass(frozen=True, eq=False)
class TreeLayout:
    """One packed tree. N packed tokens (without padding), R rows, L = sum of row lengths.

    input_ids:     int32 ``(N,)``
    position_ids:  int32 ``(N,)``, depth of the token in the trie = its position in its rows
    parent:        int32 ``(N,)``, packed index of the token before it; -1 at a root
    subtree_end:   int32 ``(N,)``, exclusive end of the token's subtree in depth-first order;
                   None in AReaL's order, where subtrees are no slices
    rows:          int64 ``(R,)``, row numbers in the order they were fed
    row_positions: int32 ``(L,)``, packed index of each token of each row, row after row
    row_offsets:   int64 ``(R + 1,)``, row ``rows[i]`` sits at
                   ``row_positions[row_offsets[i]:row_offsets[i + 1]]``
    """

    input_ids: npt.NDArray[np.int32]
    position_ids: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]
    subtree_end: npt.NDArray[np.int32] | None
    rows: npt.NDArray[np.int64]
    row_positions: npt.NDArray[np.int32]
    row_offsets: npt.NDArray[np.int64]

    @property
    def n_tokens(self) -> int:
        return len(self.input_ids)

    def positions_of(self, index: int) -> npt.NDArray[np.int32]:
        """Packed index of each token of ``rows[index]``: int32 ``(len,)``."""
        return self.row_positions[self.row_offsets[index] : self.row_offsets[index + 1]]


def depth_first_layout(rows: Rows, trie: Trie) -> TreeLayout:
    """A tree with its tokens in depth-first order, children by token id."""
    lengths = trie.lengths
    source, node_offsets = ragged_ranges(rows.offsets[trie.first_row] + trie.depth, lengths)
    in_node = np.arange(trie.n_tokens) - np.repeat(node_offsets[:-1], lengths)
    parent = np.arange(-1, trie.n_tokens - 1, dtype=np.int32)
    parent[trie.start] = np.where(trie.parent < 0, -1, trie.end[trie.parent] - 1)
    row_positions, row_offsets = _row_positions(rows, trie)
    return TreeLayout(
        input_ids=rows.tokens[source],
        position_ids=(np.repeat(trie.depth, lengths) + in_node).astype(np.int32),
        parent=parent,
        subtree_end=np.repeat(trie.subtree_end, lengths).astype(np.int32),
        rows=trie.rows,
        row_positions=row_positions,
        row_offsets=row_offsets,
    )


def areal_layout(rows: Rows, trie: Trie) -> TreeLayout:
    """The same tree in AReaL's order: tokens numbered as the rows inserted them."""
    first = depth_first_layout(rows, trie)
    moved = areal_positions(trie)
    back = np.empty_like(moved)
    back[moved] = np.arange(len(moved), dtype=np.int32)
    parent = first.parent[back]
    return TreeLayout(
        input_ids=first.input_ids[back],
        position_ids=first.position_ids[back],
        parent=np.where(parent < 0, -1, moved[parent]).astype(np.int32),
        subtree_end=None,
        rows=first.rows,
        row_positions=moved[first.row_positions],
        row_offsets=first.row_offsets,
    )


def areal_positions(trie: Trie) -> npt.NDArray[np.int32]:
    """int32 ``(N,)``: AReaL's packed index of each token of the depth-first order."""
    return ragged_ranges(trie.areal_start, trie.lengths)[0].astype(np.int32)


def _row_positions(rows: Rows, trie: Trie) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """In sorted order a row repeats the positions it shares with the row before, then goes on."""
    offsets = offsets_of(rows.lengths[trie.rows])
    place = {row: i for i, row in enumerate(trie.rows.tolist())}
    positions = np.empty(offsets[-1], dtype=np.int32)
    previous = positions[:0]
    next_piece = 0
    for row, shared in zip(trie.sorted_rows.tolist(), trie.shared.tolist(), strict=True):
        at = place[row]
        mine = positions[offsets[at] : offsets[at + 1]]
        mine[:shared] = previous[:shared]
        piece = len(mine) - shared
        mine[shared:] = np.arange(next_piece, next_piece + piece, dtype=np.int32)
        next_piece += piece
        previous = mine
    return positions, offsets
