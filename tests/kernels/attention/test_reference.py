"""The dense reference against float64 autograd over the explicit matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import TreeMask, dense_attention
from kernels.attention.reference import dense_attention_with_lse
from tests.kernels.forests import forests, inputs, random_forest, reference, relative_error


@given(forests(), st.sampled_from([(4, 4), (4, 1), (8, 1)]))
@settings(deadline=None, max_examples=40)
def test_float64_equals_the_reference(end: np.ndarray, heads: tuple[int, int]) -> None:
    x = inputs(len(end), batch=2, q_heads=heads[0], kv_heads=heads[1], dtype=torch.float64)
    expected, mask = reference(x, end, 0.3), TreeMask.from_subtree_end(end)
    out, lse = dense_attention_with_lse(x.q, x.k, x.v, mask, 0.3)
    torch.testing.assert_close(lse.detach(), expected.lse, rtol=1e-12, atol=1e-12)
    for got, want in zip(
        (out, *torch.autograd.grad(out, (x.q, x.k, x.v), x.dout)),
        (expected.out, expected.dq, expected.dk, expected.dv),
        strict=True,
    ):
        assert relative_error(got, want) < 1e-12


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-6), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)],
)
def test_lower_precision_is_computed_in_float32(dtype: torch.dtype, tolerance: float) -> None:
    end = random_forest(np.random.default_rng(1), 20, 9, padding=3)
    x = inputs(len(end), dtype=dtype)
    out = dense_attention(x.q, x.k, x.v, TreeMask.from_subtree_end(end), 0.25)
    assert out.dtype == dtype
    assert relative_error(out, reference(x, end, 0.25).out) < tolerance


def test_padding_gives_zeros_and_no_gradient() -> None:
    end = np.array([2, 2, 0, 0, 0], dtype=np.int32)
    x = inputs(5)
    out, lse = dense_attention_with_lse(x.q, x.k, x.v, TreeMask.from_subtree_end(end), 0.25)
    assert not out[:, :, 2:].any() and torch.isneginf(lse[:, :, 2:]).all()
    for gradient in torch.autograd.grad(out, (x.q, x.k, x.v), x.dout):
        assert torch.isfinite(gradient).all() and not gradient[:, :, 2:].any()
