"""Token losses over per-row log-probabilities, and the weights that make every packing equal.

Notable:
- a normalisation is a weight per token that sums to one over the whole batch, made before any
  micro-batch is cut; so how rows are packed never changes a gradient
- all tensors here are flat, one value per predicted token, row after row (each row's first token
  has no prediction)
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn import functional

from packing.rows import Rows

Normalisation = Literal["token-mean", "sequence-mean"]
Floats = npt.NDArray[np.float32]


def token_weights(rows: Rows, normalisation: Normalisation = "token-mean") -> Floats:
    """float32 ``(total,)``: the weight of each token's loss; 0 at masked and at first tokens.

    token-mean:    every trained token of the batch weighs the same
    sequence-mean: every row with a trained token weighs the same, its tokens sharing its weight
    Raises ValueError where no token is trained.
    """
    trained = np.ones(rows.n_tokens, dtype=np.float64)
    if rows.loss_mask is not None:
        trained[:] = rows.loss_mask
    trained[rows.offsets[:-1][rows.lengths > 0]] = 0.0
    total = float(trained.sum())
    if not total:
        raise ValueError(
            "no token is trained on: every row has at most one token, or the loss mask is all 0"
        )
    if normalisation == "token-mean":
        trained /= total
    else:
        running = np.concatenate([[0.0], np.cumsum(trained)])
        per_row = running[rows.offsets[1:]] - running[rows.offsets[:-1]]
        trained /= np.repeat(np.maximum(per_row, 1.0), rows.lengths) * np.count_nonzero(per_row)
    return trained.astype(np.float32)


def policy_loss(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, weights: Tensor, clip: float = 0.2
) -> Tensor:
    """PPO's clipped loss (https://arxiv.org/abs/1707.06347, eq. 7); GRPO's per token as well.

    With r = exp(logp - old_logp): ``-sum w min(r A, clip(r, 1 - clip, 1 + clip) A)``, a scalar.
    """
    ratio = (logp - old_logp).exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    gain = (ratio * advantages).minimum(clipped * advantages)
    return -(weights * gain).sum()


def sft_loss(logp: Tensor, weights: Tensor) -> Tensor:
    """Cross entropy ``-sum w logp``, a scalar."""
    return -(weights * logp).sum()


def dpo_loss(
    row_logp: Tensor, reference_row_logp: Tensor, chosen: Tensor, rejected: Tensor, beta: float
) -> Tensor:
    """Direct preference optimisation (https://arxiv.org/abs/2305.18290, eq. 7), mean over pairs.

    row_logp, reference_row_logp: ``(R,)``, a row's log-probabilities summed over its trained
    tokens, of the model and of the frozen reference; see ``PackedLogprobs.row_sums``
    chosen, rejected: int64 ``(P,)``, the two rows of each pair, which share their prompt; a row
    may stand in many pairs
    """
    gain = row_logp - reference_row_logp
    margin = gain.index_select(0, chosen) - gain.index_select(0, rejected)
    return -functional.logsigmoid(beta * margin).mean()
