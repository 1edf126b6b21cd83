"""Chats as other people's files have them: ids and masks by another route, kind by kind."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from packing.sources.build import Origin
from packing.sources.chat.messages import normalised
from packing.sources.chat.template import Conversation, Renderer
from packing.sources.chat.tokenizer_files import BUNDLED_FOLDER, load_tokenizer
from packing.sources.errors import SourceError, Where
from tests.packing.chat_families import CHATML, FAMILIES, Family, said
from tests.packing.source_files import own_cache, read, write_lines
from tests.packing.sources.test_chat_families import row, saved, tokens_of

__all__ = ["own_cache"]

USER = {"role": "user", "content": "Weather?"}
ARGUMENTS = {"city": "Bonn", "days": 2}
PLAIN = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
END = "{{ '<|im_end|>\n' }}{% endfor %}"
ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"


def family(template: str, special: tuple[str, ...] = CHATML, eos: str = "<|im_end|>") -> Family:
    return Family(template, special, eos, {})


def rows_of(
    folder: Path, record: Any, made: Family, **settings: Any
) -> list[tuple[list[int], list[int]]]:
    tokenizer, _ = saved(folder / "tokenizer", made)
    loaded = read(write_lines(folder / "a.jsonl", [record]), tokenizer=str(tokenizer), **settings)
    return [row(loaded, n) for n in range(len(loaded.rows))]


def expected(folder: Path, text: str, made: Family) -> tuple[list[int], list[int]]:
    return tokens_of(text, saved(folder / "tokenizer", made)[1])


def trained_text(ids: list[int], mask: list[int], theirs: PreTrainedTokenizerFast) -> str:
    return str(theirs.decode([t for t, on in zip(ids, mask, strict=True) if on]))


class TestToolCalls:
    """Arguments are objects before a template sees them, whoever wrote the file."""

    QWEN = FAMILIES["qwen2.5"]
    TEXT = (
        "<|im_start|>system\nYou are Q.<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n"
        '<|im_start|>assistant\n⟦<tool_call>\n{"name": "look", "arguments": %s}\n'
        "</tool_call><|im_end|>⟧\n"
    )

    @pytest.mark.parametrize(
        "message",
        [
            {"tool_calls": [{"function": {"name": "look", "arguments": json.dumps(ARGUMENTS)}}]},
            {"tool_calls": [{"function": {"name": "look", "arguments": ARGUMENTS}}]},
            {"tool_calls": [{"name": "look", "arguments": '{"city":"Bonn","days":2}'}]},
            {"function_call": {"name": "look", "arguments": json.dumps(ARGUMENTS, indent=1)}},
            {"content": [{"type": "tool_use", "id": "t", "name": "look", "input": ARGUMENTS}]},
            {
                "role": "function_call",
                "content": json.dumps({"name": "look", "arguments": ARGUMENTS}),
            },
            {"tool_calls": json.dumps([{"function": {"name": "look", "arguments": ARGUMENTS}}])},
        ],
    )
    def test_every_form_is_the_same_row(self, message: dict[str, Any], tmp_path: Path) -> None:
        record = {"messages": [USER, {"role": "assistant", "content": None, **message}]}
        text = self.TEXT % '{"city": "Bonn", "days": 2}'
        assert rows_of(tmp_path, record, self.QWEN) == [expected(tmp_path, text, self.QWEN)]

    @pytest.mark.parametrize("broken", ['{"city": ', "no JSON", '["Bonn"]', "7"])
    def test_what_is_no_object_stays_text(self, broken: str, tmp_path: Path) -> None:
        call = {"function": {"name": "look", "arguments": broken}}
        record = {"messages": [USER, said("", tool_calls=[call])]}
        text = self.TEXT % json.dumps(broken)
        assert rows_of(tmp_path, record, self.QWEN) == [expected(tmp_path, text, self.QWEN)]

    @pytest.mark.parametrize(
        "written",
        ["'x' + a", "a", "'x' ~ a", "a | string", "a if a is string else raise_exception('text')"],
    )
    def test_a_template_that_wants_text_gets_it(self, written: str, tmp_path: Path) -> None:
        body = "{% if m.tool_calls %}{% set a = m.tool_calls[0].function.arguments %}"
        made = family(PLAIN + body + "{{ " + written + " }}{% endif %}" + END + ASK)
        call = {"function": {"name": "look", "arguments": '{"city":"Bonn"}'}}
        (found,) = rows_of(tmp_path, {"messages": [USER, said("", tool_calls=[call])]}, made)
        text = "x" * ("'x'" in written) + '{"city":"Bonn"}'
        assert found == expected(
            tmp_path,
            f"<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n⟦{text}<|im_end|>⟧\n",
            made,
        )

    def test_nulls_of_typed_columns_go_and_written_ones_stay(self, tmp_path: Path) -> None:
        calls = [{"name": "look", "arguments": a} for a in ({"city": "Bonn"}, {"days": 2})]
        talks = [[USER, said("", tool_calls=[{"function": c}])] for c in calls]
        tool: list[Any] = [
            {"type": "function", "function": {"name": "look", "strict": True}},
            {"type": "function", "function": {"name": "see", "description": "d"}},
        ]
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"messages": talks, "tools": [tool, tool]}), path)
        folder, theirs = saved(tmp_path / "tokenizer", self.QWEN)
        loaded = read(path, tokenizer=str(folder))
        for number, talk in enumerate(talks):
            ids = theirs.apply_chat_template(talk, tools=tool, tokenize=True, return_dict=False)
            assert loaded.rows[number].tolist() == ids
        written = {"city": None}
        call = {"function": {"name": "look", "arguments": json.dumps(written)}}
        other = {"function": {"name": "look", "arguments": written}}
        for form in (call, other):
            (found,) = rows_of(
                tmp_path, {"messages": [USER, said("", tool_calls=[form])]}, self.QWEN
            )
            assert found == expected(tmp_path, self.TEXT % '{"city": null}', self.QWEN)

    def test_anthropics_results_are_messages_of_the_tool(self, tmp_path: Path) -> None:
        result = {"type": "tool_result", "tool_use_id": "t"}
        talk = [
            USER,
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {**result, "content": "rain"},
                    {**result, "content": [{"type": "text", "text": "wind"}]},
                    {"type": "text", "text": "And?"},
                ],
            },
            said("Stay."),
        ]
        tools = [{"name": "look", "description": "d", "input_schema": {"type": "object"}}]
        (found,) = rows_of(tmp_path, {"messages": talk, "tools": tools}, self.QWEN)
        made = '{"type": "function", "function": {"name": "look", "description": "d", '
        text = (
            f"<|im_start|>system\nYou are Q.\n{made}"
            '"parameters": {"type": "object"}}}<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n'
            "<|im_start|>assistant\n⟦I look.\n<tool_call>\n"
            '{"name": "look", "arguments": {}}\n</tool_call><|im_end|>⟧\n<|im_start|>user\n'
            "<tool_response>\nrain\n</tool_response>\n<tool_response>\nwind\n</tool_response>"
            "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"
            "⟦Stay.<|im_end|>⟧\n"
        )
        assert found == expected(tmp_path, text, self.QWEN)


class TestGenerated:
    """What was generated stands after the generation prompt as it is."""

    THINKING = FAMILIES["qwen3-thinking"]
    CHATML = FAMILIES["chatml"]

    @pytest.mark.parametrize(
        "answer",
        ["hm\n</think>\n\n4", "4", '["a", "b"]x', "  4\n", "<think>\n\n</think>\n\n4"],
    )
    @pytest.mark.parametrize("end", ["", "<|im_end|>"])
    def test_text_after_messages(self, answer: str, end: str, tmp_path: Path) -> None:
        record = {"prompt": [{"role": "user", "content": "2+2?"}], "completion": answer + end}
        text = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n"
        found = rows_of(tmp_path, record, self.THINKING)
        assert found == [expected(tmp_path, f"{text}⟦{answer}<|im_end|>⟧", self.THINKING)]

    def test_raw_reasoning_in_a_turn_is_as_it_was_generated(self, tmp_path: Path) -> None:
        made = FAMILIES["deepseek-r1"]
        for raw in ("<think>\nhm\n</think>\n\n4", "hm\n</think>\n\n4"):
            record = {"messages": [{"role": "user", "content": "2+2?"}, said(raw)]}
            text = (
                "<｜begin▁of▁sentence｜><｜User｜>2+2?<｜Assistant｜><think>\n"
                "⟦hm\n</think>\n\n4<｜end▁of▁sentence｜>⟧"
            )
            found = rows_of(tmp_path, record, made, expand="turn")
            assert found == [expected(tmp_path, text, made)]

    def test_a_completion_that_stopped_at_the_padding_token_has_its_end(
        self, tmp_path: Path
    ) -> None:
        path = write_lines(
            tmp_path / "a.jsonl", [{"question": "a", "completion": "b<|endoftext|>"}]
        )
        loaded = read(path)
        assert loaded.rows.text(loaded.rows[0]).endswith("assistant\nb<|endoftext|>")

    @pytest.mark.parametrize("question", ["question", "prompt"])
    def test_samples_of_a_question(self, question: str, tmp_path: Path) -> None:
        asked = "2+2?" if question == "question" else [{"role": "user", "content": "2+2?"}]
        record = {question: asked, "completions": ["4", "5<|im_end|>\n"]}
        head = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
        assert rows_of(tmp_path, record, self.CHATML) == [
            expected(tmp_path, f"{head}⟦4<|im_end|>⟧", self.CHATML),
            expected(tmp_path, f"{head}⟦5<|im_end|>⟧\n", self.CHATML),
        ]

    @pytest.mark.parametrize("expand", ["conversation", "turn"])
    @pytest.mark.parametrize("completion", ["Bye.", [said("Bye.")]])
    def test_turns_of_the_prompt_are_context(
        self, completion: Any, expand: str, tmp_path: Path
    ) -> None:
        shots = [{"role": "user", "content": "a"}, said("b"), {"role": "user", "content": "c"}]
        found = rows_of(
            tmp_path, {"prompt": shots, "completion": completion}, self.CHATML, expand=expand
        )
        text = (
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n⟦Bye.<|im_end|>⟧"
        )
        whole = expand == "conversation" and isinstance(completion, list)
        assert found == [expected(tmp_path, text + "\n" * whole, self.CHATML)]

    def test_a_begun_answer_is_continued(self, tmp_path: Path) -> None:
        begun = [{"role": "user", "content": "a"}, said("Sure: ")]
        found = rows_of(tmp_path, {"prompt": begun, "completion": " yes"}, self.CHATML)
        text = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nSure:⟦ yes<|im_end|>⟧"
        assert found == [expected(tmp_path, text, self.CHATML)]

    def test_a_prompt_that_a_template_wrote_ends_as_the_template_ends_turns(
        self, tmp_path: Path
    ) -> None:
        gemma = FAMILIES["gemma-2"]
        head = "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
        found = rows_of(tmp_path, {"prompt": head, "completion": "Ho"}, gemma)
        assert found == [expected(tmp_path, f"{head}⟦Ho<end_of_turn>⟧", gemma)]
        found = rows_of(tmp_path, {"prompt": "Hi", "completion": "Ho"}, gemma)
        assert found == [expected(tmp_path, "Hi⟦Ho<eos>⟧", gemma)]


REWRITES = {
    "a counter": "{{ messages | length }}{{ ' so far\n' }}" + PLAIN + END + ASK,
    "a window": "{% for m in messages[-2:] %}" + PLAIN.partition("%}")[2] + END + ASK,
    "a clock": "{{ range(messages | length) | list }}" + PLAIN + END + ASK,
    "a summary at the end": PLAIN + END + "{{ 'turns: ' ~ messages | length ~ '\n' }}" + ASK,
    "newest first": "{% for m in messages | reverse %}" + PLAIN.partition("%}")[2] + END + ASK,
}


ONE_TWO_THREE = [
    {"role": "user", "content": "one"},
    said("first"),
    {"role": "user", "content": "two"},
    said("second"),
    {"role": "user", "content": "three"},
    said("third"),
]


class TestRewritingTemplates:
    """A prompt that the next text does not start with: only the newest turn is trained."""

    @pytest.mark.parametrize("name", [n for n in REWRITES if n != "newest first"])
    @pytest.mark.parametrize("style", ["individual", "concat"])
    def test_each_turn_is_trained_once(self, name: str, style: str, tmp_path: Path) -> None:
        made = family(REWRITES[name])
        folder, theirs = saved(tmp_path / "tokenizer", made)
        path = write_lines(tmp_path / "a.jsonl", [{"messages": ONE_TWO_THREE}])
        loaded = read(path, tokenizer=str(folder), expand="turn", style=style)
        trained: list[str] = []
        for n in range(len(loaded.rows)):
            trained += trained_text(*row(loaded, n), theirs).split("<|im_end|>")[:-1]
        assert trained == ["first", "second", "third"]
        if style == "individual":
            for n, at in enumerate((1, 3, 5)):
                prompt = theirs.apply_chat_template(
                    ONE_TWO_THREE[:at], add_generation_prompt=True, tokenize=True, return_dict=False
                )
                assert row(loaded, n)[0][: len(prompt)] == prompt

    @pytest.mark.parametrize("name", REWRITES)
    def test_the_whole_trains_no_user(self, name: str, tmp_path: Path) -> None:
        made = family(REWRITES[name])
        folder, theirs = saved(tmp_path / "tokenizer", made)
        path = write_lines(tmp_path / "a.jsonl", [{"messages": ONE_TWO_THREE}])
        loaded = read(path, tokenizer=str(folder))
        ids, mask = row(loaded, 0)
        assert ids == theirs.apply_chat_template(ONE_TWO_THREE, tokenize=True, return_dict=False)
        text = trained_text(ids, mask, theirs)
        assert text.split("<|im_end|>")[:-1] in (
            ["first", "second", "third"],
            ["third"],  # the window
            ["third", "second", "first"],
        ) or (text == "" and "turn_lost" in {p.kind for p in loaded.problems})
        assert not re.search("one|two|three", text)


def test_a_clock_stands_still_for_a_load(tmp_path: Path) -> None:
    made = family("{{ strftime_now('%H:%M:%S.%f') }}" + PLAIN + END + ASK)
    folder, _ = saved(tmp_path / "tokenizer", made)
    record = {"messages": [USER, said("b")]}
    path = write_lines(tmp_path / "a.jsonl", [record] * 3)
    loaded = read(path, tokenizer=str(folder), expand="turn")
    assert loaded.rows.n_groups == 1 and len({r.tobytes() for r in loaded.rows}) == 1


FAKES = (
    "<|im_end|>\n<|im_start|>assistant\nfake",
    "<|im_start|>assistant\n",
    "fake<|im_end|>",
    "\n\n<|im_end|>\n",
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(FAKES), st.sampled_from(FAKES)), min_size=1, max_size=3))
def test_text_that_looks_like_a_turn_deceives_nobody(pairs: list[tuple[str, str]]) -> None:
    """Contents with headers and end tokens in them: masks follow the messages all the same."""
    tokenizer = load_tokenizer("bundled")
    messages = [m for u, a in pairs for m in ({"role": "user", "content": u}, said(a))]
    talk = Conversation(Renderer(tokenizer, None, True, Where("a")), messages, "messages")
    trained = [str(p.content) for p in talk.whole() if p.trained]
    assert [
        t.removesuffix("<|im_end|>").removeprefix("<think>\n\n</think>\n\n") for t in trained
    ] == [a for _, a in pairs]


class TestBoundaries:
    """Tokens merge across any boundary that the tokenizer merges across, in every row."""

    BARE = "{% for m in messages %}{{ m.content + '\n' }}{% endfor %}"

    def test_late_in_a_file(self, tmp_path: Path) -> None:
        calm = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, said("c")]
        merging = [
            {"role": "system", "content": "It is"},
            {"role": "user", "content": "\n\nHow\n"},
            {"role": "user", "content": "\n  many"},
            said("c"),
        ]
        for template in (self.BARE, PLAIN + "{{ '\n' }}{% endfor %}" + ASK):
            made = family(template)
            folder, theirs = saved(tmp_path / "tokenizer", made)
            records = [{"prompt": calm[:2], "completion": "c"}] * 70
            path = write_lines(
                tmp_path / "a.jsonl", [*records, {"prompt": merging[:3], "completion": "c"}]
            )
            loaded = read(path, tokenizer=str(folder))
            head = theirs.apply_chat_template(
                merging[:3], add_generation_prompt=True, tokenize=True, return_dict=False
            )
            assert loaded.rows[70].tolist()[: len(head)] == head

    @settings(max_examples=80, deadline=None)
    @given(st.data())
    def test_cutting_never_changes_tokens(self, data: st.DataObject) -> None:
        tokenizer = load_tokenizer("bundled")
        pieces = st.sampled_from(["<|im_end|>", "<|im_start|>", "\n", " a", "the", "  ", "<", "|>"])
        before = "".join(data.draw(st.lists(pieces, max_size=5)))
        after = "".join(data.draw(st.lists(pieces, max_size=5)))
        one, two, both = tokenizer.encode_batch([before, after, before + after])
        if tokenizer.dividers.between(before, after):
            np.testing.assert_array_equal(np.concatenate([one, two]), both)

    def test_a_token_that_takes_the_space_beside_it_divides_nothing(self, tmp_path: Path) -> None:
        import tokenizers

        backend = tokenizers.Tokenizer.from_file(str(BUNDLED_FOLDER / "tokenizer.json"))
        backend.add_special_tokens(
            [
                tokenizers.AddedToken("<greedy>", rstrip=True),
                tokenizers.AddedToken("<left>", lstrip=True),
            ]
        )
        backend.save(str(tmp_path / "tokenizer.json"))
        dividers = load_tokenizer(str(tmp_path)).dividers
        assert not dividers.between("a<greedy>", "\nb") and dividers.between("a", "<greedy>")
        assert not dividers.between("a ", "<left>") and dividers.between("<left>", "\nb")


class TestMasks:
    @pytest.mark.parametrize(
        ("key", "off", "on"),
        [("weight", 0, 1), ("loss", False, True), ("train", False, True), ("weight", 0.0, 0.5)],
    )
    def test_a_message_says_whether_it_is_trained(
        self, key: str, off: Any, on: Any, tmp_path: Path
    ) -> None:
        talk = [
            {"role": "user", "content": "a", key: on},
            said("b", **{key: off}),
            {"role": "user", "content": "c"},
            said("d", **{key: on}),
            {"role": "user", "content": "e"},
            said("f"),
        ]
        head = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        text = (
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n⟦d<|im_end|>⟧\n"
            "<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\n⟦f<|im_end|>⟧\n"
        )
        made = FAMILIES["chatml"]
        assert rows_of(tmp_path, {"messages": talk}, made) == [
            expected(tmp_path, head + text, made)
        ]
        turns = rows_of(tmp_path, {"messages": talk}, made, expand="turn")
        assert len(turns) == 2 and sum(turns[0][1]) == sum(turns[1][1]) == 2

    def test_a_weight_that_is_no_number_is_named(self) -> None:
        with pytest.raises(SourceError, match=r"messages.0.weight': is text; write 0 or 1"):
            normalised([said("b", weight="much")], Where("a"), "messages")


def test_where_tokens_come_from(tmp_path: Path) -> None:
    ids = [{"input_ids": [1, 2, 3]}] * 2
    loaded = read(write_lines(tmp_path / "ids.jsonl", ids))
    assert loaded.origins.tolist() == [Origin.GENERATED] * 2
    assert loaded.origin_counts == {"as generated": 2}
    text = [{"messages": [USER, said("b")]}, {"messages": [USER, said("c")]}]
    loaded = read(write_lines(tmp_path / "text.jsonl", text))
    assert loaded.origin_counts == {"re-tokenised": 2}
    length = len(load_tokenizer("bundled").encode_batch(["a"])[0])
    dump = {"task_id": "t", "prompt": "a", "completion": "a", "prompt_len": length}
    lines = [dump | {"seqlen": 2 * length}, dump | {"seqlen": 9}]
    loaded = read(write_lines(tmp_path / "t.jsonl", lines))
    assert loaded.origins.tolist() == [Origin.CHECKED, Origin.RETOKENISED]
