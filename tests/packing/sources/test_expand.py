"""Conversations become rows: whole, a row a turn, a row a chain; and what a template breaks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.sources.build import joined
from packing.sources.chat.messages import normalised
from packing.sources.chat.shape import common
from packing.sources.chat.template import Conversation, Part, Renderer
from packing.sources.chat.tokenizer_files import load_tokenizer
from packing.sources.errors import SourceError, Where
from tests.packing.source_files import own_cache, read, texts, tool_talk, write_lines

__all__ = ["own_cache"]

HERE = Where("a.jsonl", 0, 1)
BUNDLED = load_tokenizer("bundled")


def rendered(messages: Sequence[Any], keep: bool | None = None, tools: Any = None) -> Conversation:
    return Conversation(Renderer(BUNDLED, tools, keep, HERE), list(messages), "messages")


words = st.text("ab \n<é", min_size=0, max_size=6)
thoughts = st.none() | words.filter(str.strip)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    if draw(st.booleans()):
        out.append({"role": "system", "content": draw(words)})
    for _ in range(draw(st.integers(1, 4))):
        out.append({"role": "user", "content": draw(words)})
        for _ in range(draw(st.integers(0, 2))):
            call = {"function": {"name": "f", "arguments": {"x": draw(words)}}}
            message = {"role": "assistant", "content": draw(words), "tool_calls": [call]}
            thought = draw(thoughts)
            out.append(message | ({"reasoning_content": thought} if thought else {}))
            out += [{"role": "tool", "content": draw(words)}] * draw(st.integers(1, 2))
        out.append({"role": "assistant", "content": draw(words)})
    return out


@settings(max_examples=80, deadline=None)
@given(conversations(), st.sampled_from([None, True, False]))
def test_parts_are_the_text_and_turns_are_what_an_engine_sees(
    messages: list[dict[str, Any]], keep: bool | None
) -> None:
    talk = rendered(messages, keep)
    assert "".join(str(p.content) for p in talk.whole()) == BUNDLED.render(
        messages, None, False, keep
    )
    said = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    rows = talk.individual()
    assert len(rows) == len(said)
    for i, row in zip(said, rows, strict=True):
        prompt = BUNDLED.render(messages[:i], None, True, keep)
        full = BUNDLED.render(messages[: i + 1], None, False, keep)
        text = "".join(str(p.content) for p in row)
        assert text == full.rstrip("\n") and text.startswith(prompt)
        assert [p.trained for p in row] == [False] * (len(row) - 1) + [True]
        assert text[: -len(str(row[-1].content))] == prompt
    # Every turn of the whole conversation is trained on, and found as a part of its own.
    assert sum(p.trained for p in talk.whole()) == len(said)
    # A chain holds every turn as it was generated, whatever the template does to past turns.
    chains = talk.concat()
    assert len(chains) == 1
    written = [p.content for p in chains[0] if p.trained]
    assert written == [row[-1].content for row in rows]
    if not talk.breaks:
        assert "".join(str(p.content) for p in chains[0]) == "".join(
            str(p.content) for p in rows[-1]
        )


@settings(max_examples=40, deadline=None)
@given(conversations())
def test_roles_of_parts_are_those_of_messages(messages: list[dict[str, Any]]) -> None:
    talk = rendered(messages, True)
    for row in (talk.whole(), *talk.individual(), *talk.concat()):
        assert {p.role for p in row} <= {m["role"] for m in messages}
        assert all(p.role == "assistant" for p in row if p.trained)


@given(st.text("ab", max_size=9), st.text("ab", max_size=9))
def test_common_prefix_of_texts(a: str, b: str) -> None:
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    assert common(a, b) == (min(len(a), len(b)) if expected is None else expected)


THOUGHTFUL = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "1", "reasoning_content": "hm"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "2", "reasoning_content": "well"},
    {"role": "user", "content": "three"},
    {"role": "assistant", "content": "3"},
]


def test_a_template_that_drops_reasoning_breaks_prefixes_and_says_where(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"messages": THOUGHTFUL}])
    dropped = read(path, expand="turn").prefix
    assert dropped is not None
    assert (dropped.conversations, dropped.turns, dropped.broken) == (1, 2, 2)
    assert dropped.first is not None and "a.jsonl, row 0 (line 1), message 1" in dropped.first
    lost = ["<think>\nhm\n</think>\n\n1<|im_end|>\n", "<think>\nwell\n</think>\n\n2<|im_end|>\n"]
    assert dropped.lost_tokens == sum(len(ids) for ids in BUNDLED.encode_batch(lost))
    kept = read(path, expand="turn", keep_thinking=True).prefix
    assert kept is not None and (kept.broken, kept.first, kept.lost_tokens) == (0, None, 0)


def test_styles_of_turns(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"messages": THOUGHTFUL, "task_id": "t"}] * 2)
    individual = read(path, expand="turn")
    assert len(individual.rows) == 6 and individual.rows.n_groups == 1
    assert individual.records.tolist() == [0, 0, 0, 1, 1, 1]
    assert "<think>\nhm" in texts(individual)[0] and "<think>\nhm" not in texts(individual)[1]
    chains = read(path, expand="turn", style="concat")
    assert len(chains.rows) == 2
    text = texts(chains)[0]
    assert text.index("<think>\nhm") < text.index("<think>\nwell") < text.index("3<|im_end|>")
    mask, tokens = chains.rows.loss_mask, chains.rows.tokens
    assert mask is not None
    trained = chains.rows.text(
        tokens[: chains.rows.lengths[0]][mask[: chains.rows.lengths[0]] == 1]
    )
    assert trained == (
        "<think>\nhm\n</think>\n\n1<|im_end|><think>\nwell\n</think>\n\n2<|im_end|>"
        "<think>\n\n</think>\n\n3<|im_end|>"
    )


def test_prompt_lengths_are_the_tokens_before_the_first_turn(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [tool_talk(1, 0)])
    for settings_ in ({}, {"expand": "turn"}, {"expand": "turn", "style": "concat"}):
        loaded = read(path, **settings_)
        assert loaded.prompt_lengths is not None and loaded.rows.loss_mask is not None
        for row, length in enumerate(loaded.prompt_lengths.tolist()):
            mask = loaded.rows.loss_mask[loaded.rows.offsets[row] : loaded.rows.offsets[row + 1]]
            assert int(mask.argmax()) == length and mask.any()


def test_rows_of_one_conversation_share_all_but_the_new(tmp_path: Path) -> None:
    """With reasoning kept, each turn's row starts with the row before, token by token."""
    record = tool_talk(1, 0, turns=4)
    for message in record["traj"]:
        message["reasoning_content"] = "let me see"
    path = write_lines(tmp_path / "a.jsonl", [record])
    rows = list(read(path, expand="turn", keep_thinking=True).rows)
    assert len(rows) == 4
    for before, after in pairwise(rows):
        np.testing.assert_array_equal(after[: len(before)], before)


