"""tree_attention as an operator: compiled whole for any N, found by its mask's tensor."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from kernels.attention import TreeMask, tree_attention
from kernels.attention import mask as masks
from tests.kernels.forests import (
    Inputs,
    Int32s,
    inputs,
    prompt_groups,
    random_forest,
    reference,
    relative_error,
)

torch.set_num_threads(1)

# A decoder layer goes through inductor in every run of the suite: model/test_compile.py.
COMPILERS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.deep)]

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # inductor's


def forest(seed: int) -> Int32s:
    """More tokens with each seed."""
    return random_forest(np.random.default_rng(seed), 20 + 5 * seed, 9, padding=seed)


def check(out: torch.Tensor, x: Inputs, end: Int32s) -> None:
    expected = reference(x, end)
    assert relative_error(out, expected.out) < 1e-5
    gradients = torch.autograd.grad(out, (x.q, x.k, x.v), x.dout)
    for got, want in zip(gradients, (expected.dq, expected.dk, expected.dv), strict=True):
        assert relative_error(got, want) < 1e-5


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("backend", ["auto", "dense"])
def test_one_graph_serves_every_number_of_tokens(compiler: str, backend: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    @torch.compile(backend=compiler, fullgraph=True, dynamic=True)
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: TreeMask) -> torch.Tensor:
        return tree_attention(q * 2, k, v, mask, backend=backend) / 2

    for seed in range(4):
        end = forest(seed)
        x = inputs(len(end))
        doubled = Inputs((2 * x.q).detach().requires_grad_(), x.k, x.v, x.dout)
        out = attend(x.q, x.k, x.v, TreeMask.from_subtree_end(end))
        expected = reference(doubled, end)
        assert relative_error(2 * out, expected.out) < 1e-5
        found = torch.autograd.grad(out, (x.q, x.k, x.v), x.dout)
        for got, want in zip(found, (2 * expected.dq, expected.dk, expected.dv), strict=True):
            assert relative_error(2 * got, want) < 2e-5
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("backend", ["cascade", "dense"])
def test_the_operator_is_what_torch_asks_of_one(backend: str) -> None:
    end = forest(1)
    x = inputs(len(end))
    mask = TreeMask.from_subtree_end(end)
    operator = torch.ops.espalier.tree_attention.default
    torch.library.opcheck(operator, (x.q, x.k, x.v, mask.subtree_end, 0.25, backend))
    out, lse = operator(x.q.detach(), x.k.detach(), x.v.detach(), mask.subtree_end, 0.25, backend)
    saved = (x.dout, x.q, x.k, x.v, out, lse, mask.subtree_end, 0.25, backend)
    tests = ("test_schema", "test_faketensor")
    given = tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in saved)
    backward = torch.ops.espalier.tree_attention_backward.default
    torch.library.opcheck(backward, given, test_utils=tests)


def test_flex_does_not_go_into_a_compiled_model() -> None:
    end = forest(0)
    x = inputs(len(end))
    attend = torch.compile(tree_attention, backend="eager", fullgraph=True)
    with torch.no_grad(), pytest.raises(Exception, match="the flex backend is no operator"):
        attend(x.q, x.k, x.v, TreeMask.from_subtree_end(end), backend="flex")


@pytest.mark.parametrize("backend", ["auto", "dense"])
def test_vmap_is_refused_and_told_what_to_do(backend: str) -> None:
    end = forest(0)
    x = inputs(len(end))
    mask = TreeMask.from_subtree_end(end)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return tree_attention(q, k, v, mask, backend=backend)

    with pytest.raises(RuntimeError, match="its own batch axis B is there for that"):
        torch.vmap(attend)(x.q[None], x.k[None], x.v[None])


def test_a_mask_is_found_again_by_its_tensor_and_made_anew_where_it_is_gone() -> None:
    end = forest(2)
    mask = TreeMask.from_subtree_end(end)
    assert TreeMask.of_tensor(mask.subtree_end) is mask
    copy = mask.subtree_end.clone()
    again = TreeMask.of_tensor(copy)
    assert again is not mask and TreeMask.of_tensor(copy) is again
    np.testing.assert_array_equal(again.on_host, end)
    for seed in range(masks._KEPT):
        TreeMask.from_subtree_end(forest(seed + 3))
    gc.collect()
    assert TreeMask.of_tensor(mask.subtree_end) is not mask


def test_many_masks_between_forward_and_backward_change_no_gradient() -> None:
    ends = [forest(seed) for seed in range(masks._KEPT + 3)]
    given = [inputs(len(end), seed=seed) for seed, end in enumerate(ends)]
    outs = [
        tree_attention(x.q, x.k, x.v, TreeMask.from_subtree_end(end))
        for x, end in zip(given, ends, strict=True)
    ]
    for out, x, end in zip(outs, given, ends, strict=True):
        check(out, x, end)


def test_a_tensor_written_anew_is_another_mask() -> None:
    """As a buffer that is filled before every step, at the same place."""
    first, second = prompt_groups(1, 3, 12, 4), prompt_groups(2, 2, 4, 4)
    assert len(first) == len(second)
    x = inputs(len(first))
    buffer = torch.from_numpy(first.copy())
    operator = torch.ops.espalier.tree_attention.default
    for end in (first, second):
        buffer.copy_(torch.from_numpy(end))
        check(operator(x.q, x.k, x.v, buffer, 16**-0.5, "auto")[0], x, end)
