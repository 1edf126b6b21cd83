"""The Triton kernels: right in the interpreter, their tiles exact, their refusals readable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
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
    default_config,
    family,
    heads_per_tile,
)
from kernels.triton.tiles import key_chunks, query_lists
from kernels.triton.tree import triton_tree_attention, unavailable_reason
from tests.kernels.forests import Int32s, forests, inputs, random_forest, subtree_end_of, visible

CPU = torch.device("cpu")


@pytest.mark.process
def test_cases_in_the_interpreter() -> None:
    """Runs triton_interpreter_cases.py in a process whose Triton interprets."""
    root = Path(__file__).resolve().parents[2]
    cases = Path(__file__).with_name("triton_interpreter_cases.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(cases), "-q", "-p", "no:cacheprovider"],
        cwd=root,
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


@settings(max_examples=60, deadline=None)
@given(forests(), st.sampled_from([1, 4, 16]), st.sampled_from([1, 8, 16]))
def test_lists_of_key_tiles(end: Int32s, tile_q: int, tile_k: int) -> None:
    lists = query_lists(torch.from_numpy(end), tile_q, tile_k)
    want = tile_kinds(end, tile_q, tile_k)
    got = {}
    table = lists.query_tiles.tolist()
    for query_tile, start, masked, whole in table:
        visits = lists.key_tiles[start : start + masked + whole].tolist()
        for place, key_tile in enumerate(visits):
            got[query_tile, key_tile] = place >= masked
    assert got == want
    assert sorted(row[0] for row in table) == list(range(-(-len(end) // tile_q)))
    work = [masked + whole for _, _, masked, whole in table]
    assert work == sorted(work, reverse=True)
    assert len(lists.key_tiles) == len(want) + 1
    assert lists.key_tiles.dtype == lists.query_tiles.dtype == torch.int32


@settings(max_examples=60, deadline=None)
@given(
    forests(),
    st.sampled_from([1, 4, 16]),
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
    got: dict[tuple[int, int], bool] = {}
    slots: dict[int, list[int]] = {}
    for row in work.chunks.tolist():
        key_tile, slot, first, jump_after, jump, masked, first_whole, whole = row
        visits = [first + n + (0 if n < jump_after else jump) for n in range(masked)]
        for query_tile in visits:
            assert (query_tile, key_tile) not in got
            got[query_tile, key_tile] = False
        for query_tile in range(first_whole, first_whole + whole):
            assert (query_tile, key_tile) not in got
            got[query_tile, key_tile] = True
        slots.setdefault(key_tile, []).append(slot)
    assert got == tile_kinds(end, tile_q, tile_k)
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
    longest = max(row[5] + row[7] for row in rows)
    assert longest <= tiles.MIN_CHUNK


def test_lists_stay_small_at_full_size() -> None:
    end = torch.from_numpy(random_forest(np.random.default_rng(0), 200, 655))
    assert len(end) > 60_000
    lists = query_lists(end, 32, 64)
    work = key_chunks(end, 16, 128, 60)
    made = (lists.query_tiles, lists.key_tiles, work.chunks, work.split_tiles)
    assert sum(x.numel() * x.element_size() for x in made) < 2**20


def test_heads_that_share_a_tile() -> None:
    assert [heads_per_tile(group, 128) for group in (1, 2, 3, 4, 6, 7, 8)] == [1, 2, 1, 4, 2, 1, 8]
    assert heads_per_tile(16, 16) == 2  # a tile keeps 8 tokens


@pytest.mark.parametrize("arch", [0, 80, 86, 87, 89, 90, 100, 103, 120, 121])
def test_every_device_has_configurations(arch: int) -> None:
    assert family(arch or 80) in SHARED_LIMIT
    for name in PASSES:
        for head_dim in HEAD_DIMS:
            for itemsize in (2, 4):
                for group in (1, 4, 7):
                    chosen = default_config(name, arch, head_dim, itemsize, group)
                    assert chosen.rows & (chosen.rows - 1) == chosen.keys & (chosen.keys - 1) == 0
                    assert 16 <= chosen.rows <= 128 and 16 <= chosen.keys <= 128


def test_reasons_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "float64" in str(unavailable_reason(CPU, torch.float64, 64))
    assert "64, 96, 128, 256, not 80" in str(unavailable_reason(CPU, torch.float32, 80))
    assert "TRITON_INTERPRET=1" in str(unavailable_reason(CPU, torch.float32, 64))
    assert "not mps" in str(unavailable_reason(torch.device("mps"), torch.float32, 64))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "not installed" in str(unavailable_reason(CPU, torch.float32, 64))


def test_inputs_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    mask = TreeMask.from_subtree_end(subtree_end_of([(-1, 9)]))
    x = inputs(9, q_heads=4, kv_heads=2, head_dim=64)
    for q, k, v, said in [
        (x.q[0], x.k, x.v, "must be"),
        (x.q, x.k, x.v[:, :1], "must be"),
        (x.q[:, :, :8], x.k, x.v, "same batch, tokens"),
        (x.q[:, :3], x.k, x.v, "3 query heads are no multiple of 2"),
        (x.q.half(), x.k, x.v, "one dtype; they have float16, float32, float32"),
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
