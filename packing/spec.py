"""MicroBatchSpec: AReaL's ``mb_spec``, and its checks before it packs trees."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Literal

BLOCK_SIZE = 128
"""AReaL's tile edge (``AREAL_FLEX_ATTENTION_BLOCK_SIZE``); caps are multiples of it."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MicroBatchSpec:
    """AReaL's ``mb_spec``; trees read only ``max_tokens_per_mb``."""

    max_tokens_per_mb: int | None = None
    n_mbs: int = 1
    granularity: int = 1
    n_mbs_divisor: int = 1
    packing_algorithm: Literal["ffd", "kk"] = "ffd"


def check_spec(
    spec: MicroBatchSpec,
    pad_to_maximum: bool = True,
    parallel_size: int = 1,
    block_size: int = BLOCK_SIZE,
) -> int:
    """AReaL's checks before it packs, in its order and words.

    Returns the cap. Raises ValueError.
    """
    if (spec.n_mbs, spec.granularity, spec.n_mbs_divisor) != (1, 1, 1):
        _logger.warning(
            "`n_mbs`, `granularity` and `n_mbs_divisor` is currently not effective "
            "for tree packing."
        )
    cap = spec.max_tokens_per_mb
    if cap is None or cap <= 0:
        raise ValueError(
            "MicroBatchSpec.max_tokens_per_mb must be a positive value for tree training."
        )
    if not pad_to_maximum:
        raise ValueError(
            "No padding is not supported for tree training. "
            "Block masks require padded sequences for efficient computation. "
            "Please set pad_to_maximum=True."
        )
    align = math.lcm(block_size, parallel_size)
    if cap % align:
        raise ValueError(
            f"max_tokens_per_tree ({cap}) must be a multiple of {align} (lcm of "
            f"BLOCK_SIZE={block_size} and parallel_size={parallel_size}) when pad_to_maximum=True."
        )
    return cap


def aligned(cap: int, alignment: int = BLOCK_SIZE) -> int:
    """The smallest multiple of ``alignment`` that is at least ``cap``."""
    return -(-cap // alignment) * alignment
