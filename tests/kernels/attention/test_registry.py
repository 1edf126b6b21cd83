"""tree_attention: backends agree, auto picks one that can run, wrong inputs are named."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.attention import BACKENDS, TreeMask, tree_attention, unavailable
from kernels.attention import registry as attention
from kernels.attention.registry import AUTO_ORDER
from tests.kernels.forests import inputs, random_forest, reference, relative_error

END = random_forest(np.random.default_rng(0), 25, 9, padding=4)
MASK = TreeMask.from_subtree_end(END)


@pytest.mark.parametrize("backend", ["auto", "cascade", "dense", "flex"])
def test_backends_agree_with_the_reference(backend: str) -> None:
    x = inputs(len(END))
    trains = backend != "flex"
    with torch.set_grad_enabled(trains):
        out = tree_attention(x.q, x.k, x.v, MASK, backend=backend)
    expected = reference(x, END)  # the default scale of both is 1 / sqrt(D)
    assert relative_error(out, expected.out) < 1e-5
    if trains:
        gradients = torch.autograd.grad(out, (x.q, x.k, x.v), x.dout)
        for got, want in zip(gradients, (expected.dq, expected.dk, expected.dv), strict=True):
            assert relative_error(got, want) < 1e-5


def test_scale_is_passed_on() -> None:
    x = inputs(len(END))
    for backend in ("cascade", "dense"):
        out = tree_attention(x.q, x.k, x.v, MASK, scale=0.7, backend=backend)
        assert relative_error(out, reference(x, END, 0.7).out) < 1e-5


def test_every_backend_says_whether_it_can_run_on_a_cpu() -> None:
    reasons = {name: unavailable(name, "cpu", torch.float32, 64, 100) for name in BACKENDS}
    assert reasons["cascade"] is None and reasons["dense"] is None
    assert "no backward on a CPU" in str(reasons["flex"])
    assert reasons["triton"] is not None
    assert unavailable("flex", "cpu", torch.float32, 64, 100, needs_grad=False) is None
    assert set(AUTO_ORDER) <= set(BACKENDS)
    assert all(backend.summary and backend.name == name for name, backend in BACKENDS.items())


def test_auto_takes_the_first_that_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def fake(name: str, reason: str | None) -> attention.AttentionBackend:
        def run(
            q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, scale: float
        ) -> tuple[Tensor, Tensor]:
            called.append(name)
            return q.clone(), q.new_zeros(q.shape[:3])

        return attention.AttentionBackend(name, name, lambda *needs: reason, run)

    x = inputs(len(END))
    for triton_reason, cascade_reason in ((None, None), ("no GPU", None), ("no GPU", "no flash")):
        monkeypatch.setitem(BACKENDS, "triton", fake("triton", triton_reason))
        monkeypatch.setitem(BACKENDS, "cascade", fake("cascade", cascade_reason))
        monkeypatch.setitem(BACKENDS, "dense", fake("dense", None))
        tree_attention(x.q, x.k, x.v, MASK)
    assert called == ["triton", "cascade", "dense"]


def test_a_missing_triton_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kernels.triton.tree", None)
    reason = unavailable("triton", "cuda", torch.bfloat16, 64, 100)
    assert reason is not None and "Triton cannot be imported" in reason
    x = inputs(len(END))
    with pytest.raises(RuntimeError, match="triton backend cannot run here: Triton cannot be"):
        tree_attention(x.q, x.k, x.v, MASK, backend="triton")


def test_flex_refuses_gradients_on_a_cpu() -> None:
    x = inputs(len(END))
    with pytest.raises(RuntimeError, match=r"flex backend cannot run here: .* no backward"):
        tree_attention(x.q, x.k, x.v, MASK, backend="flex")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": (4, 10, 16)}, r"q must be \(B, Hq, N, D\).*q is \(4, 10, 16\)"),
        ({"v": (1, 2, 10, 8)}, r"v \(1, 2, 10, 8\)"),
        ({"q": (2, 4, 10, 16)}, "agree in batch"),
        ({"q": (1, 3, 10, 16)}, "3 query heads must be a multiple of the 2 key heads"),
        ({"q": (1, 0, 10, 16)}, "no axis may be empty"),
    ],
)
def test_shapes_that_do_not_fit_are_named(change: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"q": (1, 4, 10, 16), "k": (1, 2, 10, 16), "v": (1, 2, 10, 16)} | change
    q, k, v = (torch.zeros(shapes[name]) for name in "qkv")
    mask = TreeMask.from_subtree_end(np.full(10, 10))
    with pytest.raises(ValueError, match=message):
        tree_attention(q, k, v, mask)


def test_other_misuse_is_named() -> None:
    mask, x = TreeMask.from_subtree_end(np.full(10, 10)), torch.zeros(1, 2, 10, 16)
    with pytest.raises(
        ValueError, match=r"must be int32 \(10,\), made for the padded length; it is int32 \(9,\)"
    ):
        tree_attention(x, x, x, TreeMask.from_subtree_end(np.full(9, 9)))
    with pytest.raises(ValueError, match="one floating dtype; they have float32, float64"):
        tree_attention(x, x.double(), x, mask)
    with pytest.raises(ValueError, match="one floating dtype; they have int32"):
        tree_attention(x.int(), x.int(), x.int(), mask)
    with pytest.raises(ValueError, match="on one device; they are on cpu, meta"):
        tree_attention(x, x.to("meta"), x, mask)
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive number"):
            tree_attention(x, x, x, mask, scale=scale)
    with pytest.raises(ValueError, match="no backend 'flash'; there are auto, triton, cascade"):
        tree_attention(x, x, x, mask, backend="flash")
