"""A budget of memory that the allocator or the system enforces: more than it runs out."""

from __future__ import annotations

import sys

import psutil
import torch


def limit_memory(device: torch.device, budget_bytes: int) -> None:
    """From here on this process gets no more than ``budget_bytes`` on ``device``.

    On a CPU private memory may grow by so much (Linux; elsewhere nothing is enforced).
    """
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(budget_bytes / total, 1.0), device)
    elif sys.platform == "linux":
        import resource

        # Threads of the math libraries start now, while there is room for their stacks.
        torch.ones(64, 64) @ torch.ones(64, 64)
        limit = psutil.Process().memory_info().data + budget_bytes
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
