"""Gates: a tiny grammar, judged by Python's own comparison; nothing in it is run as code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuning.advice import GateError, broken_gates

FIGURES = {"paid": 1.25, "trees": 14, "flat": None, "cap": 14}
finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(finite, st.sampled_from(["paid", "cap"]))
def test_a_gate_breaks_where_the_comparison_holds(number: float, name: str) -> None:
    value = FIGURES[name] or 0.0
    order = (value > number) - (value < number)
    holds = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (1, 0), "==": (0,), "!=": (-1, 1)}
    for sign, orders in holds.items():
        for gate in (f"{name}{sign}{number!r}", f"  {name}  {sign} {number!r} "):
            assert bool(broken_gates([gate], FIGURES)) is (order in orders)


def test_what_a_broken_gate_says() -> None:
    assert broken_gates(["paid>1", "trees<3", "trees >= cap"], FIGURES) == [
        "paid>1: paid is 1.25.",
        "trees >= cap: trees is 14.",
    ]
    assert broken_gates(["flat<9"], FIGURES) == ["flat<9: flat is not known here."]
    assert broken_gates([], FIGURES) == []


@pytest.mark.parametrize(
    "gate",
    ["", "paid", "paid>", ">1", "paid=1", "paid=>1", "paid>1>2", "paid>one", "none>1", "paid>nan",
     "paid>inf", "paid>1;trees>2", "__import__('os')>1", "paid>(1)", "paid > 1 or 1"],
)  # fmt: skip
def test_a_gate_that_cannot_be_read_says_how_one_is_written(gate: str) -> None:
    with pytest.raises(GateError, match="--fail-if"):
        broken_gates([gate], FIGURES)
