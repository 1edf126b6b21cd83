"""The Triton kernels in Triton's interpreter against float64; ``test_tree.py`` runs these.

Notable:
- the interpreter must be chosen before Triton is imported, for a whole process: hence a file of its
  own, not collected with the others
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triton.runtime.errors import OutOfResources
from triton.runtime.interpreter import InterpreterBuilder

import kernels.triton.dkv as dkv
import kernels.triton.launch as launch
import kernels.triton.tiles as tiles
from kernels.attention.mask import TreeMask
from kernels.attention.registry import tree_attention
from kernels.triton.configs import PASSES, Config
from kernels.triton.tiles import key_chunks
from kernels.triton.tree import triton_tree_attention, unavailable_reason
from kernels.triton.tuning import CANDIDATES, tuned_configs
from tests.kernels.forests import (
    Inputs,
    Int32s,
    caterpillar,
    forests,
    inputs,
    random_forest,
    reference,
    relative_error,
    subtree_end_of,
)

# What the interpreters of Triton 3.5 and 3.6 do with numpy before 2.4; with 2.4 they do not run.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

SMALL = {name: Config(32, 16, 4, 1) for name in PASSES}


def fused(rows: int, keys: int) -> launch.Configs:
    """Tiles of the backward of five products."""
    return {name: Config(rows, keys, 4, 1) for name in ("forward", "dqkv")}


def run(
    x: Inputs, end: Int32s, configs: launch.Configs | None = None, scale: float | None = None
) -> tuple[torch.Tensor, ...]:
    mask = TreeMask.from_subtree_end(end)
    out = triton_tree_attention(x.q, x.k, x.v, mask, scale, configs)
    return (out.detach(), *torch.autograd.grad(out, (x.q, x.k, x.v), x.dout))


def assert_right(
    x: Inputs,
    end: Int32s,
    configs: launch.Configs | None = None,
    scale: float | None = None,
    tolerance: float = 1e-5,
) -> None:
    want = reference(x, end, scale)
    got = run(x, end, configs, scale)
    expected = (want.out, want.dq, want.dk, want.dv)
    for name, a, b in zip(("out", "dq", "dk", "dv"), got, expected, strict=True):
        assert a.shape == b.shape
        assert relative_error(a, b) < tolerance, name


def test_the_interpreter_is_on() -> None:
    assert unavailable_reason(torch.device("cpu"), torch.float32, 64) is None


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    end=forests(max_nodes=8, max_tokens=12),
    heads=st.sampled_from([(2, 2), (4, 1), (8, 1), (3, 1), (6, 2), (7, 1), (5, 1)]),
    described=st.booleans(),
    rows=st.sampled_from([16, 32, 64, 128]),
    keys=st.sampled_from([16, 32]),
    batch=st.integers(1, 2),
)
def test_any_forest(
    end: Int32s, heads: tuple[int, int], described: bool, rows: int, keys: int, batch: int
) -> None:
    """Tiles by descriptors and by pointers, with dQ in a kernel of its own and in dK and dV's."""
    x = inputs(len(end), batch=batch, q_heads=heads[0], kv_heads=heads[1], head_dim=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "has_copy_engine", lambda device: described)
        assert_right(x, end, {name: Config(rows, keys, 4, 1) for name in PASSES})
        assert_right(x, end, fused(rows, keys))


@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
@pytest.mark.parametrize("group", [1, 4, 7])
def test_head_dims_and_groups(head_dim: int, group: int) -> None:
    end = random_forest(np.random.default_rng(group), 9, 14)
    end = np.concatenate([end, np.zeros(3 - len(end) % 2, dtype=np.int32)])
    assert len(end) % 2
    assert_right(inputs(len(end), q_heads=group, kv_heads=1, head_dim=head_dim), end)


@pytest.mark.parametrize("tokens", [1, 5, 130])
def test_one_node_is_causal_attention(tokens: int) -> None:
    end = subtree_end_of([(-1, tokens)])
    x = inputs(tokens, q_heads=2, kv_heads=1, head_dim=64)
    assert_right(x, end)
    causal = torch.nn.functional.scaled_dot_product_attention(
        x.q, x.k, x.v, is_causal=True, enable_gqa=True
    )
    assert relative_error(run(x, end)[0], causal.detach().double()) < 1e-5


def test_three_hundred_nodes() -> None:
    end = random_forest(np.random.default_rng(5), 300, 2, padding=11)
    assert_right(inputs(len(end), q_heads=2, kv_heads=1, head_dim=64), end)


