"""What tree attention must give, in float64, for trees too large for an N x N matrix of scores.

Notable:
- queries are taken a few at a time against all keys before them, the mask spelled out: nothing is
  shared with the code under test but who sees whom
- where all queries would take too long, some are drawn evenly and only those carry a gradient:
  every entry of dq, dk and dv is still compared
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.attention import TreeMask

BLOCK = 64
# Multiply-adds of one q @ k product over the compared queries: some seconds on two cores.
BUDGET = {"cpu": 6e9, "cuda": 2e12}

_SMALLEST = 1e-2

TOLERANCES: dict[torch.dtype, float] = {
    torch.float32: 1e-5,
    torch.bfloat16: 2e-2,
}
"""Largest error taken as rounding, relative to the largest entry of the reference."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The truth for ``queries`` (bool ``(N,)``) and gradients ``dout``, zero at other queries.

    dout, out, dq: ``(B, Hq, N, D)``, rows of queries that are not compared are 0
    dk, dv:        ``(B, Hkv, N, D)``; all but ``dout`` are float64
    """

    queries: Tensor
    dout: Tensor
    out: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor

    @classmethod
    def of(
        cls, q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: TreeMask, budget: float
    ) -> Reference:
        """q ``(B, Hq, N, D)``, k and v ``(B, Hkv, N, D)``, of N tokens without padding.

        budget: multiply-adds for the scores of the compared queries; one block at the least.
        """
        cost = q.shape[1] * q.shape[3] * mask.n**2 / 2
        chosen = _blocks(mask.n, every=max(math.ceil(cost / budget), 1))
        queries = torch.zeros(mask.n, dtype=torch.bool, device=q.device)
        for block in chosen:
            queries[block] = True
        dout = dout * queries[:, None]
        q64, k64, v64 = (x.detach().double().requires_grad_() for x in (q, k, v))
        out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
        for block in chosen:
            part = _attend(q64, k64, v64, mask, block)
            part.backward(dout[:, :, block].double())  # type: ignore[no-untyped-call]
            out[:, :, block] = part.detach()
        dq, dk, dv = q64.grad, k64.grad, v64.grad
        assert dq is not None and dk is not None and dv is not None  # there is one block at least
        return cls(queries, dout, out, dq, dk, dv)

    def errors(self, out: Tensor, gradients: tuple[Tensor, ...] = ()) -> dict[str, float]:
        """Largest errors of ``out`` and of (dq, dk, dv), each over its largest true entry."""
        found = {"out": _error(out.detach() * self.queries[:, None], self.out)}
        truth = {"dq": self.dq, "dk": self.dk, "dv": self.dv}
        for (name, true), gradient in zip(truth.items(), gradients, strict=False):
            found[name] = _error(gradient, true)
        return found

    @property
    def description(self) -> str:
        """Which queries are compared, in words."""
        compared, total = int(self.queries.sum()), len(self.queries)
        if compared == total:
            return f"a float64 reference over all {total:,} tokens"
        return (
            f"a float64 reference over {compared:,} of {total:,} queries, drawn evenly, and over "
            "all gradients that they cause"
        )


def _blocks(n: int, every: int) -> list[slice]:
    """Every so manieth block of queries, the last one always among them."""
    starts = range(0, n, BLOCK)
    return [slice(s, min(s + BLOCK, n)) for s in starts[::-1][::every][::-1]]


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: TreeMask, block: slice) -> Tensor:
    """Outputs ``(B, Hq, block, D)`` of a block of queries."""
    keys = slice(0, block.stop)
    group = q.shape[1] // k.shape[1]
    k_before, v_before = (x[:, :, keys].repeat_interleave(group, dim=1) for x in (k, v))
    scores = q[:, :, block] @ k_before.mT * q.shape[3] ** -0.5
    weights = scores.masked_fill(~mask.visible(block, keys), -torch.inf).softmax(-1)
    out: Tensor = weights @ v_before
    return out


def _error(found: Tensor, true: Tensor) -> float:
    # dq is 0 where every query sees but its own key: rounding must not be divided by it.
    return float((found.double() - true).abs().max() / true.abs().max().clamp_min(_SMALLEST))
