"""Log-probabilities, entropies and losses against full logits and plain autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.model import Transitions, head_logprobs, policy_loss, sft_loss, token_weights
from packing.rows import Rows
from tests.kernels.layouts import VOCABULARY, awkward_rows, one_tree

torch.set_num_threads(1)


def plain_row_values(
    rows: Rows, hidden_at: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Full logits of every row by itself; ``hidden_at`` one hidden state per token of ``rows``."""
    logps, entropies = [], []
    for i in range(len(rows)):
        start, end = rows.offsets[i], rows.offsets[i + 1]
        if end - start < 2:
            continue
        logits = hidden_at[start : end - 1] @ weight.T + (0 if bias is None else bias)
        log_p = torch.log_softmax(logits, dim=-1)
        targets = torch.tensor(rows.tokens[start + 1 : end], dtype=torch.int64)
        logps.append(log_p.gather(1, targets[:, None])[:, 0])
        entropies.append(-(log_p.exp() * log_p).sum(-1))
    return torch.cat(logps), torch.cat(entropies)


@pytest.mark.parametrize("chunk_size", [1, 7, 1024])
@pytest.mark.parametrize("with_bias", [False, True])
def test_values_and_gradients_equal_full_logits(chunk_size: int, with_bias: bool) -> None:
    rows = awkward_rows()
    fed = rows.take(np.flatnonzero(rows.lengths > 0))
    layout = one_tree(fed)
    rng = torch.Generator().manual_seed(1)
    n, size = layout.n_tokens + 5, 12

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=rng)

    hidden, weight, bias = random(n, size), random(VOCABULARY, size), random(VOCABULARY)
    count = len(layout.row_positions) - len(fed)
    of_logp, of_entropy = random(count), random(count)

    def leaves() -> list[torch.Tensor]:
        used = [hidden, weight, *([bias] if with_bias else [])]
        return [x.clone().requires_grad_() for x in used]

    ours = leaves()
    packed = head_logprobs(
        ours[0],
        ours[1],
        Transitions.of(layout, n, chunk_size=chunk_size),
        ours[2] if with_bias else None,
        entropy=True,
    )
    (packed.rows() @ of_logp + packed.row_entropies() @ of_entropy).backward()

    plain = leaves()
    taken = fed.take(layout.rows)
    hidden_at = plain[0][torch.tensor(layout.row_positions, dtype=torch.int64)]
    logp, entropy = plain_row_values(taken, hidden_at, plain[1], plain[2] if with_bias else None)
    (logp @ of_logp + entropy @ of_entropy).backward()

    assert len(logp) == count > 100
    torch.testing.assert_close(packed.rows(), logp, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(packed.row_entropies(), entropy, rtol=1e-12, atol=1e-12)
    for x, y in zip(ours, plain, strict=True):
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-11, atol=1e-12)


def test_each_logit_row_is_made_once_however_many_children() -> None:
    fan = Rows.from_lists([[1, 2, 3, child] for child in range(10, 60)])
    transitions = Transitions.of(one_tree(fan), 53)
    assert len(transitions.parents) == 3
    assert len(transitions.children) == 52
    assert transitions.chunks == ((0, 3, 0, 52),)


def test_roots_padding_and_an_empty_tree_have_no_prediction() -> None:
    two_roots = one_tree(Rows.from_lists([[1, 2], [3]]))
    weight = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    hidden = torch.ones(5, 4, requires_grad=True)
    packed = head_logprobs(hidden, weight, Transitions.of(two_roots, 5))
    assert torch.count_nonzero(packed.logp) == 1 and packed.logp[1] < 0
    with pytest.raises(ValueError, match="entropy=True"):
        packed.row_entropies()

    empty = one_tree(Rows.from_lists([[]]))
    nothing = head_logprobs(hidden, weight, Transitions.of(empty, 5)).rows()
    assert nothing.shape == (0,)
    nothing.sum().backward()
    assert hidden.grad is not None and torch.count_nonzero(hidden.grad) == 0


