"""Hub datasets through a stand-in of the Hub on this machine, and folders of save_to_disk."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packing.sources.errors import SourceError
from packing.sources.files.hub import explained
from packing.sources.load import load_here as load
from packing.sources.spec import SourceSpec
from tests.packing.hub_stand_in import COMMIT, hub
from tests.packing.source_files import own_cache, read, texts, write_lines

__all__ = ["own_cache"]

# A process of its own: the libraries read the Hub's address and folders when they are imported.
# Only a stream may import torch, which ``datasets`` does by itself.
PROGRAM = """
import json, sys
from packing.sources.errors import SourceError
from packing.sources.load import load_here as load
from packing.sources.spec import SourceSpec
out = []
cases = json.load(sys.stdin)
for case in cases:
    try:
        loaded = load(SourceSpec.from_json(case))
        made = {"rows": [loaded.rows.text(r) for r in loaded.rows],
                "groups": loaded.rows.group.tolist(), "revision": loaded.provenance.revision,
                "content": loaded.provenance.content, "cached": loaded.provenance.from_cache}
    except SourceError as error:
        made = {"error": str(error)}
    out.append(made)
    if case.get("streaming") is None and not any(c.get("streaming") for c in cases[:len(out)]):
        assert "torch" not in sys.modules
print(json.dumps(out))
"""
CARD = b"""---
configs:
- config_name: default
  data_files:
  - {split: test, path: data/test-*}
  - {split: train, path: data/train-*}
