"""The model of one engine: its attention follows the tree, and its head makes no logits.

Notable:
- the head gives what AReaL's loss needs of the logits, chunk by chunk:
  an ``(S, vocabulary)`` tensor never exists, forward or backward; temperature, entropies and the
  extrema that AReaL logs come out of the same chunks
- its output is no logits: it has its own width, by which the gathers know it
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kernels.integrations.areal.trees import EngineTree
from kernels.model import head_logprobs, output_head

FUSED_WIDTH = 4
"""Per position: log-probability of its token and entropy of what that was drawn from (0 at roots
and padding); smallest and largest logit of what it predicts itself (0 at padding)."""


def fuse_head(lm: PreTrainedModel, temperature: float) -> None:
    """Make ``lm``'s head give ``(1, S, FUSED_WIDTH)`` for the tree of each forward."""
    head = output_head(lm)
    current: list[EngineTree] = []

    def remember(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        current[:] = [kwargs["espalier_tree"]]

    def forward(hidden: Tensor) -> Tensor:
        t = current.pop().tree.transitions(hidden.device, every_position=True)
        out = head_logprobs(
            hidden[0], head.weight, t, head.bias, True, temperature=temperature, extrema=True
        )
        assert out.entropy is not None and out.extrema is not None
        extrema = out.logp.new_zeros(2, t.n_tokens).index_copy(1, t.parents, out.extrema)
        return torch.stack([out.logp, out.entropy, *extrema], dim=-1)[None]

    lm.register_forward_pre_hook(remember, with_kwargs=True)
    head.forward = forward  # type: ignore[method-assign, assignment]
