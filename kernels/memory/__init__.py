"""Peak memory of a training step without running it, and a budget that is enforced."""

from kernels.memory.curve import MemoryCurve
from kernels.memory.limit import limit_memory
from kernels.memory.peak import MemoryEstimate, estimate_memory
from kernels.memory.stand_ins import BLOCK_MASK_TRANSIENT

__all__ = [
    "BLOCK_MASK_TRANSIENT",
    "MemoryCurve",
    "MemoryEstimate",
    "estimate_memory",
    "limit_memory",
]
