"""Rows go in, trees come out: everything about packing that needs no torch and no browser."""

from packing.batch.padded import MicroBatchList, PaddedTree, build_packed_tree_batch
from packing.layout import TreeLayout, depth_first_layout
from packing.metrics import padded_token_ratio, tree_token_ratio
from packing.packing import Packing
from packing.prefixes import PrefixOrder
from packing.rows import IntArray, Rows, RowsError, offsets_of, ragged_ranges
from packing.spec import BLOCK_SIZE, MicroBatchSpec, aligned
from packing.trie import Forest, Trie, build_forest, forest_of, whole_trie

__all__ = [
    "BLOCK_SIZE",
    "Forest",
    "IntArray",
    "MicroBatchList",
    "MicroBatchSpec",
    "Packing",
    "PaddedTree",
    "PrefixOrder",
    "Rows",
    "RowsError",
    "TreeLayout",
    "Trie",
    "aligned",
    "build_forest",
    "build_packed_tree_batch",
    "depth_first_layout",
    "forest_of",
    "offsets_of",
    "padded_token_ratio",
    "ragged_ranges",
    "tree_token_ratio",
    "whole_trie",
]
