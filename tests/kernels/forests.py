"""Random forests in depth-first order, and the slow obvious attention every kernel is held to.

Notable:
- a forest is given by its nodes: ``(parent node or -1, tokens)``; children keep their order
- ``visible`` walks ancestors token by token: it shares no formula with the code under test
- ``reference`` is plain float64 autograd over that matrix
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import strategies as st

Int32s = npt.NDArray[np.int32]
Node = tuple[int, int]  # (index of the parent node or -1 for a root, tokens in the node)


def subtree_end_of(nodes: Sequence[Node], padding: int = 0) -> Int32s:
    """int32 ``(N,)``: ``subtree_end`` of the nodes in depth-first order, then ``padding`` zeros."""
    return subtree_end_from_parent(token_parents(nodes), padding)


def token_parents(nodes: Sequence[Node]) -> list[int]:
    """Token number of each token's parent (-1: root), tokens in depth-first order of the nodes."""
    children: dict[int, list[int]] = {}
    for node, (parent, _) in enumerate(nodes):
        children.setdefault(parent, []).append(node)
    parents: list[int] = []
    stack = [(root, -1) for root in reversed(children.get(-1, []))]
    while stack:
        node, above = stack.pop()
        for _ in range(nodes[node][1]):
            parents.append(above)
            above = len(parents) - 1
        stack += [(child, above) for child in reversed(children.get(node, []))]
    return parents


def subtree_end_from_parent(parent: Sequence[int], padding: int = 0) -> Int32s:
    """``subtree_end`` of tokens already in depth-first order, given each one's parent token."""
    end = [token + 1 for token in range(len(parent))]
    for token in range(len(parent) - 1, -1, -1):
        if parent[token] >= 0:
            end[parent[token]] = max(end[parent[token]], end[token])
    return np.array(end + [0] * padding, dtype=np.int32)


def random_forest(
    rng: np.random.Generator,
    n_nodes: int,
    max_tokens: int,
    *,
    roots: float = 0.1,
    nearest: int = 0,
    padding: int = 0,
) -> Int32s:
    """A forest of ``n_nodes`` nodes of 1 … ``max_tokens`` tokens.

    roots:   probability that a node starts a tree of its own
    nearest: 0 draws parents from all earlier nodes (bushy), else from the last ``nearest`` (deep)
    """
    nodes: list[Node] = []
    for node in range(n_nodes):
        tokens = int(rng.integers(1, max_tokens + 1))
        if node == 0 or rng.random() < roots:
            nodes.append((-1, tokens))
        else:
            low = max(0, node - nearest) if nearest else 0
            nodes.append((int(rng.integers(low, node)), tokens))
    return subtree_end_of(nodes, padding)


def prompt_groups(groups: int, samples: int, prompt: int, completion: int) -> Int32s:
    """``groups`` trees of one prompt with ``samples`` completions: a GRPO batch."""
    nodes: list[Node] = []
    for _ in range(groups):
        root = len(nodes)
        nodes.append((-1, prompt))
        nodes += [(root, completion)] * samples
    return subtree_end_of(nodes)


def caterpillar(turns: int, turn: int, branch: int, *, branch_first: bool) -> Int32s:
    """A trunk of ``turns`` nodes of ``turn`` tokens, each with a leaf of ``branch`` tokens."""
    nodes: list[Node] = []
    trunk = -1
    for _ in range(turns):
        nodes.append((trunk, turn))
        trunk = len(nodes) - 1
        if branch_first:
            nodes.append((trunk, branch))
    if not branch_first:
        nodes += [(node, branch) for node in range(turns)]
    return subtree_end_of(nodes)


@st.composite
def forests(
    draw: st.DrawFn, max_nodes: int = 12, max_tokens: int = 24, max_padding: int = 9
) -> Int32s:
    """Hypothesis strategy: ``subtree_end`` of any small forest, padding included."""
    n_nodes = draw(st.integers(1, max_nodes))
    nodes: list[Node] = []
    for node in range(n_nodes):
        nodes.append((draw(st.integers(-1, node - 1)), draw(st.integers(1, max_tokens))))
    return subtree_end_of(nodes, draw(st.integers(0, max_padding)))


def visible(subtree_end: Int32s) -> npt.NDArray[np.bool_]:
    """bool ``(N, N)``: query sees key, by walking from every token up to its root."""
    n = len(subtree_end)
    seen = np.zeros((n, n), dtype=np.bool_)
    path: list[int] = []
    for query in range(n):
        if subtree_end[query] == 0:
            continue
        while path and subtree_end[path[-1]] <= query:
            path.pop()
        path.append(query)
        seen[query, path] = True
    return seen


@dataclass(frozen=True)
class Reference:
    """float64 results: ``out`` and gradients as the inputs are shaped, ``lse`` ``(B, Hq, N)``."""

    out: torch.Tensor
    lse: torch.Tensor
    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor


@dataclass(frozen=True)
class Inputs:
    """``q`` and ``dout`` ``(B, Hq, N, D)``, ``k`` and ``v`` ``(B, Hkv, N, D)``."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor


def inputs(
    n: int,
    *,
    batch: int = 1,
    q_heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> Inputs:
    """Normal random inputs that require gradients (``dout`` does not)."""
    generator = torch.Generator().manual_seed(seed)

    def normal(heads: int, grad: bool) -> torch.Tensor:
        x = torch.randn(batch, heads, n, head_dim, generator=generator, dtype=torch.float64)
        return x.to(dtype=dtype, device=device).requires_grad_(grad)

    q, k, v = normal(q_heads, True), normal(kv_heads, True), normal(kv_heads, True)
    return Inputs(q, k, v, normal(q_heads, False))


def reference(x: Inputs, subtree_end: Int32s, scale: float | None = None) -> Reference:
    """Attention over the explicit N x N matrix and its gradients, all in float64 on the CPU."""
    q, k, v = (t.detach().double().cpu().requires_grad_() for t in (x.q, x.k, x.v))
    group = q.shape[1] // k.shape[1]
    seen = torch.from_numpy(visible(subtree_end))
    real = seen.any(dim=1)
    keys, values = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = (q @ keys.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores[:, :, real].masked_fill(~seen[real], -torch.inf)
    out = torch.zeros_like(q).index_copy(2, real.nonzero()[:, 0], scores.softmax(-1) @ values)
    lse = torch.full(q.shape[:3], -torch.inf, dtype=torch.float64)
    lse[:, :, real] = scores.detach().logsumexp(-1)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), x.dout.double().cpu())
    return Reference(out.detach(), lse, dq, dk, dv)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest absolute difference over the largest reference value; inf where ``got`` has NaN.

    References below 1 count as 1 (dQ of a forest of single tokens is 0; inputs are near 1).
    """
    got = got.detach().double().cpu()
    if not torch.isfinite(got).all():
        return float("inf")
    return float((got - want).abs().max() / want.abs().max().clamp_min(1.0))