@pytest.mark.parametrize("branch_first", [False, True])
def test_a_long_trunk_with_leaves(branch_first: bool) -> None:
    end = caterpillar(turns=6, turn=11, branch=7, branch_first=branch_first)
    assert_right(inputs(len(end), q_heads=4, kv_heads=2, head_dim=64), end, SMALL)


@pytest.mark.parametrize("residue", range(57, 64))
def test_a_branch_that_fills_a_tile_from_any_place(residue: int) -> None:
    """AReaL's kernel loses dK and dV here: 128 equal mask words sum to 0 modulo 2**64."""
    branch = 64 + residue
    end = subtree_end_of([(-1, 40), (0, branch - 40), (0, 300)])
    assert end[branch - 1] == branch and end[branch] >= 256  # rows 128 … 255 are one branch
    x = inputs(len(end), q_heads=1, kv_heads=1, head_dim=64)
    assert_right(x, end, {name: Config(128, 64, 4, 1) for name in PASSES})


def test_padding_is_exactly_zero() -> None:
    end = random_forest(np.random.default_rng(2), 6, 9, padding=37)
    real = len(end) - 37
    x = inputs(len(end), q_heads=4, kv_heads=1, head_dim=64, batch=2)
    got = run(x, end, SMALL)
    for result in got:
        assert torch.equal(result[:, :, real:], torch.zeros_like(result[:, :, real:]))
        assert torch.isfinite(result).all()
        assert result[:, :, :real].abs().amax() > 0
    mask = TreeMask.from_subtree_end(end)
    _, lse = launch.forward(x.q, x.k, x.v, mask, 0.125, SMALL["forward"])
    want = reference(x, end, 0.125).lse / np.log(2)
    lse = lse.permute(0, 1, 3, 2).reshape(want.shape)
    assert torch.isneginf(lse[:, :, real:]).all()
    assert relative_error(lse[:, :, :real], want[:, :, :real]) < 1e-5


def test_nothing_but_padding() -> None:
    end = np.zeros(40, dtype=np.int32)
    for result in run(inputs(40, q_heads=2, kv_heads=1, head_dim=64), end, SMALL):
        assert torch.equal(result, torch.zeros_like(result))


def test_any_strides() -> None:
    end = random_forest(np.random.default_rng(3), 7, 9, padding=2)
    x = inputs(len(end), q_heads=4, kv_heads=2, head_dim=64, batch=2)
    swapped = replace(
        x,
        q=x.q.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_(),
        k=x.k.detach().mT.contiguous().mT.requires_grad_(),
        v=torch.stack([x.v.detach()] * 2, 3)[:, :, :, 1].requires_grad_(),
        dout=x.dout[:1, :1, :, :1].expand(x.dout.shape),
    )
    assert not any(t.is_contiguous() for t in (swapped.q, swapped.k, swapped.v, swapped.dout))
    assert_right(swapped, end, SMALL)


def test_float16() -> None:
    end = random_forest(np.random.default_rng(4), 8, 9, padding=1)
    x = inputs(len(end), q_heads=4, kv_heads=2, head_dim=64, dtype=torch.float16)
    assert {result.dtype for result in run(x, end)} == {torch.float16}
    assert_right(x, end, tolerance=3e-3)


def test_bfloat16_is_refused_where_it_would_be_wrong() -> None:
    x = inputs(9, q_heads=1, kv_heads=1, head_dim=64, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="float32 or float16"):
        run(x, subtree_end_of([(-1, 9)]))


def test_scale() -> None:
    end = random_forest(np.random.default_rng(6), 6, 9)
    assert_right(inputs(len(end), q_heads=2, kv_heads=2, head_dim=64), end, SMALL, scale=0.7)


def test_split_key_tiles_sum_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    end = caterpillar(turns=4, turn=20, branch=12, branch_first=True)
    x = inputs(len(end), q_heads=4, kv_heads=2, head_dim=64)
    monkeypatch.setattr(tiles, "MIN_CHUNK", 2)
    monkeypatch.setattr(launch, "_processors", lambda device: 64)
    mask = TreeMask.from_subtree_end(end)
    assert launch.of_mask(key_chunks, mask, 16, 16, 64).slots > 10
    assert_right(x, end, SMALL)
    for first, second in zip(run(x, end, SMALL), run(x, end, SMALL), strict=True):
        assert torch.equal(first, second)


