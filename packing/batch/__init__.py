"""AReaL's way of a batch: dispatch, ranks, minibatches, their trees and what they cost."""

from packing.batch.dispatch import Dispatch, batches
from packing.batch.divergence import Divergence, find_divergences
from packing.batch.padded import MicroBatchList, PaddedTree, build_packed_tree_batch
from packing.batch.passes import Comparison, Pass, RankPass
from packing.batch.pipeline import DealtBatch, as_they_stand, deal, simulate
from packing.batch.refusal import DEEPEST_PATH, BatchRefused, Fix
from packing.batch.simulation import BatchSimulation
from packing.batch.spec import BatchSpec, Packer

__all__ = [
    "DEEPEST_PATH",
    "BatchRefused",
    "BatchSimulation",
    "BatchSpec",
    "Comparison",
    "DealtBatch",
    "Dispatch",
    "Divergence",
    "Fix",
    "MicroBatchList",
    "Packer",
    "PaddedTree",
    "Pass",
    "RankPass",
    "as_they_stand",
    "batches",
    "build_packed_tree_batch",
    "deal",
    "find_divergences",
    "simulate",
]
