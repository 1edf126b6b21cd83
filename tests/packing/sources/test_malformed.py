"""Malformed inputs: each ends in one sentence naming file, row and field, never in a traceback."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packing.sources.errors import SourceError
from packing.sources.files import json_records
from packing.sources.load import load_here as load
from packing.sources.spec import SourceSpec
from tests.packing.source_files import own_cache, write_lines

__all__ = ["own_cache"]

GOOD = {"prompt": "1+1?", "completion": "2"}
USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "hello"}


def lines(*records: Any, name: str = "a.jsonl") -> Callable[[Path], Path]:
    return lambda folder: write_lines(folder / name, list(records))


def raw(content: bytes, name: str = "a.jsonl") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def ids(value: Any, **more: Any) -> Callable[[Path], Path]:
    return lines({"input_ids": [1, 2]}, {"input_ids": value, **more})


def talk(*messages: Any) -> Callable[[Path], Path]:
    return lines({"messages": [USER, SAID]}, {"messages": list(messages)})


def parquet(table: dict[str, Any], name: str = "a.parquet") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pq.write_table(pa.table(table), folder / name)
        return folder / name

    return make


def npz(name: str = "a.npz", **arrays: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        np.savez(folder / name, **arrays)
        return folder / name

    return make


def _evil_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("../../evil.jsonl", json.dumps(GOOD))
    return folder / "a.zip"


def _evil_tar(folder: Path) -> Path:
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("/etc/evil.jsonl")
        archive.addfile(entry, io.BytesIO(b""))
    return folder / "a.tar.gz"


def _columns_twice(folder: Path) -> Path:
    array = pa.array(["x"])
    table = pa.Table.from_arrays([array, array], names=["text", "text"])
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as out:
        out.write_table(table)
    return folder / "a.arrow"


def _broken_arrow(folder: Path) -> Path:
    # Offsets that point behind the values: reading them unchecked would leave the buffer.
    table = pa.table({"input_ids": pa.array([[1, 2], [3]])})
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as out:
        out.write_table(table)
    whole = (folder / "a.arrow").read_bytes()
    wild = whole.replace(
        np.array([0, 2, 3], dtype=np.int32).tobytes(),
        np.array([0, 2, 1 << 20], dtype=np.int32).tobytes(),
    )
    assert wild != whole
    (folder / "a.arrow").write_bytes(wild)
    return folder / "a.arrow"


def _half(folder: Path) -> Path:
    whole = gzip.compress(b"".join(json.dumps(GOOD).encode() + b"\n" for _ in range(5000)))
    (folder / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    return folder / "a.jsonl.gz"


def _half_zstd(folder: Path) -> Path:
    text = b"".join(json.dumps({"text": os.urandom(40).hex()}).encode() + b"\n" for _ in range(99))
    whole = pa.compress(text, "zstd", asbytes=True)
    (folder / "a.jsonl.zst").write_bytes(whole[: len(whole) // 2])
    return folder / "a.jsonl.zst"


def _object_npz(folder: Path) -> Path:
    np.savez(folder / "a.npz", tokens=np.array([[1], [2, 3]], dtype=object), offsets=[0, 1, 3])
    return folder / "a.npz"


def _npz_bomb(folder: Path) -> Path:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<i8", "fortran_order": False, "shape": (1 << 40,)}
    )
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tokens.npy", header.getvalue())
        archive.writestr("offsets.npy", header.getvalue())
    return folder / "a.npz"


good = json.dumps(GOOD).encode()
deep = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    # JSON lines
    "truncated line": (
        raw(good + b'\n{"prompt": "x", "comp'),
        r"a.jsonl, row 1 \(line 2\): .*ends",
    ),
    "broken line": (raw(good + b"\n{nope}\n" + good), r"row 1 \(line 2\): not JSON at column 2"),
    "line is a list": (raw(good + b"\n[1, 2]\n"), r"row 1 \(line 2\): is \[1, 2\], not an object"),
    "line is null": (raw(good + b"\nnull\n"), r"row 1 \(line 2\): is None, not an object"),
    "NUL byte": (raw(good + b'\n{"prompt": "\0"}\n'), r"row 1 \(line 2\): a NUL byte at byte 12"),
    "mixed encodings": (
        raw(good + b"\n" + '{"prompt": "é", "completion": "x"}'.encode("latin-1") + b"\n"),
        r"row 1 \(line 2\): byte 12 .*0xe9.* is not UTF-8",
    ),
    "UTF-16": (raw('{"text": "x"}'.encode("utf-16")), r"a.jsonl, row 0 \(line 1\): .*UTF-16"),
    "empty file": (raw(b""), r"a.jsonl: the file is empty"),
    "blank lines only": (raw(b"\n\n \n"), r"a.jsonl: there are no rows"),
    "lone surrogate": (
        raw(b'{"messages": [{"role": "user", "content": "\\ud83d"}]}'),
        r"row 0 \(line 1\), field 'messages.0.content': half a character",
    ),
    "duplicate keys": (
        raw(b'{"prompt": "a", "completion": "b", "prompt": "c"}'),
        r"row 0 \(line 1\), field 'prompt': the key is there twice",
    ),
    "nested too deeply": (raw(deep), r"row 0 \(line 1\): .*nested too deeply"),
    "endless number": (raw(b'{"x": ' + b"1" * 9000 + b"}"), r"row 0 \(line 1\): a number cannot"),
    # JSON documents
    "truncated list": (raw(b"[" + good + b"," + good[:20], "a.json"), r"a.json, row 1 \(line 1\)"),
    "list without an end": (
        raw(b"[" + good + b",\n", "a.json"),
        r"row 1 \(line 2\): .*ends inside",
    ),
    "list without commas": (
        raw(b"[" + good + b"\n" + good + b"]", "a.json"),
        r"row 1 \(line 2\): '\{' stands where",
    ),
    "broken list": (raw(b"[" + good + b",\n{,}]", "a.json"), r"row 1 \(line 2\): not JSON at col"),
    "more after the list": (raw(b"[" + good + b"] {}", "a.json"), r"row 1 .*after the end"),
    "list of numbers": (raw(b"[1, 2]", "a.json"), r"a.json, row 0 \(line 1\): is 1, not an object"),
    "empty list": (raw(b"[]", "a.json"), r"a.json: there are no rows"),
    "latin-1 list": (raw(b'[{"text": "\xe9"}]', "a.json"), r"a.json: byte 11 is not UTF-8"),
    # token ids
    "NaN ids": (ids([1, float("nan")]), r"row 1 \(line 2\), field 'input_ids': position 1 is nan"),
    "float ids": (ids([1, 2.0]), r"field 'input_ids': position 1 is 2.0, .*write 2"),
    "text ids": (ids(["1"]), r"row 1 \(line 2\), field 'input_ids': position 0 is '1'"),
    "null id": (ids([1, None]), r"row 1 \(line 2\), field 'input_ids': position 1 is None"),
    "boolean ids": (ids([True, False]), r"field 'input_ids': position 0 is True"),
    "nested ids": (ids([[1, 2], [3]]), r"row 1 \(line 2\), field 'input_ids': holds a list at pos"),
    "negative id": (ids([5, -100]), r"row 1 .*'input_ids': -100 at position 1 is not a token id"),
    "huge id": (ids([2**31]), r"field 'input_ids': 2147483648 at position 0"),
    "endless id": (ids([2**70]), r"field 'input_ids': position 0 is 1180591620717411303424"),
    "ids are a number": (ids(7), r"row 1 .*field 'input_ids': is whole number, not a list"),
    "ids are missing": (lines({"input_ids": [1]}, {"x": 1}), r"row 1 .*'input_ids': is missing"),
    "short attention mask": (
        lines({"input_ids": [1, 2], "attention_mask": [1]}),
        r"row 0 .*field 'attention_mask': 1 values for 2 ids",
    ),
    "long loss mask": (
        lines({"input_ids": [1, 2], "loss_mask": [1, 1, 1]}),
        r"field 'loss_mask': 3 values for 2",
    ),
    # text and chats
    "no known column": (lines({"a": 1, "b": 2}), r"a.jsonl: no column is recognised .*a, b"),
    "prompt is a number": (
        lines(GOOD, {**GOOD, "prompt": 3}),
        r"row 1 .*'prompt': is whole number",
    ),
    "completion is null": (
        lines(GOOD, {**GOOD, "completion": None}),
        r"row 1 .*'completion': is n",
    ),
    "completions of mixed types": (
        lines({"prompt": "x", "completions": ["a", 3]}),
        r"row 0 .*'completions.1': is whole number",
    ),
    "only system messages": (
        talk({"role": "system", "content": "x"}),
        r"row 1 .*'messages': only system messages",
    ),
    "no messages": (talk(), r"row 1 .*field 'messages': no messages"),
    "tool message first": (
        talk({"role": "tool", "content": "42"}, SAID),
        r"row 1 .*field 'messages.0': a tool result",
    ),
    "unknown role": (
        talk(USER, {"role": "wizard", "content": "x"}),
        r"field 'messages.1.role': .*'wizard'",
    ),
    "message without a role": (
        talk(USER, {"content": "x"}),
        r"'messages.1.role': the role is None",
    ),
    "message is text": (talk(USER, "hello"), r"row 1 .*field 'messages.1': is text, not a message"),
    "content is a number": (
        talk({"role": "user", "content": 5}),
        r"row 1 .*field 'messages.0.content': is whole",
    ),
    "call without a name": (
        talk(USER, {"role": "assistant", "tool_calls": [{"id": "c"}]}),
        r"field 'messages.1.tool_calls.0': the call has no function name",
    ),
    "group is a list": (
        lines({**GOOD, "group": 1}, {**GOOD, "group": [1]}),
        r"row 1 .*field 'group': is list of",
    ),
    "group is missing": (lines({**GOOD, "group": 1}, GOOD), r"row 1 .*field 'group': is missing"),
    # containers
    "gz that is not gz": (raw(good, "a.jsonl.gz"), r"a.jsonl.gz: .*not readable as gzip"),
    "gz cut off": (_half, r"a.jsonl.gz: the compressed file ends too early"),
    "zst that is not zst": (raw(good, "a.jsonl.zst"), r"a.jsonl.zst: .*not readable as zstandard"),
    "zst cut off": (_half_zstd, r"a.jsonl.zst: the compressed file"),
    "Parquet with a wrong magic": (
        raw(b"PAR2" + b"x" * 99, "a.parquet"),
        r"a.parquet: not readable",
    ),
    "Parquet cut off": (raw(b"PAR1", "a.parquet"), r"a.parquet: not readable as Parquet"),
    "empty Parquet file": (raw(b"", "a.parquet"), r"a.parquet: the file is empty"),
    "Parquet without rows": (parquet({"text": pa.array([], pa.string())}), r"no rows"),
    "Parquet of float ids": (
        parquet({"input_ids": [[1.0, 2.0]]}),
        r"a.parquet, row 0, field 'input_ids': position 0 is 1.0",
    ),
    "Parquet with a null id": (
        parquet({"input_ids": [[1], [2, None]]}),
        r"row 1, field 'input_ids': position 1 is None",
    ),
    "Arrow that is not": (raw(b"ARROW1xx", "a.arrow"), r"a.arrow: not readable as Arrow"),
    "Arrow with wild offsets": (_broken_arrow, r"a.arrow: not readable as Arrow"),
    "a column twice": (_columns_twice, r"a.arrow: the column 'text' is there 2 times"),
    "CSV with a short row": (raw(b"prompt,completion\na,b\nc\n", "a.csv"), r"a.csv: .*Row #3"),
    "CSV not UTF-8": (raw(b"text\n\xe9\n", "a.csv"), r"a.csv: not readable as CSV"),
    "CSV with a NUL byte": (raw(b"text\n\0\n", "a.csv"), r"a.csv: a NUL byte"),
    "CSV without rows": (raw(b"text\n", "a.csv"), r"a.csv: there are no rows"),
    "npz of objects": (_object_npz, r"a.npz, field 'tokens': .*not a plain array"),
    "npz of floats": (npz(tokens=[1.5], offsets=[0, 1]), r"a.npz, field 'tokens': is float64"),
    "npz without offsets": (npz(tokens=[1]), r"a.npz, field 'offsets': the array is missing"),
    "npz of other arrays": (npz(x=[1]), r"a.npz, field 'tokens': the arrays are missing .*x"),
    "npz with wild offsets": (
        npz(tokens=[1, 2], offsets=[0, 5, 2]),
        r"a.npz, field 'offsets': offsets go back",
    ),
    "npz with a negative id": (
        npz(tokens=[1, -2], offsets=[0, 1, 2]),
        r"a.npz, row 1, field 'tokens': token id -2",
    ),
    "npz that is not": (raw(b"PK\x03\x04", "a.npz"), r"a.npz: not readable as .npz"),
    "npz that unpacks to terabytes": (
        _npz_bomb,
        r"a.npz, field 'tokens': .*says 8796093022336 bytes and has 128",
    ),
    "path traversal in a zip": (_evil_zip, r"a.zip: is an archive, .*not unpacked"),
    "path traversal in a tar": (_evil_tar, r"a.tar.gz: is an archive, .*not unpacked"),
    "a pickle": (raw(b"\x80\x04N.", "a.pkl"), r"a.pkl: .pkl files may run code"),
    "an unknown ending": (raw(b"x", "a.xlsx"), r"a.xlsx: a file ending in '.xlsx' is not read"),
    "a file that is not there": (lambda folder: folder / "b.jsonl", r"b.jsonl: does not exist"),
    "a pattern without files": (lambda folder: folder / "*.jsonl", r"\*.jsonl: no file matches"),
    "an empty folder": (lambda folder: folder, r"has no file to read"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_malformed_input_ends_in_a_sentence(name: str, tmp_path: Path) -> None:
    make, sentence = CASES[name]
    with pytest.raises(SourceError) as caught:
        load(SourceSpec("file", str(make(tmp_path))))
    message = str(caught.value)
    assert re.search(sentence, message), message
    assert message.endswith(".") and "Traceback" not in message
    # What is wrong, then the smallest mend, on one line.
    assert ("; " in message or ": " in message) and "\n" not in message


def test_there_are_forty_and_more() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_record_longer_than_the_limit_is_refused_before_it_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_records, "MAX_RECORD_BYTES", 1 << 20)
    long = json.dumps({"text": "x" * (3 << 20)})
    path = tmp_path / name
    path.write_text(f"[{long}]" if name == "a.json" else long + "\n")
    with pytest.raises(SourceError, match=r"row 0 \(line 1\): .*longer than 1 MiB"):
        load(SourceSpec("file", str(path)))


def test_a_record_up_to_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records, "MAX_RECORD_BYTES", 4 << 20)
    record = json.dumps({"note": "x" * (3 << 20), "text": "short"})
    for name, content in (("a.jsonl", record + "\n"), ("a.json", f"[{record}, {record}]")):
        (tmp_path / name).write_text(content)
        loaded = load(SourceSpec("file", str(tmp_path / name)))
        assert loaded.rows.text(loaded.rows[0]).startswith("short")


class TestAllowedFolders:
    """What a page may read when others can reach it."""

    def refuses(self, location: Path, root: Path) -> None:
        with pytest.raises(SourceError, match="outside the folders that may be read"):
            load(SourceSpec("file", str(location)), allowed_roots=[root])

    def test_a_file_inside_is_read(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "a.jsonl", [GOOD])
        assert len(load(SourceSpec("file", str(path)), allowed_roots=[tmp_path]).rows) == 1

    def test_a_link_out_of_the_folder_is_refused(self, tmp_path: Path) -> None:
        inside = tmp_path / "inside"
        inside.mkdir()
        secret = write_lines(tmp_path / "secret.jsonl", [GOOD])
        (inside / "a.jsonl").symlink_to(secret)
        for location in (inside / "a.jsonl", inside, inside / "*.jsonl"):
            self.refuses(location, inside)

    def test_a_path_with_dots_is_refused(self, tmp_path: Path) -> None:
        inside = tmp_path / "inside"
        inside.mkdir()
        write_lines(tmp_path / "secret.jsonl", [GOOD])
        self.refuses(inside / ".." / "secret.jsonl", inside)

    def test_what_is_outside_is_not_told_apart_from_what_is_not_there(self, tmp_path: Path) -> None:
        inside = tmp_path / "inside"
        inside.mkdir()
        self.refuses(tmp_path / "no-such-file.jsonl", inside)
        self.refuses(tmp_path, inside)

    def test_links_in_a_circle(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").symlink_to(tmp_path / "b.jsonl")
        (tmp_path / "b.jsonl").symlink_to(tmp_path / "a.jsonl")
        with pytest.raises(SourceError, match=r"a.jsonl"):
            load(SourceSpec("file", str(tmp_path / "a.jsonl")), allowed_roots=[tmp_path])

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "a.jsonl")
        with pytest.raises(SourceError, match="not a regular file"):
            load(SourceSpec("file", str(tmp_path / "a.jsonl")))
