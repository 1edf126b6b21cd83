"""Peak memory of a training step without running it, and a budget that is enforced."""

from kernels.memory.limit import limit_memory
from kernels.memory.peak import estimate_memory

__all__ = ["estimate_memory", "limit_memory"]