def reduce(builder: object, kind: object, desc: object, value: object, at: list[object]) -> None:
    """What the copy engine does with ``descriptor.atomic_add``, for an interpreter without it."""
    pointers, inside = desc.materialize_pointers(at)  # type: ignore[attr-defined]
    places = pointers.data[inside.data].astype(np.uint64)
    values = value.data[inside.data]  # type: ignore[attr-defined]
    assert len(set(places.tolist())) == len(places)
    for place, number in zip(places.tolist(), values.tolist(), strict=True):
        ctypes.c_float.from_address(place).value += number


@pytest.mark.parametrize("head_dim,heads", [(64, (16, 1)), (96, (2, 2)), (128, (4, 1))])
def test_five_products(
    head_dim: int, heads: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel as a GPU runs it: only the store of the copy engine's sum is played."""
    monkeypatch.setattr(InterpreterBuilder, "create_descriptor_reduce", reduce, raising=False)
    monkeypatch.setitem(launch.REDUCE_BY_DESCRIPTOR, "cpu", True)
    end = random_forest(np.random.default_rng(head_dim), 9, 7, padding=5)
    x = inputs(len(end), q_heads=heads[0], kv_heads=heads[1], head_dim=head_dim)
    assert_right(x, end, fused(64, 32))
    assert_right(x, end, fused(32, 64))


MUTANTS = {
    "no product": ("dq = tl.dot(tl.trans(dscores), k", "dq = 0 * tl.dot(tl.trans(dscores), k"),
    "a wrong row": ("dq_sums, lane, tile * TOKENS * PACK", "dq_sums, lane, tile * TOKENS"),
    "a wrong lane": ("* PARTS + step % PARTS", "* PARTS"),
    "weights for their gradients": ("tl.trans(dscores), k", "tl.trans(weights), k"),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_kernel_of_five_products_is_seen(
    mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = MUTANTS[mutant]
    source = Path(dkv.__file__).read_text()
    assert source.count(right) == 1
    file = tmp_path / "mutant_dkv.py"
    file.write_text(source.replace(right, wrong))
    spec = importlib.util.spec_from_file_location("mutant_dkv", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    end = random_forest(np.random.default_rng(1), 6, 9, padding=5)
    x = inputs(len(end), q_heads=16, kv_heads=1, head_dim=64)
    monkeypatch.setattr(dkv, "dkv_kernel", module.dkv_kernel)
    with pytest.raises(AssertionError, match="dq"):
        assert_right(x, end, fused(64, 32))


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_the_operator_gives_the_same_bits(kv_heads: int) -> None:
    end = random_forest(np.random.default_rng(kv_heads), 6, 9, padding=5)
    x = inputs(len(end), q_heads=6, kv_heads=kv_heads, head_dim=64)
    out = tree_attention(x.q, x.k, x.v, TreeMask.from_subtree_end(end), backend="triton")
    got = (out.detach(), *torch.autograd.grad(out, (x.q, x.k, x.v), x.dout))
    for ours, direct in zip(got, run(x, end), strict=True):
        assert torch.equal(ours, direct)


def test_second_gradients_are_refused() -> None:
    x = inputs(9, q_heads=1, kv_heads=1, head_dim=64)
    mask = TreeMask.from_subtree_end(subtree_end_of([(-1, 9)]))
    out = triton_tree_attention(x.q, x.k, x.v, mask)
    (dq,) = torch.autograd.grad(out, x.q, x.dout.requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        dq.sum().backward()


def test_tuning_takes_the_cheapest_that_fits_and_keeps_it() -> None:
    end = caterpillar(turns=2, turn=9, branch=5, branch_first=True)
    x = inputs(len(end), q_heads=2, kv_heads=1, head_dim=64)
    mask = TreeMask.from_subtree_end(end)
    calls = 0

    def timer(call: Callable[[], object]) -> float:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OutOfResources(300_000, 232_448, "shared memory")
        call()
        return 1.0 / calls  # the last tried is the cheapest

    chosen = tuned_configs(x.q, x.k, x.v, mask, timer)
    assert chosen == {name: configs[-1] for name, configs in CANDIDATES.items()}
    tried = calls
    assert tuned_configs(x.q, x.k, x.v, mask, timer) == chosen and calls == tried
    assert_right(x, end, chosen)
    with pytest.raises(RuntimeError, match="needs an NVIDIA GPU"):
        tuned_configs(x.q, x.k, x.v, mask)
