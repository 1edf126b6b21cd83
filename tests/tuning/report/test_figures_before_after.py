"""Before and after, drawn: lengths and areas are tokens, bars are filled, marks are few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.batch.pipeline import simulate
from packing.batch.spec import BatchSpec
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tests.packing.strategies import any_rows
from tuning.plan.picture import MAX_BANDS, BatchPicture, batch_picture
from tuning.report.figures.before_after import bars

PARTS = ("first", "again", "padding")


def picture_of(rows: Rows, plan: BatchSpec) -> BatchPicture:
    order = PrefixOrder.of(rows)
    return batch_picture(simulate(rows, plan, order))


@settings(max_examples=60, deadline=None)
@given(any_rows, st.integers(1, 2), st.integers(1, 2))
def test_lengths_and_areas_are_tokens(lists: list[list[int]], dp: int, minibatches: int) -> None:
    rows = Rows.from_lists([row for row in lists for _ in range(dp * minibatches)])
    picture = picture_of(rows, BatchSpec(128, dp, minibatches))
    drawn = bars(picture)
    assert [bar.panel for bar in drawn] == list(picture.panels)
    padded, flat = picture.panels[:2]
    assert padded.lines - padded.waiting == len(rows), "waiting is no row"
    assert flat.title.startswith(f"Packed flat · {flat.lines - flat.waiting} micro-batch")
    longest = max(panel.tokens for panel in picture.panels) or 1
    for bar in drawn:
        assert bar.length == pytest.approx(bar.panel.tokens / longest)
        for part in PARTS:
            area = sum(mark.width * mark.height for mark in bar.marks if mark.part == part)
            assert area == pytest.approx(getattr(bar.panel, part) / longest)


@settings(max_examples=60, deadline=None)
@given(any_rows)
def test_slices_fill_the_bar_from_left_to_right(lists: list[list[int]]) -> None:
    for bar in bars(picture_of(Rows.from_lists(lists), BatchSpec(128, 1, 1))):
        ends = {0.0}
        for left in sorted({mark.left for mark in bar.marks}):
            slice_ = [mark for mark in bar.marks if mark.left == left]
            assert left == pytest.approx(max(ends)), "a slice begins where the last one ends"
            assert len({mark.width for mark in slice_}) == 1
            tops = [mark.top for mark in slice_]
            heights = [mark.height for mark in slice_]
            assert tops == pytest.approx([0.0, *np.cumsum(heights)[:-1]])
            assert sum(heights) == pytest.approx(1.0), "its parts fill it from top to bottom"
            ends.add(left + slice_[0].width)
        assert max(ends) == pytest.approx(bar.length)


def test_many_rows_are_few_marks() -> None:
    rows = Rows.from_lists([[1] * 50 + [i] * (i % 90) for i in range(2000)], np.arange(2000) // 8)
    drawn = bars(picture_of(rows, BatchSpec(256, 2, 4)))
    assert len(drawn) == 3
    for bar in drawn:
        assert 0 < len(bar.marks) <= 3 * MAX_BANDS
        assert max(bar.length for bar in drawn) == 1.0
