"""The Compare page: both sides in the link, the library's own numbers, and ways on from nothing."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from packing.prefixes import PrefixOrder
from packing.sources.load import load
from packing.sources.spec import SourceSpec
from tests.pages.patience import rerun_until, settled
from tests.pages.test_pages import FIGURE_BUDGET, opened, own_folders  # noqa: F401
from tuning.jobs.points import Point, Question
from tuning.jobs.store import Store
from tuning.plan.batch import Batch, batch_rows
from tuning.plan.plan import Layout, TuningPlan
from tuning.plan.summary import BatchSummary, Packed
from tuning.workspace.compare import Compared, compare, percent, written
from tuning.workspace.compare_side import side_of
from tuning.workspace.workspace import SavedPoint, Workspace

PLAN = TuningPlan(
    source=SourceSpec("sample", "preference-pairs"), max_tokens_per_mb=512, prompts_per_step=8
)
LINK = {"data": "sample:preference-pairs", "cap": "512", "prompts": "8"}


def bench(plan: TuningPlan) -> Batch:
    rows = batch_rows(load(plan.source).rows, plan)
    return Batch(rows, PrefixOrder.of(rows))


def compared(a: TuningPlan, b: TuningPlan, *points: SavedPoint) -> Compared:
    sides = []
    for plan in (a, b):
        own = tuple(one for one in points if one.plan == plan)
        sides.append(
            side_of(
                Workspace(plan, points=own), "", BatchSummary.of(bench(plan), plan, detail=False)
            )
        )
    return compare(*sides)


def measured(plan: TuningPlan, step_s: float, mode: Layout = "tree", run: str = "r") -> SavedPoint:
    """A point in the history, as a sweep leaves it."""
    data = bench(plan).rows.fingerprint
    asked = Question.of(plan, mode, plan.max_tokens_per_mb, data, "cpu test, 1 thread", "2")
    point = Point(
        asked, "measured", step_s, step_s * 0.99, step_s * 1.01, 3,
        measured_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    Store().add(run, plan, point)
    return SavedPoint(run, plan, point)


def table(app: AppTest) -> list[list[str]]:
    """The cells of the table as text, line by line, the measure's name first."""
    body = next(h.proto.body for h in app.get("html") if 'class="compared"' in h.proto.body)
    lines = re.findall(r"<tr>(.*?)</tr>", body.split("<tbody>")[1], re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.S) for line in lines]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in line] for line in cells]


def query_of(app: AppTest) -> dict[str, str]:
    found = dict(app.query_params)
    return {k: v[0] if isinstance(v, list) else v for k, v in found.items()}


def words(app: AppTest) -> str:
    parts = [*app.header, *app.markdown, *app.caption, *app.info, *app.error, *app.warning]
    return "\n".join(one.value for one in parts).replace("\\", "")


def check_table(app: AppTest, library: Compared) -> None:
    shown = table(app)
    same = [one for one in library.lines if one.difference == 0 and one.kinds == "exact"]
    for one in same:
        assert f"{one.name} {written(one.a)}" in words(app)
    lines = [one for one in library.lines if one not in same]
    assert [cells[0] for cells in shown] == [one.name for one in lines] and lines
    for cells, line in zip(shown, lines, strict=True):
        for cell, value, kind in ((cells[1], line.a, line.kind_a), (cells[2], line.b, line.kind_b)):
            assert cell == " ".join(
                [written(value), *([kind] if kind not in ("", "exact") else [])]
            )
        assert cells[3] == written(line.difference, signed=True) and cells[4] == percent(line)
        assert ("B better" in cells[5]) == (line.winner == "b")
        assert ("B worse" in cells[5]) == (line.winner == "a")
    assert library.sentence in words(app)


def drawn(app: AppTest, key: str) -> list[dict[str, Any]]:
    chart = next(c for c in app.get("plotly_chart") if key in c.proto.id)
    assert len(chart.proto.spec) < FIGURE_BUDGET
    return list(json.loads(chart.proto.spec)["data"])


def test_a_copy_of_the_plan_leads_on_and_undo_brings_it_back() -> None:
    app = opened("compare", **LINK)
    assert "B is the same plan as A" in words(app) and not app.get("plotly_chart")
    app.button(key="other_try_max_tokens_per_mb").click().run()
    assert query_of(app)["b.cap"] == "1024"
    check_table(settled(app), compared(PLAN, replace(PLAN, max_tokens_per_mb=1024)))
    app.button(key="undo").click().run()
    assert "B is the same plan as A" in words(app) and "b.cap" not in app.query_params


def test_controls_change_b_alone_and_a_link_brings_both_sides_back() -> None:
    app = opened("compare", **LINK)
    app.number_input(key="other.max_tokens_per_mb").set_value(1024).run()
    app.selectbox(key="other.packer").set_value("prefix-aware").run()
    app.number_input(key="other.ppo_n_minibatches").set_value(2).run()
    b = replace(PLAN, max_tokens_per_mb=1024, packer="prefix-aware", ppo_n_minibatches=2)
    library = compared(PLAN, b)
    check_table(settled(app), library)
    query = query_of(app)
    assert query == LINK | {"b.cap": "1024", "b.packer": "prefix-aware", "b.mb": "2"}
    again = opened("compare", **query)
    check_table(again, library)
    assert again.number_input(key="other.max_tokens_per_mb").value == 1024
    line = next(c.value for c in again.code)
    assert line.startswith("python -m tuning compare '?data=sample:preference-pairs&cap=512")
    again.number_input(key="other.max_tokens_per_mb").set_value(512).run()
    assert "b.cap" not in again.query_params, "what is as in the plan is no change"


