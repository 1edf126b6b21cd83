"""Pages without a browser: they draw, settings change figures, links bring plans back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from packing.sources.errors import SourceError
from packing.sources.load import load
from packing.sources.spec import SourceSpec
from pages.shared import data, state
from pages.shared import summary as summary_strip
from tests.pages.patience import PATIENCE_S, settled
from tuning.advice import advise
from tuning.plan.batch import Batch
from tuning.plan.commands import command_line
from tuning.plan.plan import TuningPlan

FRAME = str(Path(__file__).resolve().parents[2] / "pages" / "frame.py")
FIGURE_BUDGET = 300_000


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ESPALIER_DATA", str(tmp_path))
    yield
    st.cache_resource.clear()
    st.cache_data.clear()


def opened(page: str = "dataset", **query: str) -> AppTest:
    """A page as a link opens it; on math-grpo where the link does not say."""
    app = AppTest.from_file(FRAME, default_timeout=PATIENCE_S)
    for name, value in ({"data": "sample:math-grpo"} | query).items():
        app.query_params[name] = value
    app.run()
    if page != "overview":
        app.switch_page(f"{page}/page.py").run()
    return settled(app)


def summary(app: AppTest) -> str:
    return next(h.proto.body for h in app.get("html") if 'class="summary"' in h.proto.body)


@pytest.mark.parametrize("page", ["dataset", "trie", "packing", "kernels", "tune", "export"])
def test_every_page_draws_within_its_budget(page: str) -> None:
    app = opened(page)
    assert [t.value for t in app.title] == [page.capitalize()]
    assert "math-grpo" in summary(app) and "synthetic" in summary(app)
    for chart in app.get("plotly_chart"):
        assert len(chart.proto.spec) < FIGURE_BUDGET


def test_a_fresh_session_opens_on_the_answer_of_agent_turns() -> None:
    app = settled(AppTest.from_file(FRAME, default_timeout=PATIENCE_S).run())
    plan = TuningPlan(source=state.sample_source("agent-turns"))
    advice = advise(Batch.of(load(plan.source).rows, plan), plan)
    shown = "\n".join(one.value for one in [*app.title, *app.markdown, *app.caption])
    assert advice.recommended is not None and advice.answer == "worth it"
    for words in (advice.headline, advice.sentence, advice.recommended.rests_on, advice.headroom):
        assert words in shown
    assert any(advice.changes == one.value for one in app.code)
    assert any(one.value == command_line("advise", plan) for one in app.code)
    way = next(h.proto.body for h in app.get("html") if 'class="way"' in h.proto.body)
    for step in advice.losses:
        assert step.name in way and f"{step.tokens:+,d}".lstrip("+").replace("-", "−") in way
    number = advice.recommended.max_tokens_per_mb
    next(b for b in app.button if b.label == f"Use {number:,}").click().run()
    assert f"{number:,}" in summary(app)
    assert any(b.label == "Measure it on the Tune page" for b in app.button)


def test_a_link_to_a_plan_of_defaults_names_its_rows() -> None:
    app = opened("packing", data="sample:math-grpo")
    assert app.query_params["data"] in ("sample:math-grpo", ["sample:math-grpo"])


@pytest.mark.parametrize(
    ("query", "words", "button"),
    [
        ({"data": "sample:preference-pairs"}, "Nothing to gain here", "Choose other rows"),
        ({"cap": "128"}, "AReaL stops", "Use max_tokens_per_mb 1,664"),
        ({"mb": "4", "cap": "2048"}, "Worth it", "ppo_n_minibatches 1: −"),
    ],
)
def test_the_overview_says_what_else_may_be(query: dict[str, str], words: str, button: str) -> None:
    app = opened("overview", **query)
    shown = [one.value for one in [*app.markdown, *app.error]]
    assert any(words in text for text in shown), shown
    assert any(b.label.startswith(button) for b in app.button)


def test_a_link_brings_the_plan_back_on_every_page() -> None:
    app = opened("packing", cap="4096", data="sample:preference-pairs")
    assert "4,096" in summary(app) and "preference-pairs" in summary(app)
    app.switch_page("trie/page.py").run()
    assert "4,096" in summary(app)
    assert app.query_params["cap"] == ["4096"] or app.query_params["cap"] == "4096"


def test_rows_that_load_after_the_strip_was_drawn_are_shown_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strip_is_drawn = threading.Event()

    def load_late(*given: Any) -> Any:
        strip_is_drawn.wait()
        return load(*given)

    def draw_then_load() -> None:
        draw()
        monkeypatch.setattr(data, "_PATIENCE_S", 60.0)  # the page waits, however busy the machine
        strip_is_drawn.set()

    draw = summary_strip.draw
    monkeypatch.setattr(data, "load", load_late)
    monkeypatch.setattr(summary_strip, "draw", draw_then_load)
    monkeypatch.setattr(data, "_PATIENCE_S", 0.1)
    app = AppTest.from_file(FRAME, default_timeout=PATIENCE_S).run()
    assert not any(b.key == "cancel_load" for b in app.button), "the page itself has its rows"
    assert "rows a step" in summary(app)


def test_a_broken_link_says_what_was_not_used() -> None:
    app = opened("dataset", cap="many", dp="2")
    assert any("cap='many' was not used" in w.value for w in app.warning)
    assert "8,192" in summary(app)


def test_the_packer_changes_the_figures_and_undo_brings_them_back() -> None:
    turns = SourceSpec("sample", "agent-turns", expand="turn")
    app = opened("packing", data=turns.to_query(), cap="8192")
    before = summary(app)
    next(g for g in app.button_group if g.key == "plan.packer").set_value("prefix-aware").run()
    assert summary(app) != before
    next(b for b in app.button if b.key == "undo").click().run()
    assert summary(app) == before


def test_a_cap_below_the_longest_row_is_refused_with_a_way_on() -> None:
    app = opened("packing", cap="128")
    assert any("exceeds max_tokens_per_tree 128" in e.value for e in app.error)
    next(b for b in app.button if b.label == "Use max_tokens_per_mb 1,664").click().run()
    assert not app.error and "1,664" in summary(app)


def test_trees_that_do_not_pay_are_said_to_lose() -> None:
    app = opened("packing", data="sample:preference-pairs", cap="8192")
    assert any("Nothing to gain here" in m.value for m in app.markdown)


def test_a_file_by_path_and_a_broken_one_keeps_what_was_there(tmp_path: Path) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text("\n".join(json.dumps({"input_ids": [1, 2, i]}) for i in range(5)))
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"input_ids": [1, 2]}\n{"input_ids": [1, 2\n')
    app = opened("dataset")
    next(s for s in app.button_group if s.key == "way").set_value("file").run()
    for path in (good, bad):
        app.text_input[0].set_value(str(path))
        next(b for b in app.button if b.label == "Open").click().run()
        settled(app)
    assert any("line 2" in e.value and "bad.jsonl" in e.value for e in app.error)
    assert "good.jsonl" in summary(app), "what was loaded before is still here"


def test_text_of_a_dataset_is_never_markup(tmp_path: Path) -> None:
    path = tmp_path / "hostile.jsonl"
    text = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    path.write_text(
        "\n".join(json.dumps({"prompt": text, "completion": f" {i}"}) for i in range(4))
    )
    source = json.dumps({"kind": "file", "location": str(path)})
    for page in ("dataset", "trie"):
        app = opened(page, data=source)
        for element in app.get("html"):
            assert "<script>alert" not in element.proto.body
            assert "<img src=x" not in element.proto.body
        for chart in app.get("plotly_chart"):
            assert "<img src=x" not in chart.proto.spec and "<script>" not in chart.proto.spec


@pytest.mark.parametrize(
    "source",
    [
        SourceSpec("hub", "someone/rows"),
        SourceSpec("sample", "math-grpo", tokenizer="someone/model"),
        SourceSpec("file", "/**/*.jsonl"),
    ],
)
def test_a_link_that_leaves_the_machine_or_takes_long_waits_for_a_click(
    source: SourceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_ALLOWED", set())
    asked: list[SourceSpec] = []

    def noted(spec: SourceSpec, *given: Any) -> Any:
        asked.append(spec)
        return _refused() if spec == source else load(spec, *given)

    monkeypatch.setattr(data, "load", noted)
    app = opened(**TuningPlan(source=source).to_query())
    assert source not in asked and asked
    assert len([one for one in app.info if "would load" in one.value]) == 1
    assert not app.error, "the rows that were there are still there"
    settled(app.button(key="link.load").click().run())
    assert source in asked


def _refused() -> Any:
    raise SourceError("not here")
