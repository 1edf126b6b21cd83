"""The Triton kernels: right in the interpreter, their tiles exact, their refusals readable."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels.triton.tiles as tiles
from kernels.attention.mask import TreeMask
from kernels.triton.configs import (
    HEAD_DIMS,
    PASSES,
    SHARED_LIMIT,
    Config,
    default_config,
    family,
    heads_per_tile,
)
from kernels.triton.descriptors import describable
from kernels.triton.tiles import key_chunks, query_lists, visited_area
from kernels.triton.tree import (
    backward_pass,
    device_configs,
    forward_pass,
    triton_tree_attention,
    unavailable_reason,
)
from tests.kernels.forests import Int32s, forests, inputs, random_forest, subtree_end_of, visible

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[3]


def test_cases_in_the_interpreter() -> None:
    """Runs interpreter_cases.py in a process whose Triton interprets."""
    cases = Path(__file__).with_name("interpreter_cases.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(cases), "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= 30, done.stdout[-2000:]


def tile_kinds(end: Int32s, tile_q: int, tile_k: int) -> dict[tuple[int, int], bool]:
    """Every tile that shows something, to whether it shows all, off the explicit matrix."""
    seen = visible(end)
    kinds = {}
    for i in range(0, len(end), tile_q):
        for j in range(0, len(end), tile_k):
            tile = seen[i : i + tile_q, j : j + tile_k]
            if tile.any():
                kinds[i // tile_q, j // tile_k] = tile.shape == (tile_q, tile_k) and bool(
                    tile.all()
                )
    return kinds


def assert_kinds(got: dict[tuple[int, int], int], end: Int32s, tile_q: int, tile_k: int) -> None:
    """Every tile that shows something has its kind; only whole tiles show all."""
    want = tile_kinds(end, tile_q, tile_k)
    assert set(got) == set(want)
    for (query_tile, key_tile), kind in got.items():
        on_diagonal = key_tile * tile_k + tile_k - 1 > query_tile * tile_q
        expected = 2 if on_diagonal else (0 if want[query_tile, key_tile] else 1)
        assert kind == expected, (query_tile, key_tile)


TILES = st.sampled_from([1, 3, 4, 16])  # 18 tokens and 7 heads make tiles of no power of two


@settings(max_examples=120, deadline=None)
@given(forests(), TILES, st.sampled_from([1, 8, 16]))
def test_lists_of_key_tiles(end: Int32s, tile_q: int, tile_k: int) -> None:
    lists = query_lists(torch.from_numpy(end), tile_q, tile_k)
    got = {}
    work = []
    for query_tile, *spans in lists.query_tiles.tolist():
        for kind, (run, left) in enumerate(zip(spans[::2], spans[1::2], strict=True)):
            listed: list[int] = []
            while len(listed) < left:
                first, tiles = lists.runs[run].tolist()
                assert tiles > 0 and (not listed or first > listed[-1] + 1)  # runs are whole runs
                listed += range(first, first + tiles)
                run += 1
            assert len(listed) == left
            for key_tile in listed:
                assert (query_tile, key_tile) not in got
                got[query_tile, key_tile] = kind
        work.append(sum(spans[1::2]))
    assert_kinds(got, end, tile_q, tile_k)
    table = lists.query_tiles[:, 0].tolist()
    assert sorted(table) == list(range(-(-len(end) // tile_q)))
    assert work == sorted(work, reverse=True)
    assert visited_area(torch.from_numpy(end), tile_q, tile_k) == len(got) * tile_q * tile_k
    assert lists.runs.dtype == lists.query_tiles.dtype == torch.int32


@settings(max_examples=60, deadline=None)
@given(
    forests(),
    TILES,
    st.sampled_from([1, 8, 16]),
    st.integers(1, 40),
    st.integers(1, 3),
)
def test_chunks_of_query_tiles(
    end: Int32s, tile_q: int, tile_k: int, programs: int, least: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "MIN_CHUNK", least)
        work = key_chunks(torch.from_numpy(end), tile_q, tile_k, programs)
    got: dict[tuple[int, int], int] = {}
    slots: dict[int, list[int]] = {}
    for key_tile, slot, diagonal, whole, partial, stop in work.chunks.tolist():
        for kind, first, last in ((2, diagonal, whole), (0, whole, partial), (1, partial, stop)):
            for query_tile in range(first, last):
                assert (query_tile, key_tile) not in got
                got[query_tile, key_tile] = kind
        slots.setdefault(key_tile, []).append(slot)
    assert_kinds(got, end, tile_q, tile_k)
    assert sorted(slots) == list(range(-(-len(end) // tile_k)))
    split = {key: sorted(own) for key, own in slots.items() if len(own) > 1}
    assert all(own == [-1] for key, own in slots.items() if key not in split)
    listed = work.split_tiles.tolist()
    assert {key: list(range(first, first + n)) for key, first, n in listed} == split
    assert sorted(slot for own in split.values() for slot in own) == list(range(work.slots))


def test_a_shared_trunk_is_split_and_short_leaves_are_not() -> None:
    end = torch.from_numpy(subtree_end_of([(-1, 64)] + [(0, 64)] * 63))
    work = key_chunks(end, 16, 64, programs=64)
    rows = work.chunks.tolist()
    assert sum(row[0] == 0 for row in rows) > 4
    assert all(row[1] == -1 for row in rows if row[0] != 0)
    longest = max(row[5] - row[2] for row in rows)
    assert longest <= tiles.MIN_CHUNK


def test_lists_stay_small_at_full_size() -> None:
    end = torch.from_numpy(random_forest(np.random.default_rng(0), 200, 655))
    assert len(end) > 60_000
    lists = query_lists(end, 32, 64)
    work = key_chunks(end, 16, 128, 60)
    made = (lists.query_tiles, lists.runs, work.chunks, work.split_tiles)
    assert sum(x.numel() * x.element_size() for x in made) < 2**20


SIZE = 1 << 20
STAR = 1_024
FORESTS = {
    "chain": lambda: np.full(SIZE, SIZE),
    "star": lambda: np.concatenate([np.full(STAR, SIZE), _leaves(STAR, SIZE, 100)]),
    "agent": lambda: _agents(40, 4_096, 100, 200, 64),
    "prompts": lambda: np.concatenate(
        [_prompts(at, 8_192, 1_024, 256) for at in range(0, SIZE, 8_192)]
    ),
}  # fmt: skip


def _leaves(first: int, stop: int, tokens: int) -> npt.NDArray[np.int64]:
    """Ends of leaves of so many tokens, the last one shorter, that fill ``first … stop - 1``."""
    place = np.arange(first, stop)
    return np.minimum(stop, first + ((place - first) // tokens + 1) * tokens)


def _prompts(at: int, size: int, prompt: int, completion: int) -> npt.NDArray[np.int64]:
    ends = np.full(prompt, at + size)
    return np.concatenate([ends, _leaves(at + prompt, at + size, completion)])


def _agents(tasks: int, system: int, turns: int, turn: int, thought: int) -> npt.NDArray[np.int64]:
    """A system prompt and tasks below it; each turn's thought is dropped from the next."""
    length = turns * (turn + thought)
    ends = [np.full(system, system + tasks * length)]
    for task in range(tasks):
        stop = system + (task + 1) * length
        for nth in range(turns):
            at = stop - length + nth * (turn + thought)
            ends += [np.full(turn, stop), np.full(thought, at + turn + thought)]
    # The thought comes before the next turn, so that turn is behind it in depth-first order.
    return np.concatenate(ends)


