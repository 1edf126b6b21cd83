"""One set of records in every format gives one set of rows."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packing.rows import Rows
from packing.sources.errors import SourceError
from packing.sources.files import json_records, json_scan, records
from packing.sources.files.json_records import json_chunks
from packing.sources.files.paths import SourceFile, find_files
from packing.sources.load import load_here as load
from packing.sources.spec import SourceSpec
from tests.packing.source_files import own_cache, read, texts, tokens, write_lines

__all__ = ["own_cache"]

RECORDS: list[dict[str, Any]] = [
    {"prompt": f"What is {n}?", "completion": f"It is {n}, ünïcode “{n}”.\n", "task_id": n // 2}
    for n in range(9)
]


def _arrow(folder: Path, stream: bool) -> Path:
    table = pa.Table.from_pylist(RECORDS)
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(folder / "a.arrow", table.schema) as out:
        out.write_table(table, max_chunksize=4)
    return folder / "a.arrow"


def _csv(folder: Path, name: str, delimiter: str, bom: str = "") -> Path:
    with (folder / name).open("w", encoding="utf-8", newline="") as out:
        out.write(bom)
        writer = csv.DictWriter(out, list(RECORDS[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(RECORDS)
    return folder / name


def _bytes(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def _parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(RECORDS), folder / "a.parquet", row_group_size=4)
    return folder / "a.parquet"


def _two_files(folder: Path) -> Path:
    (folder / "runs").mkdir()
    write_lines(folder / "runs" / "part-2.jsonl", RECORDS[:5])
    write_lines(folder / "runs" / "part-10.jsonl", RECORDS[5:])
    (folder / "runs" / ".hidden.jsonl").write_text("broken")
    (folder / "runs" / "notes.md").write_text("# notes")
    return folder / "runs"


plain = "".join(json.dumps(r) + "\n" for r in RECORDS).encode()
FORMATS: dict[str, Callable[[Path], Path]] = {
    "JSON lines": lambda f: write_lines(f / "a.jsonl", RECORDS),
    "JSON lines without a last line end": lambda f: _bytes(f, "a.jsonl", plain.rstrip()),
    "JSON lines with blank lines": lambda f: _bytes(f, "a.jsonl", plain.replace(b"\n", b"\n\n")),
    "JSON lines of Windows": lambda f: _bytes(f, "a.jsonl", plain.replace(b"\n", b"\r\n")),
    "JSON lines named json": lambda f: write_lines(f / "a.json", RECORDS),
    "JSON lines with a BOM": lambda f: _bytes(f, "a.jsonl", b"\xef\xbb\xbf" + plain),
    "JSON list": lambda f: _bytes(f, "a.json", json.dumps(RECORDS).encode()),
    "JSON list, indented": lambda f: _bytes(f, "a.json", json.dumps(RECORDS, indent=2).encode()),
    "JSON list with a BOM": lambda f: _bytes(
        f, "a.json", b"\xef\xbb\xbf" + json.dumps(RECORDS, ensure_ascii=False).encode()
    ),
    "JSON list named jsonl": lambda f: _bytes(f, "a.jsonl", json.dumps(RECORDS).encode()),
    "JSON object around a list": lambda f: _bytes(
        f, "a.json", json.dumps({"version": 1, "data": RECORDS}, indent=1).encode()
    ),
    "gzip": lambda f: _bytes(f, "a.jsonl.gz", gzip.compress(plain)),
    "zstandard": lambda f: _bytes(f, "a.jsonl.zst", pa.compress(plain, "zstd", asbytes=True)),
    "JSON list in gzip": lambda f: _bytes(
        f, "a.json.gz", gzip.compress(json.dumps(RECORDS).encode())
    ),
    "Parquet": _parquet,
    "Arrow file": lambda f: _arrow(f, stream=False),
    "Arrow stream": lambda f: _arrow(f, stream=True),
    "CSV": lambda f: _csv(f, "a.csv", ","),
    "CSV with a BOM": lambda f: _csv(f, "a.csv", ",", "\ufeff"),
    "CSV in gzip": lambda f: _bytes(
        f, "b.csv.gz", gzip.compress(_csv(f, "a.csv", ",").read_bytes())
    ),
    "TSV": lambda f: _csv(f, "a.tsv", "\t"),
    "folder": _two_files,
    "glob": lambda f: _two_files(f) / "part-*.jsonl",
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    expected = read(write_lines(tmp_path / "plain" / "a.jsonl", RECORDS))
    (tmp_path / "other").mkdir()
    loaded = read(FORMATS[name](tmp_path / "other"))
    assert tokens(loaded) == tokens(expected)
    assert loaded.rows.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert texts(loaded)[4] == "What is 4?It is 4, ünïcode “4”.\n<|im_end|>"


def test_an_upload_is_read_from_its_bytes() -> None:
    spec = SourceSpec("upload", "..\\up/a.jsonl")
    loaded = load(spec, upload=plain)
    assert len(loaded.rows) == 9 and loaded.provenance.files == 1
    with pytest.raises(SourceError, match="an uploaded file is not kept"):
        load(spec)


def test_npz_round_trip(tmp_path: Path) -> None:
    rows = Rows.from_lists([[1, 2, 3], [], [4]], [7, 7, 3], [[0, 1, 1], [], [1]])
    assert rows.loss_mask is not None
    np.savez(
        tmp_path / "a.npz",
        tokens=rows.tokens,
        offsets=rows.offsets,
        groups=rows.group,
        loss_mask=rows.loss_mask,
    )
    loaded = read(tmp_path / "a.npz")
    assert tokens(loaded) == [[1, 2, 3], [], [4]]
    assert loaded.rows.group.tolist() == [0, 0, 1]
    assert loaded.rows.loss_mask is not None
    assert loaded.rows.loss_mask.tolist() == [0, 1, 1, 1]
    assert loaded.prompt_lengths is not None and loaded.prompt_lengths.tolist() == [1, 0, 0]
    assert loaded.provenance.tokenizer is None and loaded.rows.decoder is None


def test_golden_tokens_are_read_without_a_tokenizer(shared_dir: Path) -> None:
    loaded = read(shared_dir / "golden" / "gsm8k_solutions.npz")
    assert (len(loaded.rows), loaded.rows.n_groups, loaded.rows.n_tokens) == (6595, 1319, 1295679)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_left_right_and_unpadded_rows_are_identical(form: str, tmp_path: Path) -> None:
    rows = [[5, 6, 7], [8], [9, 10]]
    width = 5

    def batch(left: bool) -> list[dict[str, Any]]:
        out = []
        for row in rows:
            pad = [0] * (width - len(row))
            real, mask = [1] * len(row), [1] * (len(row) - 1)
            out.append(
                {
                    "input_ids": pad + row if left else row + pad,
                    "attention_mask": pad + real if left else real + pad,
                    "loss_mask": [*pad, 0, *mask] if left else [0, *mask, *pad],
                }
            )
        return out

    bare = [{"input_ids": r, "loss_mask": [0] + [1] * (len(r) - 1)} for r in rows]
    made = []
    for name, content in (("left", batch(True)), ("right", batch(False)), ("bare", bare)):
        path = tmp_path / f"{name}.{form}"
        if form == "jsonl":
            write_lines(path, content)
        else:
            pq.write_table(pa.Table.from_pylist(content), path)
        made.append(read(path))
    assert tokens(made[0]) == tokens(made[1]) == tokens(made[2]) == rows
    assert len({m.rows.fingerprint for m in made}) == 1


def test_a_range_of_records_over_several_files(tmp_path: Path) -> None:
    folder = _two_files(tmp_path)
    whole = read(folder)
    part = read(folder, start=3, limit=4)
    assert tokens(part) == tokens(whole)[3:7]
    assert part.provenance.records == 4
    assert tokens(read(folder, start=7, limit=99)) == tokens(whole)[7:]
    with pytest.raises(SourceError, match="there are no rows"):
        read(folder, start=99)


def test_files_of_a_folder_come_in_natural_order(tmp_path: Path) -> None:
    for name in ("b10.jsonl", "b2.jsonl", "a/x.jsonl", "b1.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = [f.name for f in find_files(str(tmp_path))]
    assert found == ["a/x.jsonl", "b1.jsonl", "b2.jsonl", "b10.jsonl"]


def test_a_folder_of_mixed_formats_is_read_in_the_format_with_most_bytes(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", RECORDS)
    (tmp_path / "config.json").write_text("{}")
    _csv(tmp_path, "tiny.csv", ",")
    (tmp_path / "tiny.csv").write_text("text\nx\n")
    assert {f.format for f in find_files(str(tmp_path))} == {"json", "jsonl"}


def test_a_misspelt_name_is_suggested(tmp_path: Path) -> None:
    write_lines(tmp_path / "rollouts.jsonl", RECORDS)
    with pytest.raises(SourceError, match=r"did you mean .*rollouts\.jsonl"):
        read(tmp_path / "rollout.jsonl")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
json_records_made = st.lists(
    st.dictionaries(st.text(max_size=4), json_values, max_size=4), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(json_records_made, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_a_list_is_read_the_same_through_any_buffer(
    made: list[dict[str, Any]], size: int, indent: int | None, escaped: bool
) -> None:
    """Elements cut off at the end of a buffer are completed: the slow reference is json.loads."""
    content = json.dumps(made, indent=indent, ensure_ascii=escaped).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_records, "CHUNK_BYTES", size)
        patch.setattr(records, "CHUNK_BYTES", size)
        patch.setattr(json_scan.TextFeed.more, "__defaults__", (size,))
        chunks = list(json_chunks(SourceFile("a.json", None, content)))
    assert [r for c in chunks for r in c.records] == made
    places = [c.where(i).row for c in chunks for i in range(len(c.records))]
    assert places == list(range(len(made)))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(max_size=60), min_size=1, max_size=30),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from([200, 1 << 20]),
)
@example([""], 2, False, 1, 200)  # a list shorter than a member that is gone into
def test_a_wrapper_of_any_size_holds_its_records(
    said: list[str], depth: int, first: bool, indent: int | None, limit: int
) -> None:
    """Whole or piece by piece, with members before and after, at any depth."""
    made = [{"prompt": "go", "completion": text, "n": n} for n, text in enumerate(said)]
    wrapped: Any = {"rollouts": made}
    for _ in range(depth):
        wrapped = {"inner": wrapped}
    about = {"metadata": {"model": "m", "tags": ["a", 1]}, "version": 2}
    content = json.dumps(about | wrapped if first else wrapped | about, indent=indent).encode()
    longest = max(len(json.dumps(r, indent=4)) for r in made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_records, "MAX_RECORD_BYTES", max(limit, 2 * longest + 50))
        patch.setattr(json_records, "MEMBER_BYTES", 100)
        patch.setattr(json_scan.TextFeed.more, "__defaults__", (64,))
        chunks = list(json_chunks(SourceFile("a.json", None, content)))
    found = [r for c in chunks for r in c.records]
    assert found == made


NESTED: dict[str, tuple[Any, int]] = {
    "a list of lists of records": ([[{"text": "a"}, {"text": "b"}], [{"text": "c"}]], 3),
    "records by name": ({"x": {"text": "a"}, "y": {"text": "b"}}, 2),
    "lists of records in records": (
        [{"task_id": 1, "attempts": [{"prompt": "a", "completion": "b"}] * 2}],
        2,
    ),
    "one record": ({"prompt": "a", "completion": "b"}, 1),
    "a list of chats": (
        [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]],
        2,
    ),
    "one chat": ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], 1),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("ending", ["json", "jsonl", "traj", "jsonlines", ""])
def test_lists_in_lists_are_their_records(name: str, ending: str, tmp_path: Path) -> None:
    value, rows = NESTED[name]
    path = tmp_path / ("rows" + (f".{ending}" if ending else ""))
    path.write_text(json.dumps(value))
    assert len(read(path).rows) == rows


def test_only_the_needed_columns_of_parquet_are_read(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([r | {"blob": "x" * 100} for r in RECORDS])
    pq.write_table(table, tmp_path / "a.parquet")
    loaded = read(tmp_path / "a.parquet")
    assert "blob" in {c.path for c in loaded.columns}
    assert "blob" not in loaded.roles.columns
    again = load(replace(loaded.spec, roles=(("text", "blob"),)))
    assert texts(again)[0] == "x" * 100 + "<|im_end|>"


def test_nobody_learns_what_lies_outside_and_no_disk_is_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / ".hidden", root / "open", outside):
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_text("{}\n")
    (root / "link").symlink_to(outside)

    def walked(*_: object, **__: object) -> list[str]:
        raise AssertionError("the disk was walked")

    with monkeypatch.context() as patched:
        patched.setattr("glob.glob", walked)
        for there, gone in (
            (outside / "*.jsonl", outside / "*.nothing"),
            (root / "open" / ".." / ".." / "outside" / "*", root / ".." / "nothing" / "*"),
            (root / "*" / ".." / ".." / "outside" / "*", root / "*" / ".." / ".." / "gone" / "*"),
            (root / "link" / "*", outside / "gone" / "*"),
            (Path("/**/*.jsonl"), Path("/nothing/**/*.x")),
            (outside / "rows.jsonl", outside / "nothing.jsonl"),
            (outside / "rows[1].jsonl", outside / "nothing[1].jsonl"),
            (root / ".hidden" / "rows.jsonl", root / ".hidden" / "nothing.jsonl"),
            (root / ".hidden" / "*", root / ".nothing" / "*"),
        ):
            said = []
            for path in (there, gone):
                with pytest.raises(SourceError) as refused:
                    find_files(str(path), [root])
                said.append(str(refused.value).replace(str(path), "PATH"))
            assert said[0] == said[1] and "lies outside" in said[0], path
    assert [f.name for f in find_files(str(root / "open" / "*.jsonl"), [root])]
    assert [f.name for f in find_files(str(root / ".hidden" / "*"), [root / ".hidden"])]