def test_tokens_by_role_add_up(tmp_path: Path) -> None:
    loaded = read(write_lines(tmp_path / "a.jsonl", [tool_talk(t, 0) for t in range(3)]))
    assert set(loaded.role_tokens) == {"system", "user", "assistant", "tool"}
    assert sum(loaded.role_tokens.values()) == loaded.rows.n_tokens


def test_parts_are_joined_where_the_tokenizer_may_merge_them() -> None:
    parts = [Part(text, "user", False) for text in ("a\n", "\nb", "<|im_end|>", "\n\n", "c")]
    made = joined(
        [*parts, Part("d", "assistant", True), Part("e", "user", False)], BUNDLED.dividers
    )
    assert [p.content for p in made] == ["a\n\nb", "<|im_end|>", "\n\nc", "d", "e"]


class TestMessages:
    """Shapes of messages that are understood."""

    def of(self, *messages: Any) -> list[dict[str, Any]]:
        return normalised(list(messages), HERE, "messages")[0]

    def test_sharegpt(self) -> None:
        found = self.of({"from": "human", "value": "a"}, {"from": "gpt", "value": "b"})
        assert [m["role"] for m in found] == ["user", "assistant"]

    def test_content_parts_and_reasoning(self) -> None:
        said = {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}, "b"],
        }
        assert self.of({"role": "user", "content": "x"}, said)[1] == {
            "role": "assistant",
            "content": "ab",
            "reasoning_content": "t",
        }

    def test_images_are_left_out_and_reported(self) -> None:
        image = {"type": "image_url", "image_url": {"url": "x"}}
        user = {"role": "user", "content": [image, {"type": "text", "text": "a"}]}
        found, left_out, _ = normalised([user], HERE, "messages")
        assert left_out and found[0]["content"] == "a"

    def test_the_old_function_call(self) -> None:
        call = {"role": "assistant", "content": None, "function_call": {"name": "f"}}
        found = self.of({"role": "user", "content": "x"}, call)
        assert found[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}

    def test_json_text(self) -> None:
        text = json.dumps([{"role": "developer", "content": "s"}, {"role": "user", "content": "u"}])
        found = normalised(text, HERE, "messages").messages
        assert [m["role"] for m in found] == ["system", "user"]

    def test_empty_columns_of_arrow_are_absent(self) -> None:
        message = {"role": "user", "content": "x", "tool_calls": None, "name": None}
        assert self.of(message) == [{"role": "user", "content": "x"}]


def test_a_template_that_refuses_is_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    from packing.sources.chat.tokenizer_files import BUNDLED_FOLDER

    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((BUNDLED_FOLDER / name).read_bytes())
    (folder / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    path = write_lines(tmp_path / "a.jsonl", [{"messages": THOUGHTFUL}])
    with pytest.raises(
        SourceError, match=r"a.jsonl, row 0 \(line 1\), field 'messages': .*alternate"
    ):
        read(path, tokenizer=str(folder))
