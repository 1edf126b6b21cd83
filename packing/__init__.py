"""Rows go in, trees come out: everything about packing that needs no torch and no browser."""

from packing.batch.padded import MicroBatchList, PaddedTree, build_packed_tree_batch
from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import Rows, RowsError
from packing.spec import MicroBatchSpec
from packing.trie import Forest, Trie

__all__ = [
    "Forest",
    "MicroBatchList",
    "MicroBatchSpec",
    "Packing",
    "PaddedTree",
    "PrefixOrder",
    "Rows",
    "RowsError",
    "Trie",
    "build_packed_tree_batch",
]