- config_name: hard
  data_files: hard/*.parquet
---
"""


def records(split: str, n: int) -> list[dict[str, Any]]:
    return [{"prompt": f"{split} {i} ", "completions": ["a", "b c"]} for i in range(n)]


def parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


FILES = {
    "README.md": CARD,
    "data/test-00000-of-00001.parquet": parquet(records("test", 2)),
    "data/train-00000-of-00001.parquet": parquet(records("train", 3)),
    "hard/a.parquet": parquet([{"text": "hard one"}]),
}


def case(location: str = "team/rollouts", **settings: Any) -> dict[str, Any]:
    return {"kind": "hub", "location": location, **settings}


CASES = {
    "train": case(),
    "test": case(split="test"),
    "streamed": case(split="test", streaming=True, limit=1),
    "streamed without a split": case(streaming=True),
    "config": case(config="hard"),
    "revision": case(revision=COMMIT),
    "again": case(),
    "streamed again": case(streaming=True),
    "wrong id": case("team/rolouts"),
    "private": case("team/secret"),
    "gated": case("team/terms"),
    "missing split": case(split="valid"),
    "missing split, streamed": case(split="valid", streaming=True),
    "missing revision": case(revision="v9"),
    "missing config": case(config="easy"),
    "no id": case("a b/../c"),
}


def run(cases: list[dict[str, Any]], folder: Path, **environment: str) -> Any:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **clean,
            "HF_HOME": str(folder / "home"),
            "ESPALIER_CACHE": str(folder / "rows"),
            "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
            **environment,
        },
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each case ends in, loaded one after the other by one process; then without the Hub."""
    folder = tmp_path_factory.mktemp("hub")
    with hub(FILES) as address:
        done = run(list(CASES.values()), folder, HF_ENDPOINT=address)
    found = dict(zip(CASES, done, strict=True))
    cases = [case(config="default"), case(), case("team/other")]
    offline = run(cases, folder, HF_HUB_OFFLINE="1")
    names = ("offline, cached", "offline, two configs", "offline")
    return found | dict(zip(names, offline, strict=True))


def rows_of(split: str, n: int) -> list[str]:
    return [f"{split} {i} {c}<|im_end|>" for i in range(n) for c in ("a", "b c")]


def test_splits_configs_and_revisions(loads: dict[str, dict[str, Any]]) -> None:
    assert loads["train"]["rows"] == rows_of("train", 3)
    assert loads["train"]["groups"] == [0, 0, 1, 1, 2, 2]
    assert loads["train"]["revision"] == COMMIT
    assert loads["test"]["rows"] == rows_of("test", 2)
    assert loads["config"]["rows"] == ["hard one<|im_end|>"]
    assert loads["revision"]["rows"] == loads["train"]["rows"]


def test_streams(loads: dict[str, dict[str, Any]]) -> None:
    assert loads["streamed"]["rows"] == rows_of("test", 1)
    assert loads["streamed without a split"]["rows"] == rows_of("train", 3)


def test_a_second_load_comes_from_the_cache(loads: dict[str, dict[str, Any]]) -> None:
    assert not loads["train"]["cached"]
    for again, before in (("again", "train"), ("streamed again", "streamed without a split")):
        assert loads[again] == loads[before] | {"cached": True}
    assert loads["offline, cached"]["rows"] == loads["train"]["rows"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "wrong id",
            "team/rolouts: no such dataset, or it is private; check the spelling, or set HF_TOKEN "
            "to a token that may read it.",
        ),
        (
            "private",
            "team/secret: no such dataset, or it is private; check the spelling, or set HF_TOKEN "
            "to a token that may read it.",
        ),
        (
            "gated",
            "team/terms: the dataset asks for its terms to be accepted; accept them on its page "
            "and set HF_TOKEN to your token.",
        ),
        ("missing split", "team/rollouts: there is no split 'valid'; choose one of test, train."),
        (
            "missing split, streamed",
            "team/rollouts: there is no split 'valid'; choose one of test, train.",
        ),
        ("missing revision", "team/rollouts: there is no revision 'v9'; check the revision."),
        (
            "missing config",
            "team/rollouts: there is no configuration 'easy'; choose one of default, hard.",
        ),
        ("no id", "a b/../c: is not a dataset id; write it as owner/name."),
        (
            "offline, two configs",
            "team/rollouts: the dataset has several configurations; choose one of default, hard.",
        ),
        (
            "offline",
            "team/other: the Hub cannot be reached; check the connection (and HF_ENDPOINT, "
            "HF_HUB_OFFLINE), or give a local file.",
        ),
    ],
)
def test_each_failure_is_one_sentence(
    loads: dict[str, dict[str, Any]], name: str, sentence: str
) -> None:
    assert loads[name] == {"error": sentence}


@pytest.mark.parametrize("kind", ["ConnectError", "ConnectTimeout", "ReadTimeout"])
def test_no_connection_on_the_way(kind: str) -> None:
    inner = type(kind, (Exception,), {})("[Errno 111] Connection refused")
    error = RuntimeError("could not be read")
    error.__cause__ = inner
    assert "the Hub cannot be reached" in str(explained(error, SourceSpec("hub", "a/b")))


def test_a_dataset_that_is_a_program_is_not_run() -> None:
    error = RuntimeError("Dataset scripts are no longer supported, but found x.py")
    assert "programs in data are not run" in str(explained(error, SourceSpec("hub", "a/b")))


def test_a_folder_is_not_taken_for_a_dataset_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "team").mkdir()
    write_lines(tmp_path / "team" / "a.jsonl", [{"text": "secret"}])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="is a file or folder here"):
        load(SourceSpec("hub", "team"))


class TestSavedToDisk:
    def saved(self, folder: Path) -> Path:
        import datasets

        train = datasets.Dataset.from_list(records("train", 3))
        test = datasets.Dataset.from_list(records("test", 2))
        datasets.DatasetDict({"train": train, "test": test}).save_to_disk(str(folder / "set"))
        return folder / "set"

    def test_splits(self, tmp_path: Path) -> None:
        folder = self.saved(tmp_path)
        assert texts(read(folder)) == rows_of("train", 3)
        assert texts(read(folder, split="test")) == rows_of("test", 2)
        assert texts(read(folder / "test")) == rows_of("test", 2)
        assert read(folder).provenance.from_cache
        with pytest.raises(SourceError, match="no split 'valid'; choose one of train, test"):
            read(folder, split="valid")

    def test_a_file_named_outside_the_folder_is_refused(self, tmp_path: Path) -> None:
        folder = self.saved(tmp_path) / "test"
        state = json.loads((folder / "state.json").read_text())
        state["_data_files"] = [{"filename": "../train/data-00000-of-00001.arrow"}]
        (folder / "state.json").write_text(json.dumps(state))
        with pytest.raises(SourceError, match="names a file outside the folder"):
            read(folder)

    def test_a_link_out_of_the_folder_is_refused(self, tmp_path: Path) -> None:
        folder = self.saved(tmp_path)
        (name,) = (folder / "train").glob("*.arrow")
        name.rename(tmp_path / "elsewhere.arrow")
        name.symlink_to(tmp_path / "elsewhere.arrow")
        with pytest.raises(SourceError, match="outside the folders that may be read"):
            load(SourceSpec("file", str(folder)), allowed_roots=[folder])
        assert len(load(SourceSpec("file", str(folder)), allowed_roots=[tmp_path]).rows) == 6

    @pytest.mark.parametrize("content", ["", "[]", '{"_data_files": [3]}', '{"_data_files": 3}'])
    def test_a_broken_folder(self, tmp_path: Path, content: str) -> None:
        folder = self.saved(tmp_path) / "test"
        (folder / "state.json").write_text(content)
        with pytest.raises(SourceError, match=r"state.json of the saved dataset is broken"):
            read(folder)

    def test_a_broken_arrow_file(self, tmp_path: Path) -> None:
        folder = self.saved(tmp_path) / "test"
        (name,) = folder.glob("*.arrow")
        name.write_bytes(b"nothing")
        with pytest.raises(SourceError, match="the saved dataset cannot be read"):
            read(folder)