GROWTH = """
import resource, torch
from kernels.triton.tiles import key_chunks, query_lists
from tests.kernels.triton.test_tree import FORESTS
ends = {name: torch.from_numpy(make().astype("int32")) for name, make in FORESTS.items()}
query_lists(ends["chain"][:1000].clamp(max=1000), 8, 8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for end in ends.values():
    query_lists(end, 32, 64), key_chunks(end, 32, 128, 60)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize("name", FORESTS)
def test_lists_of_a_million_tokens_are_complete(name: str) -> None:
    end = FORESTS[name]().astype(np.int32)
    assert len(end) > 1_000_000
    TreeMask.from_subtree_end(end)  # it is a forest
    lists = query_lists(torch.from_numpy(end), 32, 64)
    visits = int(lists.query_tiles[:, 2::2].sum())
    assert visits == int(lists.runs[:-1, 1].sum())
    assert visits * 32 * 64 == visited_area(torch.from_numpy(end), 32, 64)
    if name == "chain":
        assert len(lists.runs) <= 2 * len(lists.query_tiles) + 1


def test_lists_of_a_million_tokens_take_little_memory() -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 500e6


def test_heads_that_share_a_tile() -> None:
    groups = (1, 2, 3, 4, 5, 6, 7, 8, 12)
    assert [heads_per_tile(group, 128) for group in groups] == [1, 2, 3, 4, 5, 6, 7, 8, 12]
    assert heads_per_tile(16, 16) == 2  # a tile keeps 8 tokens
    assert heads_per_tile(7, 32) == 1  # 4 tokens a tile would be too few
    for group in range(1, 65):
        for rows in (16, 32, 64, 128):
            heads = heads_per_tile(group, rows)
            assert group % heads == 0 and rows // heads >= 8 and rows % heads < rows / 12


@pytest.mark.parametrize("arch", [0, 80, 86, 87, 89, 90, 100, 103, 120, 121])
def test_every_device_has_configurations(arch: int) -> None:
    assert family(arch or 80) in SHARED_LIMIT
    for name in (*PASSES, "dqkv"):
        for head_dim in HEAD_DIMS:
            for itemsize in (2, 4):
                for group, release, described in itertools.product(
                    (1, 4, 7), ((3, 5), (3, 9), (4, 0)), (True, False)
                ):
                    given = (name, arch, head_dim, itemsize, group)
                    chosen = default_config(*given, release, described)
                    assert chosen.rows & (chosen.rows - 1) == chosen.keys & (chosen.keys - 1) == 0
                    assert 16 <= chosen.rows <= 128 and 16 <= chosen.keys <= 128


@pytest.mark.parametrize("release", [(3, 5), (3, 6), (3, 8), (3, 9), (4, 0)])
def test_dk_and_dv_are_wide_only_where_that_does_not_spill(release: tuple[int, int]) -> None:
    def rows(group: int, described: bool) -> int:
        return default_config("dkv", 90, 128, 2, group, release, described).rows

    wide = 64 if release >= (3, 9) else 32
    assert rows(4, True) == rows(8, True) == rows(1, True) == wide
    assert rows(4, False) == rows(7, True) == rows(16, True) == 32


def test_a_bushy_tree_takes_narrow_key_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.triton.tree.architecture", lambda device: 90)
    chain = TreeMask.from_subtree_end(subtree_end_of([(-1, 2_000)]))
    bushy = TreeMask.from_subtree_end(subtree_end_of([(-1, 64)] + [(0, 64)] * 40))
    configs = [
        device_configs(CPU, torch.bfloat16, 64, 4, mask)["dkv"] for mask in (chain, bushy, None)
    ]
    assert [config.keys for config in configs] == [128, 64, 128]
    assert [config.warps for config in configs] == [8, 4, 8]


def test_the_operator_takes_the_tiles_of_its_tree_and_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Halved where the tree is bushy; those of pointers where a tensor cannot be described."""
    monkeypatch.setattr("kernels.triton.tree.architecture", lambda device: 90)
    monkeypatch.setattr("kernels.triton.tree.triton_version", lambda: (3, 9))
    monkeypatch.setattr("kernels.triton.tree.forward", lambda *given: given[-1])
    monkeypatch.setattr("kernels.triton.tree.backward", lambda *given: given[-1]["dkv"])
    masks = [
        TreeMask.from_subtree_end(subtree_end_of(nodes))
        for nodes in ([(-1, 2_624)], [(-1, 64)] + [(0, 64)] * 40)
    ]

    def tiles_of(mask: TreeMask, head_dim: int, odd: str) -> list[tuple[int, int]]:
        def tensor(name: str, heads: int) -> torch.Tensor:
            width = head_dim + (name == odd)
            return torch.zeros(1, heads, mask.n, width, dtype=torch.bfloat16)[..., :head_dim]

        q, k, v, dout = (tensor(*x) for x in (("q", 4), ("k", 1), ("v", 1), ("dout", 4)))
        saved = (q, k, v, q, torch.zeros(4 * mask.n))
        forward = cast(Config, forward_pass(q, k, v, mask, 1.0))
        dkv = cast(Config, backward_pass(dout, saved, mask, 1.0))
        return [(config.rows, config.keys) for config in (forward, dkv)]

    assert [tiles_of(mask, 128, "") for mask in masks] == [
        [(128, 128), (64, 128)],
        [(128, 128), (64, 64)],
    ]
    for odd in ("q", "k", "v", "dout"):
        assert [tiles_of(mask, 128, odd)[1] for mask in masks] == [(32, 128)] * 2
        assert tiles_of(masks[0], 256, odd)[0] == (128, 64 if odd == "dout" else 32)


