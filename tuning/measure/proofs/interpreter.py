"""Our Triton kernels without a GPU: a small tree of the user's in Triton's interpreter.

``python -m tuning.measure.proofs.interpreter`` with ``TRITON_INTERPRET=1`` reads a question as JSON
and prints its errors as JSON; a process of its own, because Triton decides once, when it is
imported.

Notable:
- the small tree keeps the branches of the real one and shortens its runs of tokens
- the interpreter shows that the kernels are right; how fast they are it cannot show
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.attention import TreeMask, TreeNodes

MOST_TOKENS = 256
_MOST_NODES = 64
_TIMEOUT_S = 300.0
_ROOT = Path(__file__).resolve().parents[__package__.count(".") + 1]


def small_tree(nodes: TreeNodes, most: int = MOST_TOKENS) -> npt.NDArray[np.int32]:
    """``subtree_end`` int32 of a tree of at most ``most`` tokens with the same branches.

    The first 64 nodes in depth-first order, each cut to its first so many tokens.
    """
    kept = min(len(nodes), _MOST_NODES, most)
    lengths = (nodes.stop - nodes.start)[:kept]
    longest = max(c for c in range(1, most + 1) if np.minimum(lengths, c).sum() <= most)
    lengths = np.minimum(lengths, longest)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # A subtree ends where the first node after it starts.
    after = np.searchsorted(nodes.start, nodes.end[:kept]).clip(max=kept)
    return np.repeat(offsets[after], lengths).astype(np.int32)


def interpret(mask: TreeMask, group: int, head_dim: int) -> dict[str, Any]:
    """Check the kernels on a small tree of ``mask``, in a process of its own.

    Returns the tree's shape, and errors of out, dq, dk and dv, each over its largest true entry.
    group: query heads of the one key head. Raises RuntimeError with the process's last line.
    """
    end = small_tree(mask.nodes)
    question = {"subtree_end": end.tolist(), "group": group, "head_dim": head_dim}
    answer = subprocess.run(
        [sys.executable, "-m", f"{__package__}.interpreter"],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        timeout=_TIMEOUT_S,
        check=False,
    )
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RuntimeError(f"Triton's interpreter failed: {last}")
    errors = json.loads(answer.stdout.splitlines()[-1])
    nodes = len(TreeMask.from_subtree_end(end).nodes)
    shape = {"tokens": len(end), "nodes": nodes, "query_heads": group, "key_heads": 1}
    return shape | {"errors": errors}


def main() -> None:
    """Answer one question; see the module."""
    import torch

    from kernels.attention import tree_attention
    from tuning.measure.proofs.reference import Reference

    question = json.load(sys.stdin)
    mask = TreeMask.from_subtree_end(np.array(question["subtree_end"], dtype=np.int32))
    generator = torch.Generator().manual_seed(0)

    def random(heads: int) -> torch.Tensor:
        return torch.randn(1, heads, mask.n, question["head_dim"], generator=generator)

    q, k, v = (random(heads).requires_grad_() for heads in (question["group"], 1, 1))
    reference = Reference.of(q, k, v, random(question["group"]), mask, float("inf"))
    out = tree_attention(q, k, v, mask, backend="triton")
    gradients = torch.autograd.grad(out, (q, k, v), reference.dout)
    print(json.dumps(reference.errors(out, gradients)))


if __name__ == "__main__":
    main()
