"""Log-probabilities and entropies of every row from one packed forward.

Notable:
- token ``p`` is predicted from its parent: ``logp[p] = log P(ids[p] | hidden[parent[p]])``; a
  parent with many children has one row of logits, which all its children read
- logits exist for one chunk of parents at a time, forward and backward (the backward makes them
  anew), so memory is chunk x vocabulary, and cost follows parents, not nodes or branches
- duplicate rows and rows that are prefixes of others read the same positions, so their losses add
  up as they would row by row
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from packing.layout import TreeLayout

CHUNK_SIZE = 1024


@dataclass(frozen=True, eq=False)
class Transitions:
    """The predictions of one packed tree. N packed tokens, U parents, T predicted tokens.

    n_tokens:  N, padding included
    parents:   int64 ``(U,)``, ascending positions whose logits are needed, each once
    children:  int64 ``(T,)``, predicted positions, grouped by parent
    slots:     int64 ``(T,)``, ascending index into ``parents`` of each child's parent
    targets:   int64 ``(T,)``, token id of each child
    chunks:    ``(parent from, to, child from, to)`` of each chunk, on the host
    row_index: int64 ``(sum of (length - 1),)``, packed position of every token of every row but
               each row's first, which nothing predicts; row after row
    """

    n_tokens: int
    parents: Tensor
    children: Tensor
    slots: Tensor
    targets: Tensor
    chunks: tuple[tuple[int, int, int, int], ...]
    row_index: Tensor

    @classmethod
    def of(
        cls,
        layout: TreeLayout,
        n_tokens: int,
        device: str | torch.device = "cpu",
        chunk_size: int = CHUNK_SIZE,
        every_position: bool = False,
    ) -> Transitions:
        """The transitions of a layout whose forward has ``n_tokens`` positions with padding.

        every_position: ``parents`` are all of the layout's positions, also where rows end
        """
        children = np.flatnonzero(layout.parent >= 0)
        children = children[np.argsort(layout.parent[children], kind="stable")]
        parents: npt.NDArray[np.int32]
        parents, slots = np.unique(layout.parent[children], return_inverse=True)
        if every_position:
            parents, slots = (
                np.arange(layout.n_tokens, dtype=np.int32),
                parents[slots].astype(np.int64),
            )
        cuts = np.append(np.arange(0, len(parents), chunk_size), len(parents))
        child_cuts = np.searchsorted(slots, cuts)
        predicted = np.ones(len(layout.row_positions), dtype=bool)
        starts = layout.row_offsets[:-1]
        predicted[starts[starts < layout.row_offsets[1:]]] = False

        def tensor(array: Any) -> Tensor:
            return torch.as_tensor(array.astype(np.int64), device=device)

        return cls(
            n_tokens=n_tokens,
            parents=tensor(parents),
            children=tensor(children),
            slots=tensor(slots),
            targets=tensor(layout.input_ids[children]),
            chunks=tuple(
                zip(
                    cuts[:-1].tolist(),
                    cuts[1:].tolist(),
                    child_cuts[:-1].tolist(),
                    child_cuts[1:].tolist(),
                    strict=True,
                )
            ),
            row_index=tensor(layout.row_positions[predicted]),
        )


@dataclass(frozen=True, eq=False)
class PackedLogprobs:
    """Per packed position, fp32 (fp64 for an fp64 model).

    logp:    ``(N,)``, log-probability of the token at each position; 0 at roots and padding
    entropy: ``(N,)`` or None, entropy in nats of the distribution that the token was drawn from
    extrema: ``(2, U)`` or None, smallest and largest logit of each parent, without gradient
    """

    logp: Tensor
    entropy: Tensor | None
    transitions: Transitions
    extrema: Tensor | None = None

    def rows(self) -> Tensor:
        """``logp`` of every token but the first of every row, row after row."""
        return self.logp.index_select(0, self.transitions.row_index)

    def row_entropies(self) -> Tensor:
        """``entropy`` of every token but the first of every row, row after row."""
        if self.entropy is None:
            raise ValueError("the forward was not asked for entropies; pass entropy=True")
        return self.entropy.index_select(0, self.transitions.row_index)


def head_logprobs(
    hidden: Tensor,
    weight: Tensor,
    transitions: Transitions,
    bias: Tensor | None = None,
    entropy: bool = False,
    temperature: float = 1.0,
    extrema: bool = False,
) -> PackedLogprobs:
    """Log-probabilities from hidden states ``(N, hidden)`` and a head ``(vocabulary, hidden)``.

    Logits are divided by ``temperature``; ``extrema`` are those before the division.
    """
    logp, of_parents, bounds = _HeadLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, transitions, entropy, temperature, extrema
    )
    zeros = logp.new_zeros(transitions.n_tokens)
    entropies = None
    if entropy:
        at_children = of_parents.index_select(0, transitions.slots)
        entropies = zeros.index_copy(0, transitions.children, at_children)
    packed = zeros.index_copy(0, transitions.children, logp)
    return PackedLogprobs(packed, entropies, transitions, bounds if extrema else None)


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Logits of one chunk in at least fp32; the product itself in the model's dtype."""
    logits = functional.linear(hidden, weight, bias)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class _HeadLogprobs(torch.autograd.Function):
    """Log-probabilities of children ``(T,)``, entropies and extrema of parents, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        transitions: Transitions,
        with_entropy: bool,
        temperature: float,
        with_extrema: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        t = transitions
        wide = torch.promote_types(hidden.dtype, torch.float32)
        logp = hidden.new_empty(len(t.children), dtype=wide)
        normalizer = hidden.new_empty(len(t.parents), dtype=wide)
        entropy = hidden.new_empty(len(t.parents) if with_entropy else 0, dtype=wide)
        extrema = hidden.new_empty((2, len(t.parents) if with_extrema else 0), dtype=wide)
        for u0, u1, c0, c1 in t.chunks:
            logits = _logits(hidden[t.parents[u0:u1]], weight, bias)
            if with_extrema:
                torch.aminmax(logits, dim=-1, out=(extrema[0, u0:u1], extrema[1, u0:u1]))
            if temperature != 1.0:
                logits = logits / temperature
            normalizer[u0:u1] = torch.logsumexp(logits, dim=-1)
            slots = t.slots[c0:c1] - u0
            logp[c0:c1] = logits[slots, t.targets[c0:c1]] - normalizer[u0:u1][slots]
            if with_entropy:
                mean = (torch.softmax(logits, dim=-1) * logits).sum(dim=-1)
                entropy[u0:u1] = normalizer[u0:u1] - mean
        ctx.save_for_backward(hidden, weight, bias, normalizer, entropy)
        ctx.transitions = t
        ctx.with_entropy = with_entropy
        ctx.temperature = temperature
        ctx.mark_non_differentiable(extrema)
        return logp, entropy, extrema

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_logp: Tensor, grad_entropy: Tensor, _: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, None, None, None, None]:
        """With P the softmax, d logp_c / dz = onehot(c) - P and dH / dz = -P (log P + H)."""
        hidden, weight, bias, normalizer, entropy = ctx.saved_tensors
        t, temperature = ctx.transitions, ctx.temperature
        grad_hidden = torch.zeros_like(hidden)
        # many small chunks add up here: bf16 would round each of them away
        grad_weight = torch.zeros_like(weight, dtype=normalizer.dtype)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=normalizer.dtype)
        for u0, u1, c0, c1 in t.chunks:
            parents, slots = t.parents[u0:u1], t.slots[c0:c1] - u0
            log_p = _logits(hidden[parents], weight, bias)
            if temperature != 1.0:
                log_p = log_p / temperature
            log_p.sub_(normalizer[u0:u1, None])
            per_parent = normalizer.new_zeros(u1 - u0).index_add_(0, slots, grad_logp[c0:c1])
            scale = per_parent.neg_()[:, None]
            if ctx.with_entropy:
                of_entropy = grad_entropy[u0:u1, None]
                scale = scale - of_entropy * (log_p + entropy[u0:u1, None])
            grad_logits = log_p.exp_().mul_(scale)
            grad_logits.index_put_((slots, t.targets[c0:c1]), grad_logp[c0:c1], accumulate=True)
            if temperature != 1.0:
                grad_logits.div_(temperature)
            if grad_bias is not None:
                grad_bias += grad_logits.sum(dim=0)
            narrow = grad_logits.to(hidden.dtype)
            grad_hidden[parents] = narrow @ weight
            grad_weight += narrow.T @ hidden[parents]
        return (
            grad_hidden,
            grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(weight.dtype),
            None,
            None,
            None,
            None,
        )