def test_what_the_copy_engine_can_read() -> None:
    x = torch.zeros(2, 40, 6, 64, dtype=torch.bfloat16).transpose(1, 2)
    assert describable(x, x[:, 1:], x[:1])
    assert not describable(x[..., 1:])  # begins between two 16-byte words
    assert not describable(x.expand(2, 6, 40, 64).mT)  # last axis not dense
    assert not describable(x[:, :1].expand(2, 6, 40, 64))  # a stride of 0
    assert not describable(torch.zeros(2, 6, 40, 65, dtype=torch.bfloat16))


def test_reasons_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "float64" in str(unavailable_reason(CPU, torch.float64, 64))
    assert "64, 96, 128, 256, not 80" in str(unavailable_reason(CPU, torch.float32, 80))
    assert "TRITON_INTERPRET=1" in str(unavailable_reason(CPU, torch.float32, 64))
    assert "not mps" in str(unavailable_reason(torch.device("mps"), torch.float32, 64))
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (10, 0))
    for release, said in (((3, 5), "need Triton 3.6"), ((3, 6), None)):
        monkeypatch.setattr("kernels.triton.tree.triton_version", lambda r=release: r)
        reason = unavailable_reason(torch.device("cuda"), torch.bfloat16, 64)
        assert reason is None if said is None else said in str(reason)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for release, numpy_version, runs in (
        ((3, 6), "2.3.5", True),
        ((3, 6), "2.4.0", False),
        ((3, 9), "2.4.0", True),
    ):
        monkeypatch.setattr("kernels.triton.tree.triton_version", lambda r=release: r)
        monkeypatch.setattr("numpy.__version__", numpy_version)
        said = unavailable_reason(CPU, torch.float32, 64)
        assert said is None if runs else "pip install 'numpy<2.4'" in str(said)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "not installed" in str(unavailable_reason(CPU, torch.float32, 64))


def test_inputs_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    mask = TreeMask.from_subtree_end(subtree_end_of([(-1, 9)]))
    x = inputs(9, q_heads=4, kv_heads=2, head_dim=64)
    for q, k, v, said in [
        (x.q[0], x.k, x.v, "must be"),
        (x.q, x.k, x.v[:, :1], "must be"),
        (x.q[:, :, :8], x.k, x.v, "agree in batch, tokens"),
        (x.q[:, :3], x.k, x.v, "3 query heads must be a multiple of the 2"),
        (x.q.half(), x.k, x.v, "one floating dtype; they have float16, float32"),
        (x.q[:, :, :8], x.k[:, :, :8], x.v[:, :, :8], r"int32 \(8,\)"),
        (x.q[:, :0], x.k, x.v, "empty"),
    ]:
        with pytest.raises(ValueError, match=said):
            triton_tree_attention(q, k, v, mask)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET"):
        triton_tree_attention(x.q, x.k, x.v, mask)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ValueError, match="positive number"):
        triton_tree_attention(x.q, x.k, x.v, mask, scale=-1.0)
