"""Cascade: its plan covers the mask exactly, and results are those of the float64 reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.attention import CascadePlan, Index, TreeMask, tree_attention
from kernels.attention import cascade_plan as _cascade_plan
from kernels.attention.cascade import cascade_unavailable
from kernels.attention.cascade_plan import Call, Kind
from tests.kernels.forests import (
    Inputs,
    caterpillar,
    forests,
    inputs,
    prompt_groups,
    random_forest,
    reference,
    relative_error,
    subtree_end_of,
    visible,
)

# (LONG_NODE, LONG_SUBTREE, OWN_SEGMENT, SHARED_SEGMENT); small ones reach all code on small trees
BOUNDS = [(512, 768, 64, 128), (8, 8, 4, 8), (4, 1, 3, 16), (10, 20, 10, 6)]


@pytest.fixture(params=BOUNDS, ids=str)
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    names = ("LONG_NODE", "LONG_SUBTREE", "OWN_SEGMENT", "SHARED_SEGMENT")
    for name, value in zip(names, request.param, strict=True):
        monkeypatch.setattr(_cascade_plan, name, value)
    yield


def worst_error(x: Inputs, end: np.ndarray, scale: float = 0.25) -> float:
    expected = reference(x, end, scale)
    out = tree_attention(x.q, x.k, x.v, TreeMask.from_subtree_end(end), scale, "cascade")
    assert out.dtype == x.q.dtype and out.shape == x.q.shape
    got = (out, *torch.autograd.grad(out, (x.q, x.k, x.v), x.dout))
    wanted = (expected.out, expected.dq, expected.dk, expected.dv)
    return max(relative_error(g, w) for g, w in zip(got, wanted, strict=True))


def size(index: Index) -> int:
    return index.stop - index.start if isinstance(index, slice) else len(index)


@pytest.mark.usefixtures("bounds")
@given(forests(max_nodes=25))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_calls_cover_every_visible_pair_once(end: np.ndarray) -> None:
    seen = visible(end)
    covered = np.zeros(seen.shape, dtype=int)
    has_own_key = np.zeros(len(end), dtype=bool)
    for call in CascadePlan(TreeMask.from_subtree_end(end)).calls():
        block = np.zeros_like(seen)
        block[call.queries, call.keys] = True
        if call.kind is Kind.CAUSAL:
            assert call.keys == call.queries
            block &= np.tri(len(end), dtype=bool)
        elif call.kind is Kind.MASKED:
            block &= seen
        if call.kind is Kind.FULL:
            assert has_own_key[call.queries].all()
        else:
            assert not has_own_key[call.queries].any()
            has_own_key[call.queries] = True
        covered += block
    np.testing.assert_array_equal(covered, seen)


@pytest.mark.usefixtures("bounds")
@given(forests(), st.sampled_from([(4, 4), (4, 1), (8, 1), (8, 2)]), st.integers(1, 2))
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_float32_is_within_1e_5_of_float64(
    end: np.ndarray, heads: tuple[int, int], batch: int
) -> None:
    x = inputs(len(end), batch=batch, q_heads=heads[0], kv_heads=heads[1])
    assert worst_error(x, end) < 1e-5


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(subtree_end_of([(-1, 700)], 4), id="one node"),
        pytest.param(random_forest(np.random.default_rng(0), 500, 4, padding=3), id="500 nodes"),
        pytest.param(prompt_groups(1, 4, 520, 200), id="a long prompt"),
        pytest.param(prompt_groups(4, 5, 40, 60), id="prompts and completions"),
        pytest.param(caterpillar(60, 5, 6, branch_first=True), id="turns, branch first"),
        pytest.param(caterpillar(60, 5, 6, branch_first=False), id="turns, branch last"),
        pytest.param(random_forest(np.random.default_rng(1), 900, 1, roots=0), id="single tokens"),
    ],
)
def test_shapes_of_trees(end: np.ndarray) -> None:
    assert worst_error(inputs(len(end), q_heads=2, kv_heads=1), end) < 1e-5


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-13), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)],
)
def test_dtypes(dtype: torch.dtype, tolerance: float) -> None:
    end = random_forest(np.random.default_rng(2), 60, 8, padding=5)
    assert worst_error(inputs(len(end), dtype=dtype), end) < tolerance


def test_any_strides() -> None:
    end = random_forest(np.random.default_rng(3), 30, 9, padding=2)
    x = inputs(len(end), batch=2)
    q, k, v = (t.detach().mT.contiguous().mT.requires_grad_() for t in (x.q, x.k, x.v))
    assert all(t.stride(-1) != 1 for t in (q, k, v))
    dout = x.dout.transpose(1, 2).contiguous().transpose(1, 2)
    assert worst_error(Inputs(q, k, v, dout), end) < 1e-5
    one = torch.ones((), dtype=torch.float32).expand(x.dout.shape)  # what sum().backward() passes
    dout = x.dout.transpose(1, 2).contiguous().transpose(1, 2)
    assert worst_error(Inputs(q, k, v, dout), end) < 1e-5
    one = torch.ones((), dtype=torch.float32).expand(x.dout.shape)  # what sum().backward() passes
    assert worst_error(Inputs(x.q, x.k, x.v, one), end) < 1e-5


def test_all_padding_gives_zeros_and_no_gradient() -> None:
    x = inputs(6)
    mask = TreeMask.from_subtree_end(np.zeros(6, dtype=np.int32))
    out = tree_attention(x.q, x.k, x.v, mask, 0.25, "cascade")
    assert not out.any()
    assert not any(g.any() for g in torch.autograd.grad(out, (x.q, x.k, x.v), x.dout))


def area(call: Call) -> int:
    """Pairs that the call computes: the flash operators leave out what is after the diagonal."""
    queries = size(call.queries)
    if call.kind is Kind.CAUSAL:
        return queries * (queries + 1) // 2
    return queries * size(call.keys)


def test_thousands_of_nodes_are_not_thousands_of_calls() -> None:
    bushy = TreeMask.from_subtree_end(random_forest(np.random.default_rng(4), 2000, 4, roots=0))
    assert len(list(CascadePlan(bushy).calls())) < 200
    # One path of first children is one causal call, whatever branches off it.
    chain = TreeMask.from_subtree_end(prompt_groups(40, 1, 30, 100))
    assert [call.kind for call in CascadePlan(chain).calls()] == [Kind.CAUSAL] * 40
    star = TreeMask.from_subtree_end(prompt_groups(1, 2000, 4, 4))
    assert len(list(CascadePlan(star).calls())) < 100


def test_ten_thousand_nested_turns_cost_few_calls_and_little_more_than_their_area() -> None:
    for branch_first in (True, False):
        end = caterpillar(10_000, 2, 2, branch_first=branch_first)
        mask = TreeMask.from_subtree_end(end)
        calls = list(CascadePlan(mask).calls())
        assert len(calls) < 3 * len(end) / _cascade_plan.SHARED_SEGMENT
        pairs = sum(area(call) for call in calls)
        assert pairs < 1.1 * mask.mask_area


def test_twice_differentiating_is_refused() -> None:
    x = inputs(4)
    mask = TreeMask.from_subtree_end(np.full(4, 4, dtype=np.int32))
    out = tree_attention(x.q, x.k, x.v, mask, 0.25, "cascade")
    (gradient,) = torch.autograd.grad(out.square().sum(), x.q, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        gradient.sum().backward()


def test_it_says_why_it_cannot_run() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert cascade_unavailable(cpu, torch.float32, 7) is None
    assert "not float8_e5m2" in (cascade_unavailable(cpu, torch.float8_e5m2, 64) or "")
    assert "not float32" in (cascade_unavailable(cuda, torch.float32, 64) or "")
    assert "not 100" in (cascade_unavailable(cuda, torch.bfloat16, 100) or "")
    assert "not on mps" in (cascade_unavailable(torch.device("mps"), torch.float32, 64) or "")
