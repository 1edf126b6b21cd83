"""Figures as people read them: one way to write each kind."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuning.plan import numbers


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (numbers.number(1234567), "1,234,567"),
        (numbers.number(-5), "−5"),
        (numbers.number(None), "–"),
        (numbers.rounded(0.1234), "0.123"),
        (numbers.rounded(20.0), "20"),
        (numbers.rounded(1234.5), "1,234"),
        (numbers.rounded(9.996), "10"),
        (numbers.rounded(-0.0), "0"),
        (numbers.rounded(1e-30), "0"),
        (numbers.many(1, "tree"), "1 tree"),
        (numbers.many(0, "tree"), "0 trees"),
        (numbers.many(2048, "branch", "branches"), "2,048 branches"),
        (numbers.about(1_385_728), "1.39 M"),
        (numbers.about(999_950), "1 M"),
        (numbers.about(114_688), "115 k"),
        (numbers.about(950), "950"),
        (numbers.compared(0.75), "25% fewer"),
        (numbers.compared(0.083, "tokens", "flat"), "92% fewer tokens than flat"),
        (numbers.compared(1.005), "0.5% more"),
        (numbers.compared(1.0, "tokens", "flat"), "as many tokens as flat"),
        (numbers.compared(2.58, "", "A"), "2.6 times as many as A"),
        (numbers.ratio(0.7131), "0.713"),
        (numbers.percent(0.04), "4.0%"),
        (numbers.seconds(0.0123), "12.3 ms"),
        (numbers.seconds(1.823), "1.82 s"),
        (numbers.seconds(1234.4), "1,234 s"),
        (numbers.seconds(None), "–"),
        (numbers.milliseconds(0.1234), "0.123 ms"),
        (numbers.gib(3 * 2**29), "1.50 GiB"),
        (numbers.moment("2026-11-30T10:00:59+00:00"), "2026-11-30 10:00 UTC"),
        (numbers.moment("2026-11-30T01:30:00+02:00"), "2026-11-29 23:30 UTC"),
        (numbers.moment("2026-11-30T10:00:00"), "2026-11-30 10:00 UTC"),
        (numbers.moment("<yesterday>"), "<yesterday>"),
    ],
)
def test_a_figure_is_written_in_one_way(written: str, text: str) -> None:
    assert written == text


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 6))
def test_rounded_is_near_and_has_no_exponent(value: float, digits: int) -> None:
    text = numbers.rounded(value, digits)
    assert re.fullmatch(r"−?\d{1,3}(,\d{3})*(\.\d*[1-9])?", text), text
    read = float(text.replace(",", "").replace("−", "-"))
    assert math.isclose(read, value, rel_tol=10.0 ** (1 - digits), abs_tol=1e-12)
