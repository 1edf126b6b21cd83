"""BatchSpec: how AReaL trains one batch, in its own names."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from packing.batch.dispatch import Dispatch
from packing.packers.allocate import allocator
from packing.packers.flat import PaddingRule
from packing.spec import BLOCK_SIZE, MicroBatchSpec

Packer = Literal["areal", "prefix-aware"]


@dataclass(frozen=True)
class BatchSpec:
    """How one batch is trained; names and defaults are AReaL's.

    ppo_n_minibatches: 1, as AReaL's examples set it (its dataclass says 4)
    packer:            AReaL's first fit, or ours inside AReaL: same ranks, same minibatches
    parallel_size:     tensor-parallel ranks; a cap is a multiple of ``lcm(block_size, it)``
    block_size:        ``AREAL_FLEX_ATTENTION_BLOCK_SIZE`` where it is set
    packing_algorithm: shares groups over ranks in SPMD mode, and rows over flat micro-batches
    n_mbs, granularity, n_mbs_divisor, padding: of the flat baseline only
    """

    max_tokens_per_mb: int
    dp_size: int = 1
    ppo_n_minibatches: int = 1
    dispatch: Dispatch = "controller"
    samples_per_prompt: int | None = None
    packer: Packer = "areal"
    parallel_size: int = 1
    block_size: int = BLOCK_SIZE
    packing_algorithm: Literal["ffd", "kk"] = "ffd"
    n_mbs: int = 1
    granularity: int = 1
    n_mbs_divisor: int = 1
    padding: PaddingRule = field(default_factory=PaddingRule)

    def __post_init__(self) -> None:
        if self.dispatch not in get_args(Dispatch):
            raise ValueError(f"dispatch is 'controller' or 'spmd', not '{self.dispatch}'.")
        if self.packer not in get_args(Packer):
            raise ValueError(f"packer is 'areal' or 'prefix-aware', not '{self.packer}'.")
        allocator(self.packing_algorithm)
        counts = ("dp_size", "ppo_n_minibatches", "parallel_size", "block_size", "n_mbs")
        for name in (*counts, "granularity", "n_mbs_divisor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; the smallest is 1.")

    @property
    def alignment(self) -> int:
        """What a cap is a multiple of."""
        return math.lcm(self.block_size, self.parallel_size)

    @property
    def micro_batch(self) -> MicroBatchSpec:
        """AReaL's ``mb_spec``; trees read the cap alone, the flat baseline all of it."""
        return MicroBatchSpec(
            n_mbs=self.n_mbs,
            granularity=self.granularity,
            max_tokens_per_mb=self.max_tokens_per_mb,
            n_mbs_divisor=self.n_mbs_divisor,
            packing_algorithm=self.packing_algorithm,
        )
