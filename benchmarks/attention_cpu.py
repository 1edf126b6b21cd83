"""Cascade attention on a CPU against SDPA with a dense mask and against the rows one by one.

    python -m benchmarks.attention_cpu [--json] [--repeats 3] [--trees NAME …]

Forward and backward in float32, 4 query and 4 key heads of 64, on all threads torch has. One tree
of each golden packing (AReaL's first tree), and 2,000 nodes of 4 tokens. The three run in turn
within each repeat, so a busy machine slows all alike; figures are medians over the repeats.

Notable:
- dense gets its additive float mask for free: making it is not timed
- rows one by one are one causal SDPA call each, nothing shared, as a flat baseline would
- ``per_area_vs_rows`` is seconds per visible pair, cascade over rows: 1.0 is flash attention's own
  speed, whatever the sharing
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kernels.attention import TreeMask, tree_attention
from packing.layout import depth_first_layout
from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import build_forest

HEADS, HEAD_DIM = 4, 64
SHARED = Path(__file__).resolve().parents[2] / "shared" / "golden"
GOLDEN = {  # tree: (data set, max_tokens_per_mb)
    "tau_turns_12288": ("tau_airline_turns", 12288),
    "tau_traj_12032": ("tau_airline_trajectories", 12032),
    "gsm8k_all_8192": ("gsm8k_solutions", 8192),
}
SYNTHETIC = "nodes_2000x4"


@dataclass(frozen=True)
class TimedTree:
    """A forest to time: its mask as int32 ``(N,)`` and the lengths of the rows it holds."""

    name: str
    subtree_end: npt.NDArray[np.int32]
    row_lengths: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Result:
    """Seconds are medians of forward and backward; areas count visible (query, key) pairs."""

    tree: str
    tokens: int
    nodes: int
    mask_area: int
    rows_area: int
    cascade_s: float
    dense_s: float
    rows_s: float
    per_area_vs_rows: float
    dense_vs_cascade: float
    repeats: int


def golden_tree(name: str, folder: Path) -> TimedTree:
    """The first tree that AReaL's first fit makes of a golden data set."""
    dataset, cap = GOLDEN[name]
    with np.load(folder / f"{dataset}.npz") as file:
        rows = Rows(file["tokens"], file["offsets"], file["groups"])
    order = PrefixOrder.of(rows)
    layout = depth_first_layout(rows, build_forest(order, pack_areal(order, cap)).tree(0))
    assert layout.subtree_end is not None  # the depth-first order has it
    return TimedTree(name, layout.subtree_end, rows.lengths[layout.rows])


def synthetic_tree(nodes: int = 2000, tokens: int = 4, seed: int = 0) -> TimedTree:
    """One tree of equal small nodes, each under a random earlier one; a row for each leaf."""
    rng = np.random.default_rng(seed)
    parent = [-1] + [int(rng.integers(0, node)) for node in range(1, nodes)]
    size, depth = [1] * nodes, [1] * nodes
    for node in range(1, nodes):
        depth[node] = depth[parent[node]] + 1
    for node in range(nodes - 1, 0, -1):
        size[parent[node]] += size[node]
    start, used = [0] * nodes, [1] * nodes
    for node in range(1, nodes):
        up = parent[node]
        start[node] = start[up] + used[up]
        used[up] += size[node]
    end = np.empty(nodes, dtype=np.int32)
    end[start] = [(s + n) * tokens for s, n in zip(start, size, strict=True)]
    leaves = [d * tokens for d, s in zip(depth, size, strict=True) if s == 1]
    return TimedTree(SYNTHETIC, np.repeat(end, tokens), np.array(leaves, dtype=np.int64))


def measure(tree: TimedTree, repeats: int) -> Result:
    """Time the three ways in turn, ``repeats`` times, after one warm-up of each."""
    mask = TreeMask.from_subtree_end(tree.subtree_end)
    lengths = tree.row_lengths.tolist()
    rows_area = int((tree.row_lengths * (tree.row_lengths + 1) // 2).sum())
    q, k, v, dout = _inputs(mask.n)
    row_inputs = _inputs(max(lengths))
    additive = torch.zeros(mask.n, mask.n)
    for at in range(0, mask.n, 1024):
        rows = slice(at, at + 1024)
        additive[rows].masked_fill_(~mask.visible(rows, slice(None)), -torch.inf)

    def cascade() -> None:
        tree_attention(q, k, v, mask, backend="cascade").backward(dout)  # type: ignore[no-untyped-call]

    def dense() -> None:
        scaled_dot_product_attention(q, k, v, attn_mask=additive).backward(dout)  # type: ignore[no-untyped-call]

    def rows_one_by_one() -> None:
        for length in lengths:
            a, b, c, d = (x[:, :, :length] for x in row_inputs)
            scaled_dot_product_attention(a, b, c, is_causal=True).backward(d)  # type: ignore[no-untyped-call]

    ways = (cascade, dense, rows_one_by_one)
    seconds = np.array([[_seconds(way) for way in ways] for _ in range(repeats + 1)])[1:]
    cascade_s, dense_s, rows_s = np.median(seconds, axis=0).tolist()
    per_area = (seconds[:, 0] / mask.mask_area) / (seconds[:, 2] / rows_area)
    return Result(
        tree=tree.name,
        tokens=mask.n,
        nodes=len(mask.nodes),
        mask_area=mask.mask_area,
        rows_area=rows_area,
        cascade_s=cascade_s,
        dense_s=dense_s,
        rows_s=rows_s,
        per_area_vs_rows=float(np.median(per_area)),
        dense_vs_cascade=float(np.median(seconds[:, 1] / seconds[:, 0])),
        repeats=repeats,
    )


def _inputs(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (1, HEADS, n, HEAD_DIM)
    q, k, v = (torch.randn(shape, generator=generator, requires_grad=True) for _ in range(3))
    return q, k, v, torch.randn(shape, generator=generator)


def _seconds(way: Callable[[], None]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def _trees(names: list[str], folder: Path) -> Iterator[TimedTree]:
    for name in names:
        yield synthetic_tree() if name == SYNTHETIC else golden_tree(name, folder)


def main() -> None:
    """Print one line per tree, or a JSON list with ``--json``."""
    everything = [*GOLDEN, SYNTHETIC]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each way")
    parser.add_argument("--trees", nargs="+", choices=everything, default=everything)
    parser.add_argument("--golden", type=Path, default=SHARED, help="folder with the .npz files")
    arguments = parser.parse_args()
    if arguments.trees != [SYNTHETIC] and not arguments.golden.is_dir():
        parser.error(
            f"there are no golden rows at {arguments.golden}; name their folder with --golden, or "
            f"time made-up rows with --trees {SYNTHETIC}"
        )
    results = [
        measure(tree, arguments.repeats) for tree in _trees(arguments.trees, arguments.golden)
    ]
    if arguments.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32, "
        f"{HEADS} heads of {HEAD_DIM}, forward and backward, {arguments.repeats} repeats\n"
        f"{'tree':18}{'tokens':>8}{'nodes':>7}{'mask area':>12}{'cascade':>10}{'dense':>10}"
        f"{'rows':>10}{'per area':>10}{'dense ÷':>9}"
    )
    for r in results:
        print(
            f"{r.tree:18}{r.tokens:8,}{r.nodes:7,}{r.mask_area:12,}{r.cascade_s:9.3f}s"
            f"{r.dense_s:9.3f}s{r.rows_s:9.3f}s{r.per_area_vs_rows:10.2f}"
            f"{r.dense_vs_cascade:8.1f}x"
        )


if __name__ == "__main__":
    main()
