"""Workspaces: saved, opened anywhere, found again in a history; hostile files are one sentence."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.rows import Rows
from packing.sources.spec import SourceSpec
from tests.tuning.workspaces import PLAN, rows, workspace
from tuning.jobs.files import save_rows
from tuning.jobs.jobs import Jobs
from tuning.jobs.points import Point, Question
from tuning.jobs.store import Store
from tuning.plan.plan import TuningPlan
from tuning.workspace import file as workspace_file
from tuning.workspace import rows as workspace_rows
from tuning.workspace.file import (
    open_workspace,
    read_sweep_file,
    read_workspace,
    save_workspace,
    workspace_bytes,
)
from tuning.workspace.rows import write_rows
from tuning.workspace.workspace import SavedPoint, Workspace, WorkspaceError

Members = dict[str, bytes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.zip"


def members(path: Path) -> Members:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def write(path: Path, content: Members) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in content.items():
            file.writestr(name, data)


@pytest.mark.parametrize("with_rows", [True, False])
def test_everything_comes_back(path: Path, with_rows: bool) -> None:
    before = workspace()
    save_workspace(path, before, with_rows)
    after = open_workspace(path)
    for name in (
        "plan",
        "batch",
        "points",
        "sweep",
        "provenance",
        "made_at",
        "versions",
        "notes",
        "tags",
    ):
        assert getattr(after, name) == getattr(before, name), name
    assert after.fingerprint == before.fingerprint == rows().fingerprint
    if with_rows:
        assert after.rows is not None and after.rows.fingerprint == rows().fingerprint
    else:
        assert after.rows is None
    assert list(path.parent.iterdir()) == [path]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=6), max_size=8),
    st.integers(0, 3),
    st.booleans(),
)
def test_rows_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, lists: list[list[int]], groups: int, masked: bool
) -> None:
    masks = [[i % 2 for i in range(len(row))] for row in lists] if masked else None
    own = Rows.from_lists(lists, [i % (groups + 1) for i in range(len(lists))], masks)
    file = tmp_path_factory.mktemp("rows") / "w.zip"
    save_workspace(file, replace(workspace(own=rows()), rows=own, batch=None, points=()), True)
    # What is stated must be what the rows are.
    content = members(file)
    head = json.loads(content["workspace.json"]) | {"fingerprint": "0" * 16}
    write(file, content | {"workspace.json": json.dumps(head).encode()})
    with pytest.raises(WorkspaceError, match="not those it was made of"):
        open_workspace(file)
    save_workspace(file, Workspace.of(PLAN, own), True)
    again = open_workspace(file).rows
    assert again is not None and again.fingerprint == own.fingerprint


def test_the_same_as_bytes(path: Path) -> None:
    save_workspace(path, workspace(), with_rows=True)
    again = read_workspace(io.BytesIO(workspace_bytes(workspace(), with_rows=True)), "w.zip")
    assert again.points == open_workspace(path).points
    assert again.rows is not None and again.rows.fingerprint == rows().fingerprint
    with pytest.raises(WorkspaceError, match=r"w\.zip is not a readable workspace file"):
        read_workspace(io.BytesIO(b"PK"), "w.zip")
    with pytest.raises(WorkspaceError, match="save without them"):
        save_workspace(path.with_name("none.zip"), replace(workspace(), rows=None), with_rows=True)
    assert list(path.parent.iterdir()) == [path]


def test_a_run_of_the_history_with_its_rows(tmp_path: Path) -> None:
    store = Store(tmp_path / "history.sqlite")
    for one in workspace().points:
        store.add("run7", PLAN, one.point)
    folder = tmp_path / "jobs" / "run7"
    folder.mkdir(parents=True)
    save_rows(folder / "rows.npz", rows())
    found = Workspace.of_run("run7", store, Jobs(tmp_path / "jobs", store)).counted()
    assert found.batch is not None and found.batch.fingerprint == rows().fingerprint
    assert {p.run for p in found.points} == {"run7"} and len(found.points) == 2
    with pytest.raises(WorkspaceError, match="no run of the history called 'run8'"):
        Workspace.of_run("run8", store, Jobs(tmp_path / "jobs", store))


def test_a_source_that_grew_keeps_what_was_measured(tmp_path: Path) -> None:
    """Points of the rows as they were are shown; the rows as they are now are not counted."""
    store, file = Store(tmp_path / "history.sqlite"), tmp_path / "rows.npz"

    def write(lists: list[list[int]]) -> str:
        own = Rows.from_lists(lists, group=[0] * len(lists))
        np.savez(file, tokens=own.tokens, offsets=own.offsets, groups=own.group)
        return own.fingerprint

    data = write([[1, 2, 3], [1, 2, 4]])
    plan = replace(PLAN, source=SourceSpec("file", str(file)))
    asked = Question.of(plan, "tree", plan.max_tokens_per_mb, data, "cpu", "2.9")
    store.add("run1", plan, Point(asked, "measured", step_s=1.0))
    whole = Workspace.of_run("run1", store, Jobs(tmp_path / "jobs", store)).counted()
    assert whole.batch is not None and whole.batch.rows == 2 and not whole.notes
    write([[1, 2, 3], [1, 2, 4], [1, 2, 5]])
    grown = Workspace.of_run("run1", store, Jobs(tmp_path / "jobs", store)).counted()
    assert [p.point.step_s for p in grown.points] == [1.0] and grown.batch is None
    assert "The source has changed since" in grown.notes[0]
    folder = tmp_path / "jobs" / "run1"
    folder.mkdir(parents=True)
    save_rows(folder / "rows.npz", Rows.from_lists([[1, 2, 3], [1, 2, 4]], group=[0, 0]))
    kept = Workspace.of_run("run1", store, Jobs(tmp_path / "jobs", store)).counted()
    assert kept.batch is not None and kept.batch.rows == 2 and kept.fingerprint == data
    assert "the rows are those that were measured" in kept.notes[0]


def test_a_source_that_is_gone_is_a_note(tmp_path: Path) -> None:
    plan = replace(PLAN, source=SourceSpec("file", str(tmp_path / "gone.jsonl")))
    found = Workspace.of_plan(plan)
    assert found.batch is None and found.rows is None
    assert "nothing was counted" in found.notes[0] and "gone.jsonl" in found.notes[0]


def test_points_of_other_rows_are_left_out() -> None:
    other = workspace(own=rows(extra=1)).points
    own = workspace().points
    assert Workspace.of(PLAN, rows(), [*own, *other]).points == own


def test_a_batch_that_areal_refuses_is_summarised_with_its_words() -> None:
    refused = workspace(plan=replace(PLAN, max_tokens_per_mb=128)).batch
    assert refused is not None and refused.rows == 8 and refused.picture is None
    assert "exceeds max_tokens_per_tree 128" in refused.refused
    indivisible = workspace(plan=replace(PLAN, dp_size=3)).batch
    assert indivisible is not None and indivisible.refused


def test_saving_rows_that_are_not_there_is_refused(path: Path) -> None:
    with pytest.raises(WorkspaceError, match="not at hand"):
        save_workspace(path, replace(workspace(), rows=None), with_rows=True)
    assert not path.exists()


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot be written"):
        save_workspace(tmp_path / "no" / "work.zip", workspace())


Spoil = Callable[[Members], Members]


def _head(**changed: Any) -> Spoil:
    def spoil(content: Members) -> Members:
        head = json.loads(content["workspace.json"]) | changed
        return content | {"workspace.json": json.dumps(head).encode()}

    return spoil


def _point(**changed: Any) -> Spoil:
    def spoil(content: Members) -> Members:
        points = json.loads(content["points.json"])
        points[0]["point"] |= changed
        return content | {"points.json": json.dumps(points).encode()}

    return spoil


def _rows_file(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


HOSTILE: dict[str, tuple[Spoil, str]] = {
    "a path out of the folder": (lambda c: c | {"../../etc/passwd": b"x"}, "passwd"),
    "an absolute path": (lambda c: c | {"/tmp/x": b"x"}, "which none has"),
    "an unknown member": (lambda c: c | {"rows.pkl": b"x"}, "rows.pkl"),
    "no head": (lambda c: {k: v for k, v in c.items() if k != "workspace.json"}, "needs one"),
    "a newer version": (_head(version=3), "newer Espalier"),
    "another format": (_head(format="other"), "does not say"),
    "a plan with an unknown field": (_head(plan={"colour": "red"}), "colour"),
    "a plan that is a list": (_head(plan=[]), "named fields"),
    "other rows": (_head(fingerprint="0" * 16), "not those it was made of"),
    "notes that are numbers": (_head(notes=[1]), "notes"),
    "broken JSON": (lambda c: c | {"points.json": b"[{"}, "not readable as JSON"),
    "JSON nested too deep": (lambda c: c | {"sweep.json": b"[" * 10**5}, "nested too deep"),
    "a time that is text": (_point(step_s="fast"), "step_s"),
    "a time that is no number": (_point(step_s=float("nan")), "finite"),
    "a time that is true": (_point(step_s=True), "step_s"),
    "an unknown outcome": (_point(outcome="great"), "outcome"),
    "an unknown field": (_point(colour=1), "colour"),
    "a list where a map belongs": (_point(features=[1.0]), "features"),
    "rows that are no Parquet": (lambda c: c | {"rows.parquet": b"PAR1"}, "Parquet"),
    "rows with another column": (
        lambda c: c | {"rows.parquet": _rows_file(pa.table({"input_ids": [[1]], "x": [1]}))},
        "columns",
    ),
    "negative ids": (
        lambda c: (
            c
            | {
                "rows.parquet": _rows_file(
                    pa.table({"input_ids": [[-1]], "group": pa.array([0], pa.int32())})
                )
            }
        ),
        "token id",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_sentence(path: Path, name: str) -> None:
    spoil, match = HOSTILE[name]
    save_workspace(path, workspace(), with_rows=True)
    write(path, spoil(members(path)))
    with pytest.raises(WorkspaceError, match=match) as caught:
        open_workspace(path)
    assert "\n" not in str(caught.value)


def test_a_run_with_a_path_for_a_name_is_refused(path: Path) -> None:
    made = workspace()
    (one, *_) = made.points
    save_workspace(path, replace(made, points=(SavedPoint("../x", one.plan, one.point),)))
    with pytest.raises(WorkspaceError, match="not the name of a run"):
        open_workspace(path)


def test_a_zip_bomb_is_refused_before_it_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(workspace_file._LIMITS, "points.json", 1 << 20)
    save_workspace(path, workspace())
    write(path, members(path) | {"points.json": b" " * (2 << 20)})
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(WorkspaceError, match="unpacks to 2 MiB"):
        open_workspace(path)


def test_rows_that_unpack_to_too_much_are_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = Rows(np.zeros(5000, np.int32), np.array([0, 5000]), np.zeros(1, np.int32))
    save_workspace(path, workspace(), with_rows=True)
    write(path, members(path) | {"rows.parquet": write_rows(many)})
    monkeypatch.setattr(workspace_rows, "MOST_TOKENS", 1000)
    with pytest.raises(WorkspaceError, match="the most is"):
        open_workspace(path)


def test_a_member_twice_is_refused(path: Path) -> None:
    save_workspace(path, workspace())
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("points.json", "[]")
    with pytest.raises(WorkspaceError, match="needs one"):
        open_workspace(path)


@pytest.mark.parametrize("cut", [0, 10, 0.3, 0.9])
def test_a_truncated_file_is_refused(path: Path, cut: float) -> None:
    save_workspace(path, workspace(), with_rows=True)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(cut if cut > 1 else cut * len(whole))])
    with pytest.raises(WorkspaceError, match="not a readable workspace file"):
        open_workspace(path)


def test_a_flipped_byte_is_noticed(path: Path) -> None:
    save_workspace(path, workspace())
    data = bytearray(path.read_bytes())
    data[120] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(WorkspaceError):
        open_workspace(path)


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="there is no file"):
        open_workspace(tmp_path / "none.zip")


def test_the_json_of_a_sweep(tmp_path: Path) -> None:
    made = workspace().sweep
    assert made is not None
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(made.to_json() | {"plan": PLAN.to_json(), "run": "r"}))
    assert read_sweep_file(file) == (PLAN, made)
    file.write_text(json.dumps(made.to_json()))
    with pytest.raises(WorkspaceError, match="has no plan"):
        read_sweep_file(file)
    file.write_text("{}")
    with pytest.raises(WorkspaceError, match="not the JSON of a sweep"):
        read_sweep_file(file)


def test_the_plan_moves_to_the_picked_cap(tmp_path: Path) -> None:
    plan = replace(PLAN, source=SourceSpec("sample", "math-grpo"), prompts_per_step=2)
    found = Workspace.of_plan(replace(plan, max_tokens_per_mb=8192), workspace().sweep)
    assert found.plan.max_tokens_per_mb == 512
    assert TuningPlan.from_json(found.plan.to_json()) == found.plan
