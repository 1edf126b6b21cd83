"""What the curve of the Packing page is given to draw: counted points, and lines that are true."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from pages.packing import cap_chart as module
from tuning.plan.batch import CurvePoint

STEP, ORIGINAL = 128, 10_000


def sent(monkeypatch: pytest.MonkeyPatch, trees: dict[int, int], cap: int) -> dict[str, Any]:
    """The data of a chart of caps with so many trees each."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "_component", lambda **given: calls.append(given["data"]))
    points = [CurvePoint(at, n - 1, n, 7000, n * at, 10_100) for at, n in sorted(trees.items())]
    module.cap_chart({"areal": points, "prefix-aware": []}, ORIGINAL, cap, 1664, 36352, STEP)
    return calls[0]


def test_teeth_only_between_counted_neighbours_of_equal_trees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trees = {12288: 3, 16384: 3, 18176: 2, 36224: 2, 36352: 1}
    data = sent(monkeypatch, trees, 36224)
    assert data["cap"] == 36224
    flat, paid, tree = data["series"]
    assert [one["name"] for one in data["series"]] == [
        "flat, as today: paid",
        "AReaL's packer: paid",
        "AReaL's packer: tree_token_ratio",
    ]
    assert paid["values"] == [n * at / ORIGINAL for at, n in trees.items()]
    assert paid["trees"] == list(trees.values()) and not any(tree["trees"])
    for (x0, y0), (x1, y1) in pairwise(paid["line"]):
        if y0 is None or y1 is None or x0 == x1:
            continue
        run = trees[max(at for at in trees if at <= x0)]
        assert (y0, y1) == pytest.approx((run * x0 / ORIGINAL, run * x1 / ORIGINAL), rel=1e-3)
    assert [18176, None] in [list(one) for one in paid["line"]], "between 3 and 2 trees: a gap"
    assert [y for x, y in paid["line"] if x == 36352] == [7.2704, 3.6352], "a jump"
    assert all(y == 1.01 for _, y in flat["line"])


def test_values_far_apart_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = (sent(monkeypatch, {2048: n}, 2048) for n in (4, 400))
    assert near["bottom"] == 0 < far["bottom"]
    for data in (near, far):
        values = [v for one in data["series"] for v in one["values"]]
        assert data["bottom"] <= min(values) and max(values) <= data["top"]
        assert len(data["ticks"]) >= 2 and data["axis"] == (1664, 36352)


def test_an_empty_batch_draws_its_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sent(monkeypatch, {}, 2048)["series"] == []
