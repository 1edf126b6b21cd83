"""Messages a row each become the chats they are of, wherever in the file they stand."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.sources.chunks import Chunk
from packing.sources.dialects import as_messages
from packing.sources.errors import SourceError
from packing.sources.odd import OddRecords
from packing.sources.records import gathered
from packing.sources.records.gathered import gathering_of
from tests.packing.source_files import own_cache, read, tokens, write_lines
from tests.packing.sources.more_shapes import EVENTS

__all__ = ["own_cache"]

CHATS = st.lists(
    st.lists(st.text("ab ", min_size=1), min_size=1, max_size=5), min_size=1, max_size=5
)


def rows_of(chats: list[list[str]], turns: bool = True) -> list[dict[str, Any]]:
    return [
        {"conversation_id": f"c{n}", "role": ("user", "assistant")[t % 2], "content": text}
        | ({"turn": t} if turns else {})
        for n, chat in enumerate(chats)
        for t, text in enumerate(chat)
    ]


def chats_of(records: list[dict[str, Any]], size: int = 3) -> list[list[tuple[str, str]]]:
    """The chats of rows that come in chunks of a few."""
    by = gathering_of(records)
    assert by is not None
    chunks = (
        Chunk("a", start, records[start : start + size], None, 0.0)
        for start in range(0, len(records), size)
    )
    made = [r for c in by.chunks(chunks, OddRecords()) for r in c.records]
    return [[(m["role"], m["content"]) for m in r["messages"]] for r in made]


@settings(max_examples=60, deadline=None)
@given(CHATS, st.randoms(use_true_random=False))
def test_any_order_of_rows_gives_the_chats(chats: list[list[str]], random: Any) -> None:
    roles = ("user", "assistant")
    expected = [[(roles[t % 2], text) for t, text in enumerate(chat)] for chat in chats]
    rows = rows_of(chats)
    assert chats_of(rows) == expected
    random.shuffle(rows)
    assert sorted(chats_of(rows)) == sorted(expected)


def test_a_file_longer_than_is_held_streams_where_it_is_sorted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathered, "HELD_BYTES", 20)
    chats = [["question", "answer"] * 2 for _ in range(9)]
    rows = rows_of(chats, turns=False)
    assert [len(c) for c in chats_of(rows)] == [4] * 9
    with pytest.raises(
        SourceError, match=r"'c0' goes on far from its start; sort the rows by 'con"
    ):
        chats_of([*rows[1:], rows[0]])


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_rows_are_those_of_the_chats_written_whole(ending: str, tmp_path: Path) -> None:
    chats = [["a", "b", "c", "d"], ["a", "e"]]
    rows = [{**r, "reward": 0.5 * (r["conversation_id"] == "c1")} for r in rows_of(chats)][::-1]
    path = tmp_path / f"a.{ending}"
    if ending == "jsonl":
        write_lines(path, rows)
    elif ending == "csv":
        with path.open("w", newline="") as out:
            table = csv.DictWriter(out, rows[0])
            table.writeheader()
            table.writerows(rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    talks = [
        {
            "messages": [
                {"role": ("user", "assistant")[t % 2], "content": x} for t, x in enumerate(c)
            ]
        }
        for c in reversed(chats)
    ]
    made, whole = read(path), read(write_lines(tmp_path / "whole.jsonl", talks))
    assert tokens(made) == tokens(whole)
    assert made.rewards is not None and made.rewards.tolist() == [0.5, 0.0]
    assert any("one 'conversation_id' are one chat" in n for n in made.provenance.notes)
    assert read(path, limit=1).rows.n_tokens == made.rows.lengths[0]


def test_a_message_without_its_chat_is_named_or_left_out(tmp_path: Path) -> None:
    rows = [*rows_of([["a", "b"]]), {"conversation_id": None, "role": "user", "content": "x"}]
    path = write_lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(SourceError, match=r"row 2 \(line 3\), field 'conversation_id': is null"):
        read(path)
    assert read(path, leave_out_odd=True).provenance.left_out_records == 1


@pytest.mark.parametrize(
    "record",
    [
        {"text": "a", "source": "web"},
        {"role": "user", "content": "a", "prompt": "p", "completion": "c"},
        {"session_id": "s", "prompt": "p", "response": "r"},
        {"conversation_id": "s", "messages": [{"role": "user", "content": "a"}]},
    ],
)
def test_rows_of_their_own_are_not_gathered(record: dict[str, Any]) -> None:
    assert gathering_of([record, record]) is None


def test_one_who_speaks_alone_is_no_chat(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": f"q{n}"} for n in range(3)]
    with pytest.raises(SourceError, match="no column is recognised"):
        read(write_lines(tmp_path / "a.jsonl", asked))
    assert len(read(write_lines(tmp_path / "b.jsonl", asked[:1])).rows) == 1


def test_an_action_without_a_recorded_response_is_its_thought_and_a_call() -> None:
    action = {"source": "agent", "action": "run", "args": {"command": "ls", "thought": "look"}}
    made = as_messages([*EVENTS[:2], action])
    assert made is not None and made[-1]["content"] == "look"
    function = made[-1]["tool_calls"][0]["function"]
    assert function == {"name": "run", "arguments": {"command": "ls"}}
