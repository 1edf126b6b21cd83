"""How long the lists of visited tiles take for a million tokens, and how much memory.

Notable:
- both halves, as a step on a GPU makes them: runs of key tiles, and chunks of query tiles
- seconds of one processor, whatever else runs
- memory is the peak of a process of its own above what it had before, its mask included

    python -m benchmarks.lists [--tokens 1048576]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from benchmarks.gpu_trees import GpuTree, agent_turns, prompt_groups, tree_of_nodes
from kernels.attention import TreeMask
from kernels.triton.tiles import key_chunks, query_lists

TILE = (32, 64)
PROGRAMS = 528  # four for each of an H200's 132 processors

TREES: dict[str, Callable[[], GpuTree]] = {
    "chain": lambda: tree_of_nodes("chain", [(-1, 1 << 20)]),
    "star": lambda: tree_of_nodes("star", [(-1, 1_000), *[(0, 100)] * 10_475]),
    "prompts": lambda: prompt_groups("prompts", 341, 8, 1_024, 256),
    "agents": lambda: agent_turns("agents", 1_000, 40, 100, 180, 81),
}


def measured(name: str, tokens: int) -> dict[str, float]:
    """Seconds of mask and of lists (the least of three), peak MB, runs and tokens of one tree."""
    torch.set_num_threads(1)
    end = TREES[name]().subtree_end[:tokens]
    end = np.minimum(end, len(end)).astype(np.int32)
    query_lists(torch.from_numpy(end[:64].clip(max=64)), *TILE)  # torch's own buffers
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds: dict[str, list[float]] = {"mask_s": [], "lists_s": []}
    for _ in range(3):
        start = time.process_time()
        mask = TreeMask.from_subtree_end(end)
        made = time.process_time()
        lists = query_lists(mask.subtree_end, *TILE)
        key_chunks(mask.subtree_end, *TILE, PROGRAMS)
        seconds["mask_s"].append(made - start)
        seconds["lists_s"].append(time.process_time() - made)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    found = {key: min(values) for key, values in seconds.items()}
    return found | {"peak_mb": peak * 1024 / 1e6, "runs": len(lists.runs) - 1, "tokens": len(end)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1 << 20)
    tokens = parser.parse_args(arguments).tokens
    spawn = multiprocessing.get_context("spawn")
    print(f"{'tree':<9}{'tokens':>10}{'runs':>11}{'mask':>9}{'lists':>9}{'memory':>10}")
    for name in TREES:
        with spawn.Pool(1) as pool:
            one = pool.apply(measured, (name, tokens))
        print(
            f"{name:<9}{one['tokens']:>10,}{one['runs']:>11,}{one['mask_s']:>8.2f}s"
            f"{one['lists_s']:>8.2f}s{one['peak_mb']:>7.0f} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
