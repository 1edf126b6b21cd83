"""Comparisons: the same measures, differences as numbers, and what must be kept in mind."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.tuning.workspaces import PLAN, rows, sweep, workspace
from tuning.compare import Compared, Measure, Side, compare, side_of


def line(compared: Compared, name: str) -> dict[str, object]:
    return next(vars(one) for one in compared.lines if one.name == name)


def test_a_workspace_against_itself() -> None:
    side = side_of(workspace())
    same = compare(side, side)
    assert same.changed == () and same.notes == ()
    for one in same.lines:
        assert one.difference == 0 and one.winner == "", one.name
    assert {"tree_token_ratio", "paid ratio, trees", "step s, tree", "memory GiB"} <= {
        one.name for one in same.lines
    }


def test_two_caps_of_one_batch() -> None:
    a = side_of(replace(workspace(with_sweep=False), points=()), "small")
    plan = replace(PLAN, max_tokens_per_mb=1024)
    b = side_of(replace(workspace(with_sweep=False, plan=plan), points=()), "large")
    compared = compare(a, b)
    assert compared.changed == (("max_tokens_per_mb", "512", "1024"),)
    assert line(compared, "tokens")["difference"] == 0
    trees = line(compared, "trees, all ranks")
    assert trees["difference"] == -1 and trees["winner"] == "b" and trees["ratio"] == 0.5
    paid = line(compared, "paid ratio, trees")
    assert paid["kind_a"] == paid["kind_b"] == "exact"


def test_two_datasets_differ_in_their_rows() -> None:
    longer = workspace(own=rows(extra=5))
    compared = compare(side_of(workspace()), side_of(longer))
    assert line(compared, "tokens")["difference"] == 40
    assert line(compared, "longest row")["difference"] == 5
    assert line(compared, "tokens")["winner"] == "", "more rows are neither better nor worse"
    assert any("tokens/s" in note for note in compared.notes)


def test_other_machines_and_kinds_are_said() -> None:
    other = replace(sweep(), machine="a GPU")
    estimated = replace(
        other,
        points=tuple(replace(p, step_kind="estimated") if p.step_s else p for p in other.points),
    )
    compared = compare(side_of(workspace()), side_of(replace(workspace(), sweep=estimated)))
    assert any("different machines" in note and "a GPU" in note for note in compared.notes)
    assert any("estimated" in note for note in compared.notes)


@pytest.mark.parametrize(
    ("better", "a", "b", "winner"),
    [
        ("less", 2, 1, "b"),
        ("less", 1, 2, "a"),
        ("more", 1, 2, "b"),
        ("", 1, 2, ""),
        ("more", 1, 1, ""),
    ],
)
def test_who_wins(better: str, a: int, b: int, winner: str) -> None:
    sides = [
        Side(str(value), (Measure("x", value, better=better),), {})  # type: ignore[arg-type]
        for value in (a, b)
    ]
    assert compare(*sides).lines[0].winner == winner


def test_what_one_side_lacks_has_no_difference() -> None:
    a = Side("a", (Measure("x", 1),), {"k": "1"})
    b = Side("b", (Measure("y", 0),), {})
    compared = compare(a, b)
    assert [(one.name, one.difference, one.ratio) for one in compared.lines] == [
        ("x", None, None),
        ("y", None, None),
    ]
    assert compared.changed == (("k", "1", "–"),)
    zero = compare(b, b).lines[0]
    assert zero.difference == 0 and zero.ratio is None


def test_plain_data_and_text() -> None:
    compared = compare(side_of(workspace()), side_of(workspace(own=rows(extra=5))))
    assert json.loads(json.dumps(compared.to_json()))["lines"][0]["name"] == "rows"
    text = compared.text()
    assert "+40" in text and "measured" in text and text.startswith("a: rollouts.jsonl")
