"""How fast rows are packed, and in how much memory, against the plain way in the same run.

    python -m benchmarks.packing [--rows 512 4096 32768 262144] [--cap 8192] [--json]

Rows are synthetic: groups of 8 that share a prompt of 300 tokens (100 of them common to all) and
have 1,000 tokens on average, log-normal. Each size runs in a process of its own, so that its peak
memory is its own. The plain packer walks dictionaries token by token, as AReaL does
(``packing/packers/naive.py``); it is run up to ``--plain-up-to`` rows. The exponent is that of
seconds over rows, from the size before.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time

import numpy as np

from packing.packers.areal import pack_areal
from packing.packers.bounds import bounds
from packing.packers.naive import pack_naive
from packing.packers.prefix_aware import pack_prefix_aware
from packing.prefixes import PrefixOrder
from packing.rows import Rows, offsets_of
from packing.trie import build_forest, whole_trie

_PROMPT, _COMMON, _SAMPLES = 300, 100, 8


def make_rows(rows: int, seed: int = 0) -> Rows:
    """Groups of 8 with a common system prompt, a prompt each, and log-normal lengths."""
    random = np.random.default_rng(seed)
    lengths = np.clip(random.lognormal(6.5, 0.5, rows) * 1.26, _PROMPT + 5, 7000).astype(np.int64)
    offsets = offsets_of(lengths)
    tokens = random.integers(0, 150_000, offsets[-1], dtype=np.int32)
    common = np.arange(_COMMON, dtype=np.int32)
    for row in range(rows):
        start, first = offsets[row], offsets[row - row % _SAMPLES]
        tokens[start : start + _COMMON] = common
        if row % _SAMPLES:
            prompt = tokens[first + _COMMON : first + _PROMPT]
            tokens[start + _COMMON : start + _PROMPT] = prompt
    return Rows(tokens, offsets, (np.arange(rows) // _SAMPLES).astype(np.int32))


def measure(rows: int, cap: int, plain: bool) -> dict[str, float]:
    """Seconds of each part for one size, and the peak memory of the process in bytes."""
    batch = make_rows(rows)
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[name], clock = now - clock, now

    order = PrefixOrder.of(batch)
    lap("sort_s")
    trie = whole_trie(order)
    areal = pack_areal(order, cap, trie=trie)
    lap("areal_s")
    build_forest(order, areal)
    lap("tries_s")
    ours = pack_prefix_aware(order, cap)
    lap("ours_s")
    least = bounds(order, cap)
    lap("bounds_s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if plain:
        clock = time.perf_counter()
        _, tokens = pack_naive((row.tolist() for row in batch), cap)
        lap("plain_s")
        assert tokens == areal.tokens_per_tree.tolist()
    return {
        "rows": rows,
        "tokens": batch.n_tokens,
        "trees_areal": areal.n_trees,
        "trees_ours": ours.n_trees,
        "trees_bound": least.trees,
        "peak_bytes": peak,
        **seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[512, 4096, 32768, 262144])
    parser.add_argument("--cap", type=int, default=8192)
    parser.add_argument("--plain-up-to", type=int, default=4096)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.cap, options.one <= options.plain_up_to)))
        return
    results: list[dict[str, float]] = []
    for rows in options.rows:
        command = [sys.executable, "-m", "benchmarks.packing", "--one", str(rows)]
        command += ["--cap", str(options.cap), "--plain-up-to", str(options.plain_up_to)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results.append(json.loads(done.stdout))
        total = results[-1]["sort_s"] + results[-1]["areal_s"]
        results[-1]["cold_areal_s"] = total
        if len(results) > 1:
            before = results[-2]
            results[-1]["exponent"] = math.log(total / before["cold_areal_s"]) / math.log(
                rows / before["rows"]
            )
        if not options.json:
            _print_row(results[-1], first=len(results) == 1)
    if options.json:
        print(json.dumps(results))


def _print_row(r: dict[str, float], first: bool) -> None:
    if first:
        print(
            "    rows       tokens   sort s  areal s  tries s   ours s  plain s  speed-up", end=""
        )
        print("  trees areal/ours/bound  peak GB  exponent")
    plain = f"{r['plain_s']:8.2f}" if "plain_s" in r else "       -"
    ratio = f"{r['plain_s'] / r['cold_areal_s']:8.0f}x" if "plain_s" in r else "        -"
    trees = f"{r['trees_areal']:.0f}/{r['trees_ours']:.0f}/{r['trees_bound']:.0f}"
    exponent = f"{r['exponent']:8.2f}" if "exponent" in r else "       -"
    print(
        f"{r['rows']:8.0f} {r['tokens']:12.0f} {r['sort_s']:8.3f} {r['areal_s']:8.3f} "
        f"{r['tries_s']:8.3f} {r['ours_s']:8.3f} {plain} {ratio} {trees:>23} "
        f"{r['peak_bytes'] / 1e9:8.2f} {exponent}"
    )


if __name__ == "__main__":
    main()
