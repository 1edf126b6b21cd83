"""One tree of a plan's packing as an attention problem: its mask, a model's heads, inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kernels.attention import TreeMask
from kernels.model import check_config, resolve_config
from packing.layout import depth_first_layout
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.spec import BLOCK_SIZE
from tuning.measure.machine import machine_name, versions
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan


def usable_device(name: str) -> torch.device:
    """The device of a plan; raises ValueError where this machine does not have it."""
    there = torch.cuda.device_count()
    known = ["cpu", *(f"cuda:{index}" for index in range(there))]
    if name not in (*known, *(["cuda"] if there else [])):
        raise ValueError(
            f"{name} is no device that PyTorch {torch.__version__} sees on this machine; choose "
            f"one of {', '.join(known)}"
        )
    return torch.device(name)


@dataclass(frozen=True, eq=False)
class KernelProblem:
    """Attention over tree ``tree`` of ``trees``: shapes from the plan's model, no weights needed.

    row_lengths: int64 ``(R,)``, tokens of the rows in the tree
    """

    plan: TuningPlan
    tree: int
    trees: int
    mask: TreeMask
    row_lengths: npt.NDArray[np.int64]
    query_heads: int
    key_heads: int
    head_dim: int

    @classmethod
    def of(cls, plan: TuningPlan, rows: Rows, tree: int) -> KernelProblem:
        """Raises ValueError where there is no such tree, or the model cannot follow a tree.

        rows: the batch of the plan, as ``tuning.plan.batch.batch_rows`` draws it
        """
        forest = Batch(rows, PrefixOrder.of(rows)).simulation(plan).forest
        if not 0 <= tree < len(forest):
            raise ValueError(
                f"there is no tree {tree}: this packing has {len(forest)}, counted from 0"
            )
        config = resolve_config(plan.model)
        check_config(config)
        heads = int(config.num_attention_heads)
        trie = forest.tree(tree)
        if not trie.n_tokens:
            raise ValueError(f"tree {tree} has no tokens: there is nothing to attend to")
        ends = depth_first_layout(rows, trie).subtree_end
        assert ends is not None  # the depth-first order has it
        return cls(
            plan,
            tree,
            len(forest),
            TreeMask.from_subtree_end(ends, usable_device(plan.device)),
            rows.lengths[trie.rows],
            heads,
            int(getattr(config, "num_key_value_heads", None) or heads),
            int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        )

    @property
    def device(self) -> torch.device:
        return self.mask.device

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.plan.dtype)
        return found

    @property
    def group(self) -> int:
        """Query heads of one key head."""
        return self.query_heads // self.key_heads

    def inputs(self, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v that need gradients, and dout: normal, ``(1, heads, N, D)`` each."""
        generator = torch.Generator().manual_seed(seed)

        def random(heads: int) -> Tensor:
            shape = (1, heads, self.mask.n, self.head_dim)
            return torch.randn(shape, generator=generator).to(self.device, self.dtype)

        q, k, v = (random(h).requires_grad_() for h in (self.query_heads, *2 * [self.key_heads]))
        return q, k, v, random(self.query_heads)

    def flops(self, area: int) -> float:
        """Of a forward pass: two products of D multiply-adds per visible pair and query head.

        A backward pass has five such products for the forward's two: 2.5 times as much
        (FlashAttention-2, arXiv 2307.08691, section 4.1).
        """
        return 4.0 * area * self.query_heads * self.head_dim

    def facts(self) -> Mapping[str, Any]:
        """What is asked and where, as plain values."""
        return {
            "tree": self.tree,
            "trees": self.trees,
            "tokens": self.mask.n,
            "rows": len(self.row_lengths),
            "row_tokens": int(self.row_lengths.sum()),
            "nodes": len(self.mask.nodes),
            "mask_area": self.mask.mask_area,
            "block_efficiency": self.mask.block_efficiency(BLOCK_SIZE, BLOCK_SIZE),
            "query_heads": self.query_heads,
            "key_heads": self.key_heads,
            "head_dim": self.head_dim,
            "model": self.plan.model,
            "dtype": self.plan.dtype,
            "device": self.plan.device,
            "machine": machine_name(self.device),
            "versions": versions(self.device),
        }
