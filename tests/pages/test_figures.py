"""Every figure of every page stays small: the largest bundled set, few trees and many."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from packing.packers.areal import pack_areal
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.sources.load import load
from packing.sources.samples import SAMPLES
from packing.sources.spec import SourceSpec
from packing.trie import build_forest
from tests.pages.test_kernels_page import PROBLEM, RESULT, ROWS, ended_job
from tests.pages.test_pages import opened, own_folders  # noqa: F401
from tuning.plan.gpus import gpu_named
from tuning.plan.plan import TuningPlan
from tuning.report.figures.trie import MAX_MARKS, choose_marks, nodes_below
from tuning.sweep.result import question_of
from tuning.sweep.roofline import estimate_sweep

MOST_BYTES = 300_000
MOST_MARKS = 300
PAGES = sorted(
    path.parent.name for path in (Path(__file__).resolve().parents[2] / "pages").glob("*/page.py")
)
HIERARCHICAL = ("icicle", "treemap", "sunburst")


@pytest.fixture(scope="module")
def largest() -> tuple[SourceSpec, Rows]:
    """The bundled set of most tokens, as the Dataset page opens it."""
    specs = [
        SourceSpec("sample", name, expand="turn" if name == "agent-turns" else "conversation")
        for name in SAMPLES
    ]
    return max(((spec, load(spec).rows) for spec in specs), key=lambda pair: pair[1].n_tokens)


def figures(app: AppTest) -> Iterator[dict[str, Any]]:
    """The plotly figures and our own drawings on a page, each checked against both bounds."""
    assert not app.exception, app.exception
    sent = [chart.proto.spec for chart in app.get("plotly_chart")]
    sent += [part.proto.json for part in app.get("bidi_component")]
    for text in sent:
        assert len(text.encode()) <= MOST_BYTES
        figure = json.loads(text)
        assert len(figure.get("marks", [])) <= MOST_MARKS
        for trace in figure.get("data", []):
            if trace["type"] in HIERARCHICAL:
                assert len(trace["labels"]) <= MOST_MARKS
        yield figure


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_of_every_page(page: str, largest: tuple[SourceSpec, Rows]) -> None:
    spec, rows = largest
    more = {"vs": "data", "b.data": "sample:math-grpo"} if page == "compare" else {}
    seen = 0
    # The smallest cap makes the most trees, the largest one tree of the most nodes.
    for cap in (-(-rows.longest // 128) * 128, 1 << 18):
        app = opened(page, data=spec.to_query(), cap=str(cap), **more)
        seen += len(list(figures(app)))
        if page == "packing":
            for tab in app.tabs[1:]:
                app.session_state["packing_tabs"] = tab.label
                seen += len(list(figures(app.run())))
    least = {"dataset": 2, "trie": 6, "packing": 6, "kernels": 2, "compare": 4}
    assert seen >= least.get(page, 0), "the figures were really looked at"


def test_figures_of_results(largest: tuple[SourceSpec, Rows], tmp_path: Path) -> None:
    """What jobs found, as a model of many layers and the candidates of a sweep would leave it."""
    spec, rows = largest
    home, data = tmp_path / "home", rows.fingerprint
    plan = TuningPlan(source=spec, device="h100-80", model="qwen3-0.6b")
    gpu = gpu_named(plan.device)
    assert gpu is not None
    sweep = estimate_sweep(rows, plan, gpu, rows.longest)
    assert len(sweep.points) >= 8
    layers = [{"layer": f"model.layers.{n}", "maximum": 9e-7, "mean": 1e-8} for n in range(128)]
    done = {"type": "done", "message": ""}
    ended_job(home, data, "equivalence", RESULT | {"layers": layers}, done)
    ended_job(home, data, "kernels", PROBLEM, *ROWS, done)
    result = {"type": "result", "result": sweep.to_json()}
    ended_job(home, data, "sweep", result, done, plan=plan, question=question_of(plan))
    query = plan.to_query()
    assert len(list(figures(opened("kernels", **query)))) == 3
    assert len(list(figures(opened("tune", **query)))) == 1


def test_an_icicle_of_the_largest_set_has_few_marks_wherever_it_is_rooted(
    largest: tuple[SourceSpec, Rows],
) -> None:
    order = PrefixOrder.of(largest[1])
    trie = build_forest(order, pack_areal(order, 1 << 24)).tree(0)
    assert len(trie) > MOST_MARKS, "there is something to fold"
    assert MAX_MARKS <= MOST_MARKS
    wide = sorted(range(len(trie)), key=lambda node: -nodes_below(trie, node))[:50]
    for root in (-1, *wide):
        assert len(choose_marks(trie, root)) <= MOST_MARKS
