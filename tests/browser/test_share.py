"""Reports and workspaces as a person carries them: saved here, opened where nothing is known.

The points are real: a short sweep over one prompt, run by the library into the server's folder.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from packing.sources.load import load
from packing.sources.spec import SourceSpec
from tests.app import Server, running
from tests.browser.drive import downloaded, rested, summary, to_page, to_tab
from tests.tuning.workspaces import workspace
from tuning.jobs.jobs import Jobs
from tuning.jobs.store import Store
from tuning.plan.batch import batch_rows
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import question_of
from tuning.workspace.file import open_workspace, save_workspace

pytestmark = pytest.mark.browser

PLAN = TuningPlan(
    SourceSpec("sample", "agent-turns"),
    prompts_per_step=1,
    samples_per_prompt=2,
    max_tokens_per_mb=4096,
    caps=(4096, 8192),
)


def sweep_into(home: Path) -> None:
    """A sweep in a server's data folder, as its Tune page starts one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ESPALIER_HOME", str(home / "data"))
        patch.setenv("ESPALIER_CACHE", str(home / "cache"))
        rows = batch_rows(load(PLAN.source).rows, PLAN)
        jobs = Jobs(store=Store())
        asked = {"data": rows.fingerprint, "question": question_of(PLAN)}
        job = jobs.start("sweep", PLAN, rows, {"budget_s": 8.0, "longest_row": 0} | asked)
        ended = jobs.wait(job, 240)
        assert ended.state == "done", ended.message
        assert jobs.store.entries(data=rows.fingerprint)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("measured")
    sweep_into(home)
    with running(home) as started:
        yield started


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Server]:
    """A server that has measured nothing."""
    with running(tmp_path / "empty") as started:
        yield started


def figures(page: Any) -> list[str]:
    """What the Tune page shows: the plan's strip, the pick's box, every mark of the chart."""
    page.locator("g.points path.point").first.wait_for(state="attached")
    rested(page)
    legend = page.locator(".legendtext").all_text_contents()
    pick = page.get_by_test_id("stVerticalBlock").locator("css=p:has-text('cost model')")
    marks = page.locator("g.points path.point").evaluate_all(
        "paths => paths.map(path => path.getAttribute('transform'))"
    )
    assert marks and any("measured" in name for name in legend)
    return [page.locator(".summary").inner_text(), *legend, *pick.all_inner_texts(), *marks]


def picture(page: Any) -> str:
    """The name under which the chart's own mode bar saves it."""
    page.get_by_test_id("stPlotlyChart").last.hover()
    with page.expect_download() as download:
        page.locator(".modebar-btn[data-title*='PNG']").last.click()
    assert Path(download.value.path()).read_bytes()[:4] == b"\x89PNG"
    return str(download.value.suggested_filename)


def link(page: Any, server: Server, name: str) -> None:
    page.goto(f"{server.url}/{name}?{urlencode(PLAN.to_query())}")
    page.get_by_role("heading", name=name.capitalize(), level=1).wait_for()
    page.locator(".summary .paid b").wait_for()
    rested(page)


def upload(page: Any, name: str, content: bytes) -> None:
    page.get_by_test_id("stFileUploader").filter(has_text="A workspace file").locator(
        "input[type=file]"
    ).set_input_files({"name": name, "mimeType": "application/zip", "buffer": content})


def test_a_workspace_opens_where_nothing_is_known(
    page: Any, browser: Any, measured: Server, empty: Server
) -> None:
    link(page, measured, "tune")
    before = figures(page)
    assert re.search(r"\d s \(measured\)", before[0]), "the step of this plan was measured"
    to_page(page, "Export")
    to_tab(page, "Save and share")
    saved = downloaded(page, "Save workspace").read_bytes()

    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    fresh = context.new_page()
    fresh.goto(f"{empty.url}/tune?data=sample:math-grpo")
    fresh.get_by_text("Nothing has been measured on these rows").wait_for()
    to_page(fresh, "Export")
    to_tab(fresh, "Save and share")
    upload(fresh, "carried.zip", saved)
    fresh.get_by_text(re.compile(r"Opened carried\.zip")).wait_for()
    assert "agent-turns" in summary(fresh, "name") and "synthetic" in summary(fresh, "name")
    assert "caps=4096%2C8192" in fresh.url and "prompts=1" in fresh.url
    to_page(fresh, "Tune")
    fresh.get_by_text("A colleague's sweep").wait_for()
    here = re.sub(r"(time of a step\n).*", r"\1not measured", before[0])
    assert figures(fresh) == [here, *before[1:]], "shown, and no answer to what is asked here"
    fresh.get_by_role("button", name="Undo").click()
    fresh.locator(".summary .name b", has_text="math-grpo").wait_for()
    context.close()


