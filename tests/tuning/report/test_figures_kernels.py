"""Figures of the Kernels page: small, complete, and true to what they are given."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from kernels.attention import BACKENDS
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import whole_trie
from tuning.measure.proofs.kernels import FLAT
from tuning.report.figures.kernels import NAMES, attention_bars, layer_errors
from tuning.report.figures.tiles import MOST_CELLS, TileMap, pooled_by, tile_maps, tile_table

MOST_BYTES = 300_000


def _time(median: float) -> dict[str, Any]:
    return {"median_ms": median, "p20_ms": 0.9 * median, "p80_ms": 1.2 * median, "n": 5}


ROWS: list[dict[str, Any]] = [
    {"backend": "triton", "reason": "no GPU"},
    {"backend": "dense", "forward": _time(500), "backward": _time(900)},
    {"backend": "cascade", "forward": _time(20), "backward": _time(50)},
    {"backend": "flex", "forward": _time(30), "backward_reason": "not on a CPU"},
]

RESULT: dict[str, Any] = {
    "logprobs": {"maximum": 2e-7, "mean": 3e-8},
    "logprob_tolerance": 1e-5,
    "gradient_tolerance": 1e-5,
    "layers": [
        {"layer": "model.embed_tokens.weight", "maximum": 9e-7, "mean": 1e-8},
        {"layer": "layer 0", "maximum": 5e-3, "mean": 0.0},
    ],
}


def test_bars_show_every_time_with_its_spread_and_nothing_that_was_not_timed() -> None:
    forward, backward = attention_bars(ROWS).data
    assert set(forward.y) == {"dense mask", "cascade (ours)", "FlexAttention"}
    assert set(backward.y) == {"dense mask", "cascade (ours)"}
    at = forward.y.index("cascade (ours)")
    assert forward.x[at] == 20 and forward.text[at] == "20 ms (18–24)"


def test_the_fastest_that_can_train_is_on_top_and_forward_only_ones_are_last() -> None:
    order = attention_bars(ROWS).layout.yaxis.categoryarray
    assert list(order) == ["FlexAttention", "dense mask", "cascade (ours)"]


def test_times_of_a_sample_and_of_one_run_say_so() -> None:
    row = {"backend": "rows", "scaled": "2 of 5 rows", "forward": _time(20) | {"n": 1}}
    forward, _ = attention_bars([row]).data
    assert list(forward.y) == ["rows one by one (estimated)"]
    assert list(forward.text) == ["20 ms (one run)"]


def test_every_backend_has_a_name_for_people() -> None:
    assert set(NAMES) == {*BACKENDS, FLAT}


def test_errors_beyond_tolerance_stand_out_and_zeros_stay_on_the_axis() -> None:
    maximum, mean, tolerance = layer_errors(RESULT).data
    assert list(maximum.y) == ["log-probabilities", "embed_tokens", "layer 0"]
    colors = maximum.marker.color
    assert colors[0] == colors[1] != colors[2]
    assert all(x > 0 for x in mean.x) and mean.customdata[2] == 0
    assert set(tolerance.x) == {1e-5}


def _maps(rows: int, tokens: int) -> tuple[TileMap, TileMap]:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 9, tokens // 4).tolist() for _ in range(4)]
    lists = [prompts[i % 4] + rng.integers(0, 9, tokens).tolist() for i in range(rows)]
    trie = whole_trie(PrefixOrder.of(Rows.from_lists(lists)))
    return TileMap.of(trie, "areal"), TileMap.of(trie, "depth-first")


@pytest.mark.parametrize("rows", [8, 400])
def test_tile_maps_are_small_whatever_the_tree(rows: int) -> None:
    areal, ours = _maps(rows, 300)
    figure = tile_maps(areal, ours)
    assert len(figure.to_json()) <= MOST_BYTES
    left, right = figure.data[:2]
    for trace, tiles in ((left, areal), (right, ours)):
        z = np.asarray(trace.z)
        assert len(z) <= MOST_CELLS
        assert trace.dx == 128 * pooled_by(tiles)
        assert (z > 0).any() and (z == 0).any()
    legend = [trace.name for trace in figure.data[2:]]
    assert [name.split(":")[0] for name in legend] == ["full", "partial", "empty"]
    assert pooled_by(ours) == (1 if rows == 8 else -(-len(ours.visible) // MOST_CELLS))


def test_the_largest_maps_that_are_not_pooled_fit() -> None:
    side = MOST_CELLS
    pattern = np.random.default_rng(0).integers(0, 128 * 128 + 1, (side, side)).astype(np.int32)
    tiles = TileMap(side * 128, 128, pattern)
    assert pooled_by(tiles) == 1
    assert len(tile_maps(tiles, tiles).to_json()) <= MOST_BYTES


def test_the_table_counts_both_orders() -> None:
    areal, ours = _maps(8, 300)
    first, second = tile_table(areal, ours)
    assert (first["order"], second["order"]) == ("AReaL's", "depth-first")
    for line, tiles in ((first, areal), (second, ours)):
        parts = [line[f"{state} tiles"] for state in ("empty", "partial", "full")]
        assert tuple(parts) == tiles.counts
        assert line["block efficiency"] == tiles.block_efficiency
    json.dumps([first, second])
