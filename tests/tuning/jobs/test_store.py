"""The run history: points come back whole, old files are migrated, faults are sentences."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuning.jobs.host import host
from tuning.jobs.points import Point, Question
from tuning.jobs.store import _MIGRATIONS, SCHEMA_VERSION, Store, StoreError
from tuning.plan.plan import TuningPlan

PLAN = TuningPlan(model="small", dp_size=2)
QUESTION = Question.of(PLAN, "tree", 4096, "d" * 16, "cpu, 2 threads", "2.13.0")
POINT = Point(
    QUESTION,
    "measured",
    step_s=1.5,
    p20_s=1.4,
    p80_s=1.7,
    repeats=3,
    phases_s={"forward": 0.5},
    original_tokens=3000,
    features={"nodes": 12.0},
    measured_at="2026-11-30T10:00:00+00:00",
    versions={"torch": "2.13.0"},
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(list(vars(POINT))), inner),
    max_leaves=5,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "history.sqlite")


def test_a_point_comes_back_whole(store: Store) -> None:
    store.add("run1", PLAN, POINT)
    (entry,) = Store(store.path).entries()
    assert (entry.plan, entry.point, entry.run) == (PLAN, POINT, "run1")
    assert store.answer(QUESTION.key) == POINT
    assert POINT.tokens_per_s == 2000


def test_every_field_of_the_question_matters(store: Store) -> None:
    store.add("run1", PLAN, POINT)
    for name, value in vars(QUESTION).items():
        changed: Any = value + 1 if isinstance(value, int | float) else value + "x"
        other: Any = replace(QUESTION, **{name: changed})
        assert store.answer(other.key) is None, name


def test_the_newest_answer_counts_and_crashes_are_no_answer(store: Store) -> None:
    newer = replace(POINT, step_s=1.0)
    store.add("run1", PLAN, POINT)
    store.add("run2", PLAN, newer)
    store.add("run3", PLAN, Point(QUESTION, "crashed", message="killed"))
    assert store.answer(QUESTION.key) == newer
    assert store.crashes(QUESTION.key) == 1
    assert [e.run for e in store.entries()] == ["run3", "run2", "run1"]
    assert [e.run for e in store.entries(run="run2")] == ["run2"]
    assert store.entries(data="another") == []


def test_delete(store: Store) -> None:
    store.add("run1", PLAN, POINT)
    store.delete([store.entries()[0].id])
    assert store.entries() == [] and store.answer(QUESTION.key) is None


def test_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE points (id INTEGER PRIMARY KEY, key TEXT NOT NULL, run TEXT NOT NULL,"
            " measured_at TEXT NOT NULL, plan TEXT NOT NULL, point TEXT NOT NULL)"
        )
        db.execute("CREATE INDEX points_key ON points (key, id)")
        db.execute("PRAGMA user_version = 1")
    db.close()
    Store(path).add("run1", PLAN, POINT)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    db.close()


def test_points_from_before_the_logp_pass_have_no_figure_of_it(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    written = POINT.to_json()
    for name in ("logp_s", "logp_p20_s", "logp_p80_s"):
        assert written.pop(name) is None
    with sqlite3.connect(path) as db:
        for statement in (one for step in _MIGRATIONS[:2] for one in step):
            db.execute(statement)
        db.execute(
            "INSERT INTO points (key, run, measured_at, plan, point) VALUES (?, ?, ?, ?, ?)",
            (QUESTION.key, "old", "", json.dumps(PLAN.to_json()), json.dumps(written)),
        )
        db.execute("PRAGMA user_version = 2")
    db.close()
    store = Store(path)
    new = replace(POINT, logp_s=0.4, logp_p20_s=0.3, logp_p80_s=0.5)
    store.add("new", PLAN, new)
    assert [(e.run, e.point) for e in store.entries()] == [("new", new), ("old", POINT)]
    with sqlite3.connect(path) as db:
        texts = [json.loads(text) for (text,) in db.execute("SELECT point FROM points")]
        assert db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    db.close()
    assert [text["logp_s"] for text in texts] == [None, 0.4]


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(StoreError, match="newer Espalier"):
        Store(path)


def test_a_file_that_is_no_history_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "broken.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="move the file away"):
        Store(path)


def _spoil(store: Store, what: str, value: object) -> None:
    with sqlite3.connect(store.path) as db:
        db.execute(
            f"UPDATE points SET {what} = ? WHERE id = (SELECT max(id) FROM points)", (value,)
        )
    db.close()


@pytest.mark.parametrize("what", ["plan", "point"])
@given(value=st.one_of(st.text(), st.binary(), json_values.map(json.dumps)))
@settings(max_examples=40, deadline=None)
def test_a_line_that_cannot_be_read_ends_nothing_and_is_named(what: str, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "history.sqlite")
        store.add("good", PLAN, POINT)
        store.add("bad", PLAN, POINT)
        _spoil(store, what, value)
        found = [entry.run for entry in store.entries()]
        assert found in (["good"], ["bad", "good"])
        assert (list(store.unread) == [2]) == (found == ["good"])
        assert store.answer(QUESTION.key) == POINT and store.crashes(QUESTION.key) == 0
        assert [e.run for e in store.entries(data=QUESTION.data)] == found
        store.set_aside()
        again = Store(store.path)
        assert [entry.run for entry in again.entries()] == found and not again.unread


def test_fields_of_a_newer_version_are_passed_over_and_kept(store: Store) -> None:
    store.add("run1", PLAN, POINT)
    newer = POINT.to_json() | {"energy_j": 3.0}
    newer["question"]["cooling"] = "water"
    _spoil(store, "point", json.dumps(newer))
    _spoil(store, "plan", json.dumps(PLAN.to_json() | {"cooling": "water"}))
    (entry,) = store.entries()
    assert (entry.plan, entry.point) == (PLAN, POINT) and not store.unread
    with sqlite3.connect(store.path) as db:
        assert json.loads(db.execute("SELECT point FROM points").fetchone()[0]) == json.loads(
            json.dumps(newer)
        )
    db.close()


def test_a_loss_that_is_no_number_comes_back(store: Store) -> None:
    store.add("run1", PLAN, replace(POINT, loss=float("nan")))
    (entry,) = store.entries(data=QUESTION.data)
    assert entry.point.loss is not None and entry.point.loss != entry.point.loss


def test_points_of_other_machines_answer_nothing_and_hide_nothing(store: Store) -> None:
    store.add("own", PLAN, replace(POINT, host=host()))
    for number in range(30):
        store.add(f"theirs{number}", PLAN, replace(POINT, step_s=0.001), "a workspace file")
    store.add("home carried over", PLAN, replace(POINT, step_s=0.001, host="another"))
    answer = store.answer(QUESTION.key)
    assert answer is not None and answer.step_s == 1.5
    assert [e.run for e in store.entries(newest=2)] == ["home carried over", "own"]
    assert [e.run for e in store.entries(data=QUESTION.data, own=True)] == ["own"]
    assert [entry.own for entry in store.entries()].count(True) == 1
    store.add("theirs", PLAN, replace(POINT, outcome="crashed"), "a workspace file")
    assert store.crashes(QUESTION.key) == 0


def test_a_full_disk_loses_no_earlier_point(store: Store) -> None:
    store.add("run1", PLAN, POINT)
    big = replace(POINT, message="x" * 200_000)
    pages = sqlite3.connect(store.path)
    limit = pages.execute("PRAGMA page_count").fetchone()[0]
    pages.close()
    original = sqlite3.connect

    def small(path: Path, timeout: float) -> sqlite3.Connection:
        db = original(path, timeout=timeout)
        db.execute(f"PRAGMA max_page_count = {limit + 1}")
        return db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", small)
        with pytest.raises(StoreError, match="full"):
            store.add("run2", PLAN, big)
    assert [e.run for e in store.entries()] == ["run1"]