def test_a_link_shows_the_same_in_a_fresh_profile(
    page: Any, browser: Any, measured: Server
) -> None:
    link(page, measured, "tune")
    before = figures(page)
    to_page(page, "Export")
    to_tab(page, "Save and share")
    copied = page.get_by_test_id("stCode").filter(has_text="/tune?").first.inner_text().strip()
    assert copied.startswith(f"{measured.url}/tune?")
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    fresh = context.new_page()
    fresh.goto(copied)
    assert figures(fresh) == before
    context.close()


def test_the_report_opens_from_disk_with_the_network_cut(
    page: Any, browser: Any, measured: Server, tmp_path: Path
) -> None:
    link(page, measured, "export")
    to_tab(page, "Report")
    page.get_by_text("the sweep with its pick").wait_for()
    plain = downloaded(page, "Download report.html").read_text()
    page.get_by_text("with samples of the text").click()
    rested(page)
    report = tmp_path / "report.html"
    report.write_bytes(downloaded(page, "Download report.html").read_bytes())
    assert "Samples of the text" not in plain and "Samples of the text" in report.read_text()
    with zipfile.ZipFile(downloaded(page, "Figures and tables")) as file:
        names = set(file.namelist())
    assert {"sweep.svg", "before_after.svg", "candidates.csv", "evidence.csv"} <= names

    context = browser.new_context(offline=True)
    opened = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(report.as_uri())
    assert opened.locator("svg").count() == 2
    assert "synthetic" in opened.get_by_role("heading", level=1).inner_text()
    opened.get_by_role("heading", name="Samples of the text").wait_for()
    assert said == [] and asked == [report.as_uri()]
    context.close()


def test_a_damaged_or_foreign_file_changes_nothing(
    page: Any, measured: Server, tmp_path: Path
) -> None:
    link(page, measured, "export")
    before = (page.locator(".summary").inner_text(), page.url)
    to_tab(page, "Save and share")
    whole = downloaded(page, "Save workspace").read_bytes()
    upload(page, "cut.zip", whole[: len(whole) // 2])
    error = page.get_by_text(re.compile(r"cut\.zip is not a readable workspace file"))
    error.wait_for()
    assert "Everything here is as it was" in error.inner_text()
    foreign = tmp_path / "foreign.zip"
    with zipfile.ZipFile(foreign, "w") as file:
        file.writestr("readme.txt", "nothing of ours")
    upload(page, "foreign.zip", foreign.read_bytes())
    page.get_by_text(re.compile(r"foreign\.zip is not a workspace file")).wait_for()
    rested(page)
    assert (page.locator(".summary").inner_text(), page.url) == before
    assert page.get_by_role("button", name="Undo").is_disabled()


def test_results_show_without_their_rows_and_open_with_them(
    page: Any, empty: Server, tmp_path: Path
) -> None:
    """Rows of a path that is not here: the results show, the plan stays; with rows it opens."""
    made = workspace()
    save_workspace(tmp_path / "w.zip", made)
    page.goto(f"{empty.url}/export?prompts=2")
    page.locator(".summary .paid b").wait_for()
    to_tab(page, "Save and share")
    upload(page, "gone.zip", (tmp_path / "w.zip").read_bytes())
    page.get_by_text("Its rows are not here").wait_for()
    page.get_by_text("512 is the fastest").wait_for()
    assert picture(page) == "espalier-sweep.png"
    assert "math-grpo" in summary(page, "name") and "prompts=2" in page.url
    assert "No source" not in downloaded(page, "Download its report.html").read_text()
    save_workspace(tmp_path / "w.zip", made, with_rows=True)
    upload(page, "whole.zip", (tmp_path / "w.zip").read_bytes())
    page.get_by_text(re.compile(r"Opened whole\.zip")).wait_for()
    rested(page)
    assert "rows.parquet" in summary(page, "name") and summary(page, "cap") == "512"
    assert summary(page, "step") == "not measured", "here"
    page.get_by_text("with the rows of the batch").click()
    page.get_by_text("It opens anywhere.").wait_for()
    rested(page)
    again = tmp_path / "again.zip"
    again.write_bytes(downloaded(page, "Save workspace").read_bytes())
    opened = open_workspace(again)
    assert opened.fingerprint == made.fingerprint and opened.rows is not None
    assert not opened.points, "a colleague's figures are not passed on as ours"
