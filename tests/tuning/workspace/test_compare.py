"""Comparisons: the same measures, differences as numbers, and what must be kept in mind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.sources.spec import SourceSpec
from tests.tuning.sweep_cases import grpo_rows
from tests.tuning.workspaces import PLAN, point, rows, sweep, workspace
from tuning.cli import app
from tuning.jobs.points import Point, Question
from tuning.jobs.store import Store
from tuning.plan.batch import Batch
from tuning.plan.plan import Packer, PlanError, TuningPlan
from tuning.plan.summary import BatchSummary, Packed
from tuning.workspace.compare import Compared, compare
from tuning.workspace.compare_side import Measure, Side, side_of
from tuning.workspace.compare_text import compare_line, plan_of_link, text_of
from tuning.workspace.file import save_workspace
from tuning.workspace.workspace import SavedPoint, Workspace

STEP, PAID = "step with trees, s", "paid tokens"


def line(compared: Compared, name: str) -> dict[str, Any]:
    return next(vars(one) for one in compared.lines if one.name == name)


def timed(step_s: float, plan: TuningPlan = PLAN, own: Rows | None = None, **fields: Any) -> Side:
    """A side whose step with trees was measured, its spread a tenth of it."""
    own = own or rows()
    one = replace(
        point("tree", plan.max_tokens_per_mb, step_s, own.fingerprint, plan),
        p20_s=step_s * 0.95,
        p80_s=step_s * 1.05,
        **fields,
    )
    return side_of(replace(workspace(False, plan, own), points=(SavedPoint("r", plan, one),)))


def test_a_workspace_against_itself() -> None:
    side = side_of(workspace())
    same = compare(side, side)
    assert same.changed == () and same.notes == ()
    for one in same.lines:
        assert one.difference == 0 and one.winner == "", one.name
    assert {"tree_token_ratio", PAID, STEP, "memory, GiB"} <= {one.name for one in same.lines}
    assert "A and B compute the same number of tokens (exact)" in same.sentence


def test_two_caps_of_one_batch() -> None:
    a = side_of(replace(workspace(with_sweep=False), points=()), "small")
    plan = replace(PLAN, max_tokens_per_mb=1024)
    b = side_of(replace(workspace(with_sweep=False, plan=plan), points=()), "large")
    compared = compare(a, b)
    assert compared.changed == (("max_tokens_per_mb", "512", "1024"),)
    assert line(compared, "tokens")["difference"] == 0
    trees = line(compared, "trees")
    assert trees["difference"] == -1 and trees["ratio"] == 0.5
    assert trees["winner"] == "", "fewer trees of a larger cap are neither better nor worse"
    paid = line(compared, PAID)
    assert paid["kind_a"] == paid["kind_b"] == "exact"
    assert "no step of either has been timed at its cap" in compared.sentence


def test_two_datasets_differ_in_their_rows() -> None:
    compared = compare(timed(1.0), timed(2.0, own=rows(extra=5)))
    assert line(compared, "tokens")["difference"] == 40
    assert line(compared, "longest row")["difference"] == 5
    assert line(compared, "tokens")["winner"] == "", "more rows are neither better nor worse"
    for name in (STEP, PAID, "tokens of one trie"):
        assert line(compared, name)["winner"] == "", "other rows are other work"
    assert line(compared, STEP)["note"] == "other rows"
    assert line(compared, "tokens/s with trees")["winner"] == "a"
    assert any("tokens/s" in note for note in compared.notes)
    assert (
        "for each of its own" in compared.sentence
        and "as many tokens a second" in compared.sentence
    )


def test_the_sentence_says_what_matters() -> None:
    b = replace(PLAN, max_tokens_per_mb=384)
    faster = compare(timed(1.4), timed(1.0, b)).sentence
    paid = line(compare(timed(1.4), timed(1.0, b)), PAID)
    assert (paid["a"], paid["b"]) == (1024, 1536)
    assert faster == (
        "B computes 50% more tokens than A (exact), but its step is 1.40× as fast (measured)."
    )
    slower = compare(timed(1.0), timed(1.4, b)).sentence
    assert ", and its step takes 1.40× as long (measured)" in slower
    close = compare(timed(1.0), timed(1.02, b))
    assert "about as long (measured, spreads overlap)" in close.sentence
    assert line(close, STEP)["winner"] == "" and line(close, STEP)["note"] == "spreads overlap"
    assert (
        "no step of B has been timed"
        in compare(timed(1.0), side_of(replace(workspace(False, b), points=()))).sentence
    )


def test_measured_against_estimated_has_no_winner_and_says_so() -> None:
    estimated = timed(0.5, outcome="estimated")
    compared = compare(timed(1.0), estimated)
    assert line(compared, STEP)["winner"] == ""
    assert line(compared, STEP)["note"] == "measured against estimated"
    assert "(A measured, B estimated)" in compared.sentence
    assert any("estimated" in note for note in compared.notes)


def test_other_machines_and_models_are_said() -> None:
    there = replace(sweep(), machine="a GPU")
    compared = compare(side_of(workspace()), side_of(replace(workspace(), sweep=there)))
    assert any("different machines" in note and "a GPU" in note for note in compared.notes)
    model = compare(timed(1.0), timed(0.5, replace(PLAN, model="small")))
    assert line(model, STEP)["winner"] == "" and line(model, STEP)["note"] == "another model"
    assert "with another model" in model.sentence


def test_what_cannot_run_has_no_speed() -> None:
    refused = timed(1.0, replace(PLAN, max_tokens_per_mb=128))
    compared = compare(timed(1.0), refused)
    assert compared.sentence.startswith("B cannot run: AReaL stops: “Sequence length")
    assert line(compared, STEP)["b"] is None and line(compared, STEP)["ratio"] is None
    assert all(one.b_s is None for one in compared.caps)
    over = timed(1.0, replace(PLAN, memory_budget_gib=0.5), memory_bytes=2**30)
    assert over.value(STEP) is None and over.value("tokens/s with trees") is None
    assert [(one.seconds, one.kind) for one in over.steps] == [(None, "does not fit")]
    uneven = timed(1.0, replace(PLAN, prompts_per_step=3, dp_size=2))
    assert "do not divide" in uneven.refused and uneven.steps == ()


def test_points_of_another_device_are_left_out() -> None:
    for device in ("cuda:0", "h100-80", "gpu:nonsense"):
        plan = replace(PLAN, device=device)
        assert timed(1.0, plan).value(STEP) is None, device


def test_steps_stand_cap_by_cap() -> None:
    slow = tuple(replace(p, step_s=p.step_s * 2) if p.step_s else p for p in sweep().points)
    b = replace(workspace(), sweep=replace(sweep(), points=slow), points=())
    caps = {
        (one.mode, one.max_tokens_per_mb): one
        for one in compare(side_of(workspace()), side_of(b)).caps
    }
    assert caps["tree", 512].ratio == 2 and caps["tree", 512].b_kind == "measured"
    assert caps["tree", 640].a_kind == "estimated"
    assert caps["tree", 8192].a_s is None and caps["tree", 8192].a_kind == "does not fit"
    assert caps["flat", 512].ratio == 1
    assert list(caps) == sorted(caps, key=lambda key: (key[0] != "tree", key))


@pytest.mark.parametrize("packer", ["areal", "prefix-aware"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_counted_from_rows_as_a_summary_has_it(packer: Packer, ranks: int) -> None:
    plan = TuningPlan(
        max_tokens_per_mb=256,
        packer=packer,
        dp_size=ranks,
        ppo_n_minibatches=2,
    )
    own = grpo_rows()
    bench = Batch(own, PrefixOrder.of(own))
    summary = BatchSummary.of(bench, plan)
    counted = BatchSummary.of(bench, plan, detail=False)
    mine = counted.of_packer(packer)
    assert counted.packed == (mine,) and mine == summary.of_packer(packer)
    assert mine == Packed.of(bench.simulation(plan, 256))
    assert (counted.flat, counted.padded) == (summary.flat, summary.padded)
    assert summary.picture is not None
    panels = {panel.mode: panel for panel in summary.picture.panels}
    assert counted.packed is not None
    assert mine.paid_tokens == panels["tree"].tokens
    assert mine.paid_tokens // 256 == panels["tree"].lines


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
    text = text_of(compared)
    assert text.startswith(compared.sentence)
    assert "+40" in text and "measured" in text and "A: rollouts.jsonl" in text


@pytest.mark.parametrize(
    "plan",
    [
        TuningPlan(),
        TuningPlan(source=SourceSpec("file", "a b&c?.jsonl", limit=3), packer="prefix-aware"),
    ],
)
def test_a_plan_on_the_command_line_is_read_back(plan: TuningPlan) -> None:
    import shlex

    words = shlex.split(compare_line(plan, "run1"))
    assert words[:4] == ["python", "-m", "tuning", "compare"] and words[5] == "run1"
    assert plan_of_link(words[4]) == plan
    assert plan_of_link("http://127.0.0.1:8501/packing" + words[4] + "&row=3") == plan
    with pytest.raises(PlanError, match="cap='x' was not used"):
        plan_of_link("?cap=x")


def test_the_command_takes_links_runs_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))
    carried = tmp_path / "carried.zip"
    save_workspace(carried, workspace(), with_rows=True)
    pairs = "data=sample:preference-pairs"

    def ask(*words: str) -> Any:
        done = CliRunner().invoke(app, ["compare", *words, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    plan = TuningPlan(source=SourceSpec("sample", "preference-pairs"), max_tokens_per_mb=512)
    for run, step_s in (("a", 2.0), ("b", 1.0)):
        asked = Question.of(plan, "tree", 512, "d" * 16, "cpu", "0")
        told = Point(asked, "measured", step_s=step_s, measured_at="2026-01-01T00:00:00+00:00")
        Store().add(run, plan, told)
    two = ask(f"?{pairs}&cap=512", f"?{pairs}&cap=1024")
    counted = {one["name"]: one for one in two["lines"]}
    assert counted["rows"]["difference"] == 0 and counted["trees"]["difference"] < 0
    compared = ask("a", "b")
    assert [(one["a_s"], one["b_s"], one["ratio"]) for one in compared["caps"]] == [(2, 1, 0.5)]
    assert compared["lines"][0]["name"] == STEP, "rows that are not these are not counted"
    assert ask(str(carried), "a")["a"] == str(carried)
    for words, sentence in (
        (("a", "x"), "no run of the history called 'x'; the newest are b, a"),
        (("?cap=x", "a"), "cap='x' was not used"),
    ):
        done = CliRunner().invoke(app, ["compare", *words])
        assert done.exit_code == 1 and sentence in done.stderr and done.stderr.count("\n") == 1


def test_without_rows_only_times_are_compared() -> None:
    bare = Workspace(PLAN, points=workspace().points)
    side = side_of(bare)
    assert side.measures[0].name == STEP
    assert side.data == rows().fingerprint, "the points say which rows they are of"
    assert compare(side, timed(2.0)).sentence.startswith("B's step takes 2.00× as long")
