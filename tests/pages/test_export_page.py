"""The Export page: verdict first, a config that reads back, a user's file judged and tuned."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from streamlit.testing.v1 import AppTest

from tests.tuning.configs import config

_APP = """
import runpy
from pages import state

state.read_url()
runpy.run_path({page!r})
state.write_url()
"""
_PAGE = str(Path(__file__).parents[2] / "pages" / "export.py")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path))
    monkeypatch.setenv("ESPALIER_AREAL", str(tmp_path))
    return AppTest.from_string(_APP.format(page=_PAGE), default_timeout=60)


def run(app: AppTest) -> AppTest:
    """Until the rows have loaded."""
    app.run()
    for _ in range(20):
        assert not app.exception, app.exception
        if app.title:
            break
        app.run()
    return app


def test_the_verdict_comes_first_and_the_yaml_reads_back(app: AppTest) -> None:
    run(app)
    assert "nothing that we know of stops the run" in app.success[0].value
    assert "table of AReaL 1.0.4" in app.success[0].value
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
    assert "This will not run" in app.error[0].value
    assert "exceeds max_tokens_per_tree 128" in app.error[0].value
    assert not app.success
    app.button(key="export_use_cap").click().run()
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