def test_going_on_with_b_makes_it_the_plan() -> None:
    app = opened("compare", **LINK, **{"b.cap": "1024", "b.packer": "prefix-aware"})
    app.button(key="other_take").click().run()
    query = query_of(app)
    assert query == LINK | {"cap": "1024", "packer": "prefix-aware"}
    assert "B is the same plan as A" in words(app)


def test_two_datasets_on_the_same_axes() -> None:
    app = opened("compare", **LINK, vs="data")
    assert "Choose the rows of B" in words(app)
    app.button_group(key="other.sample").set_value("math-grpo").run()
    settled(app)
    a = replace(PLAN, max_tokens_per_mb=512)
    b = replace(a, source=SourceSpec("sample", "math-grpo"))
    library = compared(a, b)
    assert library.sentence.startswith("B cannot run: AReaL stops: “Sequence length")
    check_table(app, library)
    app.button(key="other_use_cap").click().run()
    cap = int(query_of(app)["cap"])
    assert cap % 128 == 0 and cap - 128 < bench(b).rows.longest <= cap
    a, b = (replace(plan, max_tokens_per_mb=cap) for plan in (a, b))
    check_table(settled(app), compared(a, b))
    assert "synthetic" in next(
        h.proto.body for h in app.get("html") if 'class="compared"' in h.proto.body
    )
    lengths = drawn(app, "compare_lengths")
    assert len(lengths) == 2 and lengths[0]["x"] == lengths[1]["x"], "the same bins"


def test_figures_over_the_cap_are_the_librarys() -> None:
    b = replace(PLAN, max_tokens_per_mb=1024, dp_size=2)
    app = opened("compare", **LINK, **{"b.cap": "1024", "b.dp": "2"})
    rerun_until(app, lambda: "Still working" not in words(app))
    traces = [t for t in drawn(app, "compare_caps") if t["mode"] == "markers"]
    assert [t["hovertext"][0][0] for t in traces] == ["A", "B"] * 3
    own = bench(b)
    trees, ratios, paid = (_numbers(t) for t in traces[1::2])
    assert len(trees) > 5 and 1024 in trees
    for cap in trees:
        one = Packed.of(own.simulation(b, int(cap)))
        assert trees[cap] == one.paid_tokens // cap
        assert ratios[cap] == pytest.approx(one.tree_token_ratio)
        assert paid[cap] == pytest.approx(one.padded_token_ratio)


def _numbers(trace: dict[str, Any]) -> dict[float, float]:
    return dict(zip(trace["x"], trace["y"], strict=True))


def test_measured_steps_are_compared_and_a_step_that_is_missing_is_said() -> None:
    b = replace(PLAN, max_tokens_per_mb=1024)
    points = [measured(PLAN, 1.4), measured(b, 1.0)]
    app = opened("compare", **LINK, **{"b.cap": "1024"})
    library = compared(PLAN, b, *points)
    assert "1.40× as fast (measured)" in library.sentence
    assert library.sentence in words(app)
    marks = drawn(app, "compare_steps")
    assert [(t["name"][:10], t["mode"]) for t in marks] == [
        ("A measured", "markers"),
        ("B measured", "markers"),
    ]
    assert "No step of" not in words(app)
    app.number_input(key="other.dp_size").set_value(2).run()
    assert "No step of B has been timed" in words(app)


def test_two_runs_of_the_history() -> None:
    app = opened("compare", **LINK, vs="runs")
    assert "Nothing has been measured" in words(app)
    b = replace(PLAN, max_tokens_per_mb=1024)
    points = [measured(PLAN, 1.4, run="one"), measured(b, 1.0, run="two")]
    app = opened("compare", **LINK, vs="runs")
    assert "Choose two different runs" in words(app)
    app.selectbox(key="other.run_a").set_value("one").run()
    app.selectbox(key="other.run_b").set_value("two").run()
    check_table(settled(app), compared(PLAN, b, *points))
    assert [c.value for c in app.code] == ["python -m tuning compare one two"]
    link = opened("compare", vs="runs", **{"a.run": "one", "b.run": "gone"})
    assert "run gone is not in this history" in words(link)


@pytest.mark.parametrize(
    "wrong", [{"b.cap": "many"}, {"b.packer": "best"}, {"vs": "nothing"}, {"b.cap": "0"}]
)
def test_a_broken_link_is_a_sentence(wrong: dict[str, str]) -> None:
    app = opened("compare", **LINK, **wrong)
    assert "B is the same plan as A" in words(app)
    if "vs" not in wrong:
        assert "was not used" in words(app)


def test_a_path_that_leads_nowhere_has_a_way_on() -> None:
    source = json.dumps({"kind": "file", "location": "nowhere/<b>x</b>.jsonl"})
    app = opened("compare", **LINK, vs="data", **{"b.data": source})
    assert any("nowhere" in one.value for one in app.error)
    assert not any('class="compared"' in h.proto.body for h in app.get("html"))
    app.button(key="other_none").click().run()
    assert "Choose the rows of B" in words(app) and not app.error
