"""Masks of packed forests, and attention over them: pure PyTorch here, Triton next door."""

from kernels.attention.cascade_plan import CascadePlan, Index
from kernels.attention.flex import BLOCK_SIZE, tree_block_mask
from kernels.attention.kwargs import build_tree_attn_kwargs
from kernels.attention.mask import MaskError, TreeMask, TreeNodes
from kernels.attention.reference import dense_attention
from kernels.attention.registry import BACKENDS, tree_attention, unavailable

__all__ = [
    "BACKENDS",
    "BLOCK_SIZE",
    "CascadePlan",
    "Index",
    "MaskError",
    "TreeMask",
    "TreeNodes",
    "build_tree_attn_kwargs",
    "dense_attention",
    "tree_attention",
    "tree_block_mask",
    "unavailable",
]
