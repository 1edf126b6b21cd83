"""Columns are recognised by name and content, and can be given another role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packing.sources import fields
from packing.sources.columns import describe
from packing.sources.errors import SourceError
from packing.sources.roles import recognise
from tests.packing.source_files import (
    gsm8k_record,
    own_cache,
    read,
    texts,
    tokens,
    tool_talk,
    write_lines,
)

__all__ = ["own_cache"]

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
SHARE = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]

SHAPES: dict[str, tuple[dict[str, Any], set[tuple[str, str]]]] = {
    "token ids": (
        {"input_ids": [1, 2], "attention_mask": [1, 1], "labels": [-100, 2], "uid": "a"},
        {
            ("input_ids", "input_ids"),
            ("attention_mask", "attention_mask"),
            ("loss_mask", "labels"),
            ("group", "uid"),
        },
    ),
    "prompt and completion ids": (
        {"prompt_ids": [1], "completion_ids": [2, 3]},
        {("prompt", "prompt_ids"), ("completion", "completion_ids")},
    ),
    "TRL's log of completions": (
        {"step": 3, "prompt": "a", "completion": "b", "advantage": 0.1},
        {("prompt", "prompt"), ("completion", "completion"), ("step", "step")},
    ),
    "verl's dump of rollouts": (
        {"input": "a", "output": "b", "gts": "b", "score": 1.0, "step": 2},
        {("prompt", "input"), ("completion", "output"), ("reward", "score"), ("step", "step")},
    ),
    "verl's prompts": (
        {
            "data_source": "x",
            "prompt": TALK[:1],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "4"},
            "extra_info": {"answer": "2+2=4", "index": 1, "question": "2+2?", "split": "train"},
        },
        {("prompt", "prompt")},
    ),
    "OpenRLHF's log": (
        {"prompt": "a", "label": "x", "response": "b", "reward": 1},
        {("prompt", "prompt"), ("completion", "response"), ("reward", "reward")},
    ),
    "vLLM's outputs": (
        {"prompt": "a", "outputs": [{"text": "b", "score": 1.0}, {"text": "c", "score": 0.0}]},
        {("prompt", "prompt"), ("completion", "outputs.*.text"), ("reward", "outputs.*.score")},
    ),
    "generated text": (
        {"prompt": "a", "generated_text": "b"},
        {("prompt", "prompt"), ("completion", "generated_text")},
    ),
    "many completions": (
        {"problem_id": "p", "prompt": "a", "completions": ["b", "c"], "rewards": [0, 1]},
        {
            ("group", "problem_id"),
            ("prompt", "prompt"),
            ("completion", "completions"),
            ("reward", "rewards"),
        },
    ),
    "samples by name": (
        {"question": "a", "samples": {"x": {"solution": "b"}, "y": {"solution": "c"}}},
        {("question", "question"), ("completion", "samples.*.solution")},
    ),
    "preference pairs": (
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {("prompt", "prompt"), ("completion", "chosen"), ("completion", "rejected")},
    ),
    "preference conversations": (
        {"chosen": TALK, "rejected": TALK},
        {("messages", "chosen"), ("messages", "rejected")},
    ),
    "OpenAI messages": (
        {"messages": TALK, "tools": [{"type": "function"}]},
        {("messages", "messages"), ("tools", "tools")},
    ),
    "ShareGPT": ({"id": "x", "conversations": SHARE}, {("messages", "conversations")}),
    "messages inside": (
        {"info": {"traj": TALK}, "task_id": 3},
        {
            ("messages", "info.traj"),
            ("group", "task_id"),
        },
    ),
    "messages as JSON text": (
        {"messages": '[{"role": "user", "content": "hi"}]'},
        {("messages", "messages")},
    ),
    "question and answer": (
        {"question": "a", "answer": "b"},
        {("question", "question"), ("completion", "answer")},
    ),
    "an answer that only grades": (
        {"prompt": "a", "completions": ["b"], "answer": "4"},
        {("prompt", "prompt"), ("completion", "completions")},
    ),
    "text": ({"text": "abc", "id": 4}, {("text", "text")}),
    "nothing": ({"a": 1}, set()),
}


@pytest.mark.parametrize("name", SHAPES)
def test_roles_are_recognised(name: str) -> None:
    record, expected = SHAPES[name]
    assert set(recognise([record])) == expected


def test_the_first_rows_together_decide() -> None:
    """A column that is empty in the first row is known from a later one."""
    found = recognise([{"prompt": "a", "completion": None}, {"prompt": "b", "completion": "c"}])
    assert ("completion", "completion") in found


def test_gsm8k_solutions_are_groups_of_five(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [gsm8k_record(n) for n in range(6)])
    loaded = read(path)
    assert (len(loaded.rows), loaded.rows.n_groups) == (30, 6)
    assert np.bincount(loaded.rows.group).tolist() == [5] * 6
    assert loaded.rewards is not None
    np.testing.assert_array_equal(loaded.rewards[:5], [np.nan, 1, 0, 0, 0])
    assert texts(loaded)[1] == (
        "<|im_start|>user\nWhat is 0?<|im_end|>\n<|im_start|>assistant\n"
        "So 0 by 6b_finetuning.\nA: 0<|im_end|>"
    )


def test_a_role_is_given_to_another_column(tmp_path: Path) -> None:
    record = {"prompt": "a", "completion": "b", "other": "c", "d.e": {"f": "g"}}
    path = write_lines(tmp_path / "a.jsonl", [record])
    assert texts(read(path, roles=(("completion", "other"),))) == ["ac<|im_end|>"]
    assert texts(read(path, roles=(("prompt", "other"),))) == ["cb<|im_end|>"]
    assert texts(read(path, roles=(("text", "other"),))) == ["c<|im_end|>"]
    assert texts(read(path, roles=(("text", "d.e.f"),))) == ["g<|im_end|>"]
    both = (("completion", "completion"), ("completion", "other"))
    assert texts(read(path, roles=both)) == ["ab<|im_end|>", "ac<|im_end|>"]
    assert texts(read(path, roles=(("question", "prompt"),)))[0].startswith("<|im_start|>user\na<")


def test_a_role_for_a_column_that_is_not_there(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"prompt": "a", "completion": "b"}])
    with pytest.raises(SourceError, match=r"field 'answr': no such field .*prompt, completion"):
        read(path, roles=(("completion", "answr"),))


def test_nested_columns_are_described() -> None:
    columns = {c.path: c.kind for c in describe([{"a": None}, {"a": {"b": [1, 2]}, "c": TALK}])}
    assert columns == {"a": "object", "a.b": "list of integers", "c": "list of messages"}


def test_paths_into_records() -> None:
    record = {"a.b": {"c": 1}, "a": {"b": {"c": 2}, "d": [{"e": 3}, {"e": 4}]}, "n": None}
    assert list(fields.find(record, "a.b.c")) == [("a.b.c", 1)]
    assert list(fields.find(record, "a.d.*.e")) == [("a.d.0.e", 3), ("a.d.1.e", 4)]
    assert list(fields.find(record, "a.d.1.e")) == [("a.d.1.e", 4)]
    assert fields.first(record, "n") is None
    assert fields.first(record, "a.x") is fields.MISSING
    assert fields.first(record, "a.d.9.e") is fields.MISSING


def test_groups_without_a_group_column_are_prompts(tmp_path: Path) -> None:
    rows = [("a", 1), ("b", 1), ("a", 1), ("a", 2)]
    records = [{"prompt": p, "completion": str(i)} for i, (p, _) in enumerate(rows)]
    path = write_lines(tmp_path / "a.jsonl", records)
    assert read(path).rows.group.tolist() == [0, 1, 0, 0]
    stepped = [r | {"step": s} for r, (_, s) in zip(records, rows, strict=True)]
    path = write_lines(tmp_path / "b.jsonl", stepped)
    assert read(path).rows.group.tolist() == [0, 1, 0, 2]


def test_conversations_group_by_what_comes_before_the_first_turn(tmp_path: Path) -> None:
    records = [{"messages": tool_talk(task, trial)["traj"]} for trial in (0, 1) for task in (7, 8)]
    assert read(write_lines(tmp_path / "a.jsonl", records)).rows.group.tolist() == [0, 1, 0, 1]


def test_prompt_and_completion_as_ids(tmp_path: Path) -> None:
    record = {"prompt_ids": [1, 2], "completion_ids": [[3], [4, 5]]}
    loaded = read(write_lines(tmp_path / "a.jsonl", [record]))
    assert tokens(loaded) == [[1, 2, 3], [1, 2, 4, 5]]
    assert loaded.prompt_lengths is not None and loaded.prompt_lengths.tolist() == [2, 2]
    assert loaded.rows.group.tolist() == [0, 0]
    assert loaded.rows.text([1, 2]) == "1 2"


def test_a_response_mask_is_counted_from_the_end(tmp_path: Path) -> None:
    record = {
        "input_ids": [0, 1, 2, 3, 4, 0],
        "attention_mask": [0, 1, 1, 1, 1, 0],
        "response_mask": [1, 0, 0],
    }
    loaded = read(write_lines(tmp_path / "a.jsonl", [record]))
    assert tokens(loaded) == [[1, 2, 3, 4]]
    assert loaded.rows.loss_mask is not None and loaded.rows.loss_mask.tolist() == [0, 0, 1, 0]
