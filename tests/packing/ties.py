"""Does this machine's numpy order equal values as it did where AReaL's results were made?

numpy's default argsort is unstable and differs with the CPU's instructions, and AReaL uses it.
Where it differs, members of equal length may change places, nothing else.
"""

from __future__ import annotations

import hashlib

import numpy as np

RECORDED = "7802768efe9d377c"


def same_ties() -> bool:
    """Whether the order of a probe with many equal values is the recorded one."""
    probe = -(np.arange(400, dtype=np.int64) ** 2 % 37)
    return hashlib.sha256(np.argsort(probe).astype("<i8").tobytes()).hexdigest()[:16] == RECORDED
