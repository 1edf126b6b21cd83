"""Packers: from a prefix order and a cap to trees, and the bounds that no packer beats."""

from packing.packers.allocate import NO_CAPACITY, allocator, balanced_greedy_partition, ffd_allocate
from packing.packers.areal import RowTooLong, pack_areal
from packing.packers.bounds import Bounds, bounds
from packing.packers.flat import (
    MicroBatches,
    PaddedBatch,
    PaddingRule,
    split_micro_batches,
    split_synchronised,
)
from packing.packers.naive import pack_naive
from packing.packers.prefix_aware import pack_prefix_aware

__all__ = [
    "NO_CAPACITY",
    "Bounds",
    "MicroBatches",
    "PaddedBatch",
    "PaddingRule",
    "RowTooLong",
    "allocator",
    "balanced_greedy_partition",
    "bounds",
    "ffd_allocate",
    "pack_areal",
    "pack_naive",
    "pack_prefix_aware",
    "split_micro_batches",
    "split_synchronised",
]
