"""AReaL's gathers of log-probabilities, entropies and logit extrema from one packed tree.

Notable:
- "logits" of a fused head are ``(S, FUSED_WIDTH)`` and hold the answers already
- real logits go through AReaL's own ``gather_logprobs``: its compiled code, and vocabularies that
  are split over tensor parallel ranks. All transitions are one gather, where AReaL cuts the logits
  once a node: each cut costs a whole gradient of the logits
- per row AReaL has as many entries as tokens, entry i about token i + 1; the last, about a token
  that is not there, is masked in every loss, and 0 here
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from kernels.integrations.areal.model import FUSED_WIDTH
from kernels.integrations.areal.trees import PackedTree
from kernels.model import Transitions


def gather_row_logprobs(
    logits: Tensor,
    trie: PackedTree,
    input_ids: Tensor,
    temperature: float = 1.0,
    chunk_size: int = 1024,
    tp_group: dist.ProcessGroup | None = None,
) -> dict[int, Tensor]:
    """``_gather_packed_tree_logprobs``: row number to its log-probabilities ``(len,)``."""
    (logp,) = _by_row(logits, trie, temperature, chunk_size, tp_group, entropy=False)
    return dict(zip(trie.all_sequence_ids, torch.split(logp, trie.lengths), strict=True))


def gather_logprobs_entropy(
    logits: Tensor,
    trie: PackedTree,
    input_ids: Tensor,
    temperature: float = 1.0,
    chunk_size: int = 1024,
    tp_group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Tensor]:
    """``gather_packed_tree_logprobs_entropy``: both ``(L,)``, row after row."""
    logp, entropy = _by_row(logits, trie, temperature, chunk_size, tp_group, entropy=True)
    return logp, entropy


@torch.no_grad()
def gather_vocab_stats(logits: Tensor, trie: PackedTree) -> tuple[Tensor, Tensor]:
    """``gather_packed_tree_vocab_stats``: smallest and largest logit ``(L,)``, row after row."""
    at = torch.as_tensor(trie.layout.row_positions, device=logits.device).long()
    if logits.shape[-1] == FUSED_WIDTH:
        _, _, low, high = logits.unbind(-1)
    else:
        low, high = torch.aminmax(logits, dim=-1)
    return low.float()[at], high.float()[at]


def _by_row(
    logits: Tensor,
    trie: PackedTree,
    temperature: float,
    chunk_size: int,
    tp_group: dist.ProcessGroup | None,
    entropy: bool,
) -> list[Tensor]:
    """Log-probabilities and perhaps entropies ``(L,)``, fp32, row after row."""
    t = trie.transitions(logits.device)
    if logits.shape[-1] == FUSED_WIDTH:
        packed = list(logits.unbind(-1)[: 1 + entropy])
    else:
        packed = _gathered(logits, t, temperature, chunk_size, tp_group, entropy)
    predicted = np.ones(len(trie.layout.row_positions), dtype=bool)
    predicted[trie.layout.row_offsets[1:] - 1] = False
    entries = torch.as_tensor(np.flatnonzero(predicted), device=logits.device)
    flat = packed[0].new_zeros(len(predicted))
    return [flat.index_copy(0, entries, values.index_select(0, t.row_index)) for values in packed]


def _gathered(
    logits: Tensor,
    t: Transitions,
    temperature: float,
    chunk_size: int,
    tp_group: dist.ProcessGroup | None,
    entropy: bool,
) -> list[Tensor]:
    """The same at each child's position ``(S,)``, from logits ``(S, vocabulary or its share)``."""
    from areal.utils import functional

    if not len(t.children):  # no row has a second token
        return [logits.sum(-1).float() * 0.0] * (1 + entropy)
    gather = functional.gather_logprobs_entropy if entropy else functional.gather_logprobs
    of_parents = logits[t.parents[t.slots]]
    found = gather(of_parents, t.targets, temperature, tp_group=tp_group, chunk_size=chunk_size)
    zeros = logits.new_zeros(t.n_tokens, dtype=torch.float)
    return [zeros.index_copy(0, t.children, x) for x in (found if entropy else [found])]
