"""The Export page: verdict first, a config that reads back, a user's file judged and tuned."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st
import yaml
from streamlit.testing.v1 import AppTest

from tests.pages.patience import PATIENCE_S, rerun_until
from tests.tuning.configs import config
from tests.tuning.workspaces import workspace
from tuning.jobs.store import Store
from tuning.workspace.file import read_workspace, workspace_bytes
from tuning.workspace.here import take_in
from tuning.workspace.workspace import Workspace

_FRAME = str(Path(__file__).parents[2] / "pages" / "frame.py")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path))
    monkeypatch.setenv("ESPALIER_AREAL", str(tmp_path))
    st.cache_resource.clear()
    yield AppTest.from_file(_FRAME, default_timeout=PATIENCE_S)
    st.cache_resource.clear()


def run(app: AppTest) -> AppTest:
    """Until the rows have loaded."""
    app.run()
    app.switch_page("export/page.py").run()
    return rerun_until(app, lambda: app.title)


def test_the_verdict_comes_first_and_the_yaml_reads_back(app: AppTest) -> None:
    run(app)
    verdict = next(one.value for one in app.info if "no fault found" in one.value)
    assert "attention of actor" in verdict, "a random model has no path, so it is not green"
    assert "table of AReaL 1.0.4" in verdict and not app.success
    text = app.code[0].value
    assert "step: not measured" in text
    read = yaml.safe_load(text)
    assert read["enable_tree_training"] is True and read["pad_to_maximum"] is True
    assert read["mb_spec"] == {"max_tokens_per_mb": 8192}


def test_forms_and_engines_change_the_text(app: AppTest) -> None:
    run(app)
    app.selectbox(key="plan.engine").set_value("archon").run()
    assert "enable_compile: true" in app.code[0].value
    app.segmented_control(key="export_form.widget").set_value("overrides").run()
    assert "++actor.archon.enable_compile=true" in app.code[0].value
    app.selectbox(key="export_target.widget").set_value("tree_training_mode").run()
    assert "++actor.tree_training_mode=sparse" in app.code[0].value
    assert not app.exception


def test_a_cap_that_cannot_run_is_said_before_anything_else(app: AppTest) -> None:
    app.query_params["cap"] = "128"
    run(app)
    assert "exceeds max_tokens_per_tree 128" in app.error[0].value
    assert not app.success
    app.button(key="export_fix_max_tokens_per_mb_1664").click().run()
    assert not app.error and app.code[0].language == "yaml"


def test_a_users_config_is_judged_tuned_and_shown_as_a_diff(app: AppTest) -> None:
    run(app)
    app.session_state["own_config"] = config(("8192   # by hand", "8000   # by hand")).encode()
    run(app)
    assert any("1 error" in one.value for one in app.error)
    diff = next(one.value for one in app.code if one.language == "diff")
    assert "-    max_tokens_per_mb: 8000   # by hand" in diff
    assert "+    max_tokens_per_mb: 8192   # by hand" in diff
    app.button(key="own_config_plan").click().run()
    assert "".join(app.query_params["prompts"]) == "32"
    assert not app.exception


def test_a_config_on_the_dataset_page_is_the_plan_and_comes_back_as_a_diff(app: AppTest) -> None:
    app.run()
    app.switch_page("dataset/page.py").run()
    rerun_until(app, lambda: app.title)
    megatron = config(("fsdp:d4", "megatron:d2t2"), ("8192   # by hand", "10240   # by hand"))
    app.text_area(key="own_config_pasted").set_value(megatron).run()
    app.button(key="own_config_read").click().run()
    asked = {
        key: "".join(app.query_params[key]) for key in ("engine", "dp", "tp", "prompts", "cap")
    }
    assert asked == dict(engine="megatron", dp="2", tp="2", prompts="32", cap="10240")
    assert not app.exception and any("taken into the plan" in one.value for one in app.text)
    app.button(key="undo").click().run()
    assert "engine" not in app.query_params
    app.text_area(key="own_config_pasted").set_value("actor:\n\tpath: x\n").run()
    app.button(key="own_config_read").click().run()
    assert any("Line 2: a tab" in one.value for one in app.text) and not app.exception


def test_a_broken_config_is_a_sentence(app: AppTest) -> None:
    run(app)
    app.session_state["own_config"] = "actor:\n\tpath: x\n"
    run(app)
    assert any("Line 2: a tab" in one.value for one in app.error)
    assert not app.exception


def test_a_log_is_laid_beside_the_prediction(app: AppTest) -> None:
    run(app)
    app.text_area(key="areal_log_pasted").set_value("tree_token_ratio: 0.5").run()
    assert app.dataframe[0].value["figure"].tolist() == ["tree_token_ratio"]
    app.text_area(key="areal_log_pasted").set_value("nothing").run()
    assert any("No line of AReaL" in one.value for one in app.error)


def markdown(app: AppTest) -> str:
    return " ".join(one.value for one in app.markdown)


def test_the_report_says_beforehand_what_it_lacks(app: AppTest) -> None:
    app.query_params["data"] = "sample:math-grpo"
    run(app)
    assert "math-grpo (synthetic)" in markdown(app)
    assert any("No sweep was run" in one.value for one in app.info)
    assert not app.checkbox(key="report_text.widget").value, "text only where asked for"
    assert not app.checkbox(key="share_rows.widget").value, "rows only where asked for"
    assert any("bundled with every Espalier" in one.value for one in app.caption)


def test_a_measured_plan_says_what_the_report_holds(
    app: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points, sweep and pick of this machine are found by the page; a colleague's are not."""
    taken = take_in(workspace_here(), Store())
    for name, value in taken.plan.to_query().items():
        app.query_params[name] = value
    run(app)
    assert "nothing measured yet" in markdown(app)
    assert any("No sweep" in one.value for one in app.info)
    monkeypatch.setattr("tuning.workspace.here.ORIGIN", "")
    mine = workspace_here()
    points = tuple(replace(one, run="mine") for one in mine.points)
    assert mine.sweep is not None
    take_in(replace(mine, points=points, sweep=replace(mine.sweep, notes=("mine",))), Store())
    run(app)
    assert "2 measured points of cpu x86, 2 threads" in markdown(app)
    assert "the sweep with its pick" in markdown(app)
    assert not any("No sweep" in one.value for one in app.info)
    app.query_params["cap"] = "640"
    run(app)
    assert any("picked 512" in one.value for one in app.info)
    app.button(key="report_use_pick").click().run()
    assert "".join(app.query_params["cap"]) == "512"
    assert not any("picked 512" in one.value for one in app.info)


def workspace_here() -> Workspace:
    """With rows, as a file from elsewhere brings them."""
    made = read_workspace(io.BytesIO(workspace_bytes(workspace(), with_rows=True)), "w.zip")
    assert made.rows is not None
    return made
