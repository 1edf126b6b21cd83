"""Untrusted work in a child process: its limits, its end, and that rows come out the same."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packing.sources import cache, sandbox
from packing.sources.chat.tokenizer_files import BUNDLED_FOLDER
from packing.sources.errors import LoadCancelled, SourceError, Where
from packing.sources.load import Progress, load, load_here
from packing.sources.spec import SourceSpec
from tests.packing.chat_families import said
from tests.packing.source_files import own_cache, tool_talk, write_lines

__all__ = ["own_cache"]

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def never() -> bool:
    return False


def run(function: Any, payload: Any = None, **limits: Any) -> tuple[Any, list[Any]]:
    heard: list[Any] = []
    return sandbox.run(function, payload, heard.append, never, **limits), heard


# Functions of a module, as ``run`` wants them; the child imports this file.


def echo(payload: Any, send: sandbox.Send) -> Any:
    print("what is printed does not come between frames")
    for value in payload:
        send(value)
    return {"process": os.getpid(), "all": payload}


def fail(payload: Any, send: sandbox.Send) -> Any:
    raise {"source": SourceError("a.jsonl, row 3: is odd."), "memory": MemoryError()}[payload]


def hungry(payload: Any, send: sandbox.Send) -> int:
    return len(bytearray(payload))


def stuck(payload: Any, send: sandbox.Send) -> None:
    send("begun")
    time.sleep(600)


def killed(payload: Any, send: sandbox.Send) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_plain_values_and_arrays_come_back_as_they_went() -> None:
    values = [1, "é\ud83d", None, True, [1.5], {"a": {"b": []}}, np.arange(6, dtype=np.int32)]
    made, heard = run(echo, [*values, np.empty((0, 2), dtype=np.uint8)])
    for found in (made["all"], heard):
        assert found[:-2] == values[:-1]
        np.testing.assert_array_equal(found[-2], values[-1])
        assert found[-2].dtype == np.int32 and found[-1].shape == (0, 2)


def test_a_child_that_finished_is_used_again() -> None:
    assert run(echo, [])[0]["process"] == run(echo, [])[0]["process"]
    with pytest.raises(SourceError, match=r"^a.jsonl, row 3: is odd.$"):
        run(fail, "source")
    assert run(echo, [])[0]["process"] != os.getpid()


def test_two_at_once_are_two_processes() -> None:
    made: list[Any] = []
    threads = [threading.Thread(target=lambda: made.append(run(echo, ["x"]))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3 and all(heard == ["x"] for _, heard in made)


def test_memory_is_limited() -> None:
    assert run(hungry, 1 << 20)[0] == 1 << 20
    with pytest.raises(SourceError, match=r"needs more than 0.2 GiB"):
        run(hungry, 1 << 30, memory=256 << 20)
    with pytest.raises(SourceError, match=r"needs more than"):
        run(fail, "memory")
    assert run(hungry, 1 << 20)[0] == 1 << 20


def test_a_child_that_dies_or_says_nothing_is_a_sentence() -> None:
    with pytest.raises(SourceError, match=r"ended \(code -9\)"):
        run(killed)
    with pytest.raises(SourceError, match=r"nothing came for 0 s"):
        run(stuck, silence=0.3)


def test_cancelling_ends_the_child() -> None:
    heard: list[Any] = []
    with pytest.raises(LoadCancelled):
        sandbox.run(stuck, None, heard.append, lambda: bool(heard))
    assert heard == ["begun"]


def test_no_limit_outside_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "setitimer")
    with sandbox.record_limit(Where("a")):
        pass


def slow_record(payload: Any, send: sandbox.Send) -> None:
    usual, sandbox.RECORD_SECONDS = sandbox.RECORD_SECONDS, 0.2
    try:
        with sandbox.record_limit(Where("a.jsonl", 4)):
            try:
                while True:
                    pass
            except Exception:  # as a template's failures are caught
                return
    finally:
        sandbox.RECORD_SECONDS = usual


def test_a_record_that_does_not_end_is_named() -> None:
    with pytest.raises(SourceError, match=r"a.jsonl, row 4: takes more than 0 s to render"):
        run(slow_record)


class TestLoad:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return write_lines(
            tmp_path / "a.jsonl", [tool_talk(t, n) for t in range(3) for n in (0, 1)]
        )

    @pytest.mark.parametrize("settings", [{}, {"expand": "turn"}, {"limit": 2}])
    def test_rows_are_those_read_here(self, path: Path, settings: dict[str, Any]) -> None:
        spec = SourceSpec("file", str(path), **settings)
        seen: list[Progress] = []
        there = load(spec, seen.append)
        here = load_here(spec)
        assert here.provenance.from_cache and not there.provenance.from_cache
        assert load(spec).provenance == here.provenance
        assert there.rows.fingerprint == here.rows.fingerprint
        for name in ("roles", "columns", "problems", "preview", "role_tokens", "prefix", "spec"):
            assert getattr(there, name) == getattr(here, name), name
        assert there.rows.text(there.rows[0]) == here.rows.text(here.rows[0])
        assert seen and seen[-1].rows == len(there.rows)

    def test_files_that_have_not_changed_are_not_read_again(
        self, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = SourceSpec("file", str(tmp_path))
        fresh = load(spec)
        monkeypatch.setattr(cache, "SETTLED_NS", 0)  # what was written a moment ago may change
        first = load(spec)
        with monkeypatch.context() as patched:
            patched.setattr(sandbox, "run", None)
            again = load(spec)
            assert again.provenance == first.provenance and again.spec == spec
            assert again.rows.fingerprint == first.rows.fingerprint == fresh.rows.fingerprint
            (tmp_path / "only").mkdir()
            with pytest.raises(TypeError, match="not callable"):  # the child says what is wrong
                load(spec, allowed_roots=[tmp_path / "only"])
        before = path.stat()
        path.write_bytes(path.read_bytes().replace(b"Be brief", b"Be kind."))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert load(spec).rows.fingerprint != first.rows.fingerprint
        write_lines(tmp_path / "b.jsonl", [tool_talk(7, 0)])
        assert len(load(spec).rows) == 7

    def test_an_entry_of_another_tokenizer_is_not_taken(
        self, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cache, "SETTLED_NS", 0)
        folder = tmp_path / "tokenizer"
        folder.mkdir()
        for file in BUNDLED_FOLDER.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        spec = SourceSpec("file", str(path), tokenizer=str(folder))
        load(spec)
        assert load(spec).provenance.from_cache
        template = folder / "chat_template.jinja"
        template.write_text(template.read_text().replace("<|im_start|>", "<|im_start|>!"))
        assert load(spec).rows.text(load(spec).rows[0]).startswith("<|im_start|>!")

    def test_an_upload(self, path: Path) -> None:
        spec = SourceSpec("upload", "a.jsonl")
        made = load(spec, upload=path.read_bytes())
        assert made.rows.fingerprint == load(SourceSpec("file", str(path))).rows.fingerprint

    def test_a_cache_that_takes_nothing(
        self, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "in-the-way").write_text("")
        monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "in-the-way"))
        made = load(SourceSpec("file", str(path)))
        assert len(made.rows) == 6 and not made.provenance.from_cache
        assert made.rows.text(made.rows[0]).startswith("<|im_start|>system")

    def test_what_is_wrong_in_a_file_is_said_as_here(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "a.jsonl", [{"messages": [said("a", weight="x")]}])
        sentences = []
        for loads in (load, load_here):
            with pytest.raises(SourceError) as caught:
                loads(SourceSpec("file", str(path)))
            sentences.append(str(caught.value))
        assert sentences[0] == sentences[1]

    def test_a_name_that_no_disk_takes_is_a_sentence(self) -> None:
        with pytest.raises(SourceError, match=r"cannot be opened \(File name too long\)"):
            load(SourceSpec("file", "a" * 5000))

    def test_folders_that_are_not_allowed(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "only").mkdir()
        with pytest.raises(SourceError, match="outside"):
            load(SourceSpec("file", str(path)), allowed_roots=[tmp_path / "only"])

    def test_an_endless_template_can_be_cancelled(self, path: Path, tmp_path: Path) -> None:
        folder = tmp_path / "tokenizer"
        folder.mkdir()
        (folder / "tokenizer.json").write_bytes((BUNDLED_FOLDER / "tokenizer.json").read_bytes())
        (folder / "chat_template.jinja").write_text(ENDLESS)
        asked: list[int] = []

        def enough() -> bool:
            asked.append(1)
            return len(asked) > 20

        with pytest.raises(LoadCancelled):
            load(SourceSpec("file", str(path), tokenizer=str(folder)), cancelled=enough)


def wrong(payload: Any, send: sandbox.Send) -> None:
    raise KeyError("a fault of ours")


def test_a_fault_of_ours_shows_its_traceback() -> None:
    with pytest.raises(
        RuntimeError, match=r"(?s)in the child process.*KeyError: 'a fault of ours'"
    ):
        run(wrong)
    assert run(echo, [])[0]["all"] == []