class _Largest(TorchDispatchMode):
    """Remembers the most elements that any operation returned."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.numel())
        return out


def test_full_logits_never_exist() -> None:
    vocabulary, tokens, chunk = 5_000, 600, 16
    layout = one_tree(Rows.from_lists([list(range(tokens))]))
    hidden = torch.zeros(tokens, 4, requires_grad=True)
    weight = torch.zeros(vocabulary, 4, requires_grad=True)
    with _Largest() as seen:
        packed = head_logprobs(hidden, weight, Transitions.of(layout, tokens, chunk_size=chunk))
        packed.rows().sum().backward()
    assert seen.elements == chunk * vocabulary


def test_half_precision_weight_gradients_add_up_in_fp32() -> None:
    rows = Rows.from_lists([list(range(1, 190))])
    layout = one_tree(rows)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(189, 16, generator=generator)
    weight = torch.randn(VOCABULARY, 16, generator=generator)

    def gradient(dtype: torch.dtype, chunk_size: int) -> torch.Tensor:
        leaf = weight.to(dtype, copy=True).requires_grad_()
        transitions = Transitions.of(layout, 189, chunk_size=chunk_size)
        head_logprobs(hidden.to(dtype), leaf, transitions).rows().sum().backward()
        assert leaf.grad is not None
        return leaf.grad.double()

    exact = gradient(torch.float32, 1024)
    one_chunk = (gradient(torch.bfloat16, 1024) - exact).abs().mean()
    many_chunks = (gradient(torch.bfloat16, 2) - exact).abs().mean()
    assert many_chunks < 1.5 * one_chunk


masks = st.lists(st.lists(st.integers(0, 1), max_size=6), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(masks)
def test_weights_give_the_means_they_are_named_after(mask: list[list[int]]) -> None:
    rows = Rows.from_lists([[7] * len(m) for m in mask], loss_mask=mask)
    trained = [m[1:] for m in mask]  # nothing predicts a first token
    losses = np.random.default_rng(0).standard_normal(rows.n_tokens)
    per_row = np.split(losses, rows.offsets[1:-1])
    picked = [
        [x for x, keep in zip(row[1:], m, strict=True) if keep]
        for row, m in zip(per_row, trained, strict=True)
    ]
    if not any(picked):
        with pytest.raises(ValueError, match="no token is trained"):
            token_weights(rows)
        return
    token_mean = np.mean([x for row in picked for x in row])
    sequence_mean = np.mean([np.mean(row) for row in picked if row])
    assert np.isclose(token_weights(rows) @ losses, token_mean, atol=1e-6)
    assert np.isclose(token_weights(rows, "sequence-mean") @ losses, sequence_mean, atol=1e-6)


def test_policy_loss_follows_the_clip() -> None:
    old = torch.zeros(4, dtype=torch.float64)
    ratio = torch.tensor([2.0, 0.5, 2.0, 0.5], dtype=torch.float64)
    logp = ratio.log().requires_grad_()
    advantages = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    loss = policy_loss(logp, old, advantages, torch.ones(4, dtype=torch.float64), clip=0.2)
    assert loss.item() == pytest.approx(-(1.2 - 0.8 - 2.0 + 0.5))
    loss.backward()
    # the first two are clipped where the clip is the lesser gain: no gradient
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([0.0, 0.0, 2.0, -0.5])


def test_policy_loss_on_policy_and_sft_loss_have_the_same_gradient_at_advantage_one() -> None:
    logp = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    weights = torch.tensor([0.5, 0.25, 0.25])
    policy_loss(logp, logp.detach(), torch.ones(3), weights).backward()
    policy = logp.grad
    logp.grad = None
    sft_loss(logp, weights).backward()
    assert policy is not None and logp.grad is not None
    torch.testing.assert_close(policy, logp.grad)
    assert sft_loss(logp, weights).item() == pytest.approx(1.75)
