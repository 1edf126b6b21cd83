"""A workspace taken in: points, sweep and rows are found again here, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packing.sources.load import load
from packing.sources.spec import Simulate, SourceSpec
from tests.tuning.workspaces import PLAN, rows, sweep, workspace
from tuning.jobs.jobs import Jobs
from tuning.jobs.store import Store
from tuning.plan.batch import batch_rows
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import SweepResult, question_of
from tuning.workspace.file import open_workspace, save_workspace
from tuning.workspace.here import keep_points, keep_sweep, plan_here, take_in
from tuning.workspace.rows import keep_rows, kept_rows, tags_of
from tuning.workspace.workspace import Workspace

SAMPLE = TuningPlan(source=SourceSpec("sample", "math-grpo"), prompts_per_step=2)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))


def carried(made: Workspace, folder: Path, with_rows: bool) -> Workspace:
    save_workspace(folder / "carried.zip", made, with_rows)
    return open_workspace(folder / "carried.zip")


def test_points_are_found_again_in_another_history(tmp_path: Path) -> None:
    there = Store(tmp_path / "there.sqlite")
    opened = carried(workspace(), tmp_path, False)
    assert keep_points(opened, there) == 2
    assert keep_points(opened, there) == 0, "the same file twice adds nothing"
    for one in workspace().points:
        assert there.answer(one.point.question.key) is None, "it is another machine's"
    assert [e.point for e in there.entries()] == [one.point for one in workspace().points]
    assert there.entries(own=True) == []
    assert [e.run for e in there.entries()] == ["run1", "run1"]


def test_a_sweep_is_found_again_as_a_job_that_has_ended(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "jobs", Store(tmp_path / "history.sqlite"))
    jobs.folder.mkdir()
    opened = carried(workspace(), tmp_path, False)
    assert keep_sweep(opened, jobs)
    assert not keep_sweep(opened, jobs), "the same file twice adds nothing"
    asked: dict[str, Any] = {"data": rows().fingerprint, "question": question_of(PLAN)}
    assert jobs.newest("sweep", **asked) is None, "nothing of this machine"
    found = jobs.newest("sweep", foreign=True, **asked)
    assert found is not None and (found.state, found.plan) == ("done", PLAN)
    event = found.last("result")
    assert event is not None and SweepResult.from_json(event["result"]) == sweep()
    other = replace(opened, sweep=replace(sweep(), finished=False))
    assert keep_sweep(other, jobs)
    newest = jobs.newest("sweep", foreign=True, **asked)
    assert newest is not None and "stopped" in newest.message
    assert not keep_sweep(replace(opened, sweep=None), jobs)


def test_rows_that_came_along_open_here(tmp_path: Path) -> None:
    store = Store(tmp_path / "history.sqlite")
    taken = take_in(carried(workspace(), tmp_path, True), store)
    assert taken.new_points == 2
    assert replace(taken.plan, source=PLAN.source) == PLAN
    loaded = load(taken.plan.source)
    assert loaded.rows.fingerprint == rows().fingerprint
    assert loaded.rows.decoder is not None, "the tokenizer came along by name"
    again = Workspace.of_run("run1", store, Jobs(tmp_path / "no jobs", store)).counted()
    assert again.batch is not None and again.fingerprint == rows().fingerprint
    assert "the rows are those that were measured" in again.notes[0]


def test_without_rows_the_plan_is_the_plan(tmp_path: Path) -> None:
    assert plan_here(carried(workspace(), tmp_path, False)) == PLAN


def test_rows_open_as_token_ids_where_their_tokenizer_is_not(tmp_path: Path) -> None:
    made = workspace()
    assert made.provenance is not None
    gone = replace(made.provenance, tokenizer=str(tmp_path / "no-such-tokenizer"))
    plan = plan_here(carried(replace(made, provenance=gone), tmp_path, True))
    assert plan.source.tokenizer is None
    assert load(plan.source).rows.fingerprint == rows().fingerprint


def test_a_bundled_sample_stays_the_sample(tmp_path: Path) -> None:
    own = batch_rows(load(SAMPLE.source).rows, SAMPLE)
    made = carried(Workspace.of(SAMPLE, own), tmp_path, True)
    assert plan_here(made) == SAMPLE and made.tags == ("synthetic",)


def test_what_is_made_up_goes_on_saying_so(tmp_path: Path) -> None:
    """A sample of another version, and simulated rows, open as files: their name tells."""
    changed = replace(Workspace.of(SAMPLE, rows()), provenance=None)
    source = plan_here(carried(changed, tmp_path, True)).source
    assert source.kind == "file" and Path(source.location).name == "synthetic-rows.parquet"
    assert tags_of(source) == ("synthetic",)
    simulated = replace(SAMPLE, source=SourceSpec("file", "p.jsonl", simulate=Simulate()))
    made = carried(Workspace.of(simulated, rows(extra=1)), tmp_path, True)
    assert made.tags == ("simulated",)
    assert tags_of(plan_here(made).source) == ("simulated",)
    twice = Workspace.of(replace(SAMPLE, source=source), rows())
    assert carried(twice, tmp_path, True).tags == ("synthetic",)


def test_real_rows_have_no_tag() -> None:
    assert tags_of(SourceSpec("file", "synthetic-rows.parquet")) == ()
    assert tags_of(SourceSpec("hub", "a/b")) == ()
    assert tags_of(SourceSpec("sample", "unknown")) == ()


def test_kept_rows_are_found_by_what_is_in_them() -> None:
    path = keep_rows(rows(), ("synthetic",))
    assert keep_rows(rows(), ("synthetic",)) == path
    found = kept_rows(rows().fingerprint)
    assert found is not None and found.fingerprint == rows().fingerprint
    assert kept_rows("0" * 16) is None
    assert kept_rows("../" + path.parent.name) is None, "a fingerprint is no path"
