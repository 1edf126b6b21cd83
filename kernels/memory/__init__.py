"""Peak memory of a training step without running it, and a budget that is enforced."""

from kernels.memory.curve import MemoryCurve
from kernels.memory.limit import limit_memory
from kernels.memory.peak import MemoryEstimate, estimate_memory
from kernels.memory.stand_ins import AREAL_CHUNK, BLOCK_MASK_TRANSIENT
from kernels.memory.trace import Target

__all__ = [
    "AREAL_CHUNK",
    "BLOCK_MASK_TRANSIENT",
    "MemoryCurve",
    "MemoryEstimate",
    "Target",
    "estimate_memory",
    "limit_memory",
]
