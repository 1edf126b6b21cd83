"""Kinds of mistakes that rows must not have: text taken for data, padding trained, groups merged.

Expected ids come from the tokenizers library, expected prompts from the same conversation written
as plain ``prompt`` and ``completion`` columns.
"""

from __future__ import annotations

import json
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

import packing.sources
from packing.sources.chat.tokenizer_files import load_tokenizer
from packing.sources.errors import SourceError, Where
from packing.sources.load import load_here as load
from packing.sources.loaded import Loaded
from packing.sources.problems import Flag
from packing.sources.records.given import given_ids, padding_of
from packing.sources.records.values import packed_kind
from packing.sources.roles import Roles, recognise
from packing.sources.spec import SourceSpec
from tests.packing.source_files import own_cache, read, texts, tokens, write_lines

__all__ = ["own_cache"]

BUNDLED = Path(packing.sources.__path__[0]) / "assets" / "tokenizer" / "tokenizer.json"
END = "<|im_end|>"


def encoded(text: str) -> list[int]:
    """Ids by the library alone."""
    made: list[int] = Tokenizer.from_file(str(BUNDLED)).encode(text, add_special_tokens=False).ids
    return made


def masks(loaded: Loaded) -> list[list[int]]:
    mask = loaded.rows.loss_mask
    assert mask is not None
    cuts = loaded.rows.offsets.tolist()
    return [mask[a:b].tolist() for a, b in pairwise(cuts)]


class TestTextIsText:
    """1: what looks like data inside of a text is text."""

    @pytest.mark.parametrize(
        "completion", ["[1, 2, 3]", '["a", "b"]', '{"answer": 4}', "[1]", '[{"role": "user"}]']
    )
    @pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
    def test_a_completion_that_looks_like_json(
        self, completion: str, ending: str, tmp_path: Path
    ) -> None:
        path = tmp_path / f"a.{ending}"
        record = {"prompt": "go", "completion": completion}
        if ending == "jsonl":
            write_lines(path, [record])
        elif ending == "parquet":
            pq.write_table(pa.Table.from_pylist([record]), path)
        else:
            quoted = completion.replace('"', '""')
            path.write_text(f'prompt,completion\ngo,"{quoted}"\n')
        assert tokens(read(path)) == [encoded("go") + encoded(completion + END)]

    def test_in_every_text_role(self, tmp_path: Path) -> None:
        for role, record in {
            "text": {"text": "[1, 2]"},
            "prompt": {"prompt": "[1, 2]", "completion": "x"},
            "question": {"question": "[1, 2]", "answer": "x"},
            "content": {"messages": [{"role": "user", "content": "[1, 2]"}]},
        }.items():
            assert "[1, 2]" in texts(read(write_lines(tmp_path / f"{role}.jsonl", [record])))[0]

    def test_one_row_of_a_column_does_not_decide(self, tmp_path: Path) -> None:
        first = {"prompt": "go", "completion": "[1]"}
        rows = [first, {"prompt": "go", "completion": "two"}]
        assert [
            t.removesuffix(END) for t in texts(read(write_lines(tmp_path / "a.jsonl", rows)))
        ] == [
            "go[1]",
            "gotwo",
        ]

    def test_a_whole_column_of_messages_as_text_is_messages(self, tmp_path: Path) -> None:
        talk = [{"role": "user", "content": "hi"}]
        packed = [{"prompt": json.dumps(talk), "completion": "ho"}] * 2
        plain = [{"prompt": talk, "completion": "ho"}] * 2
        loaded = read(write_lines(tmp_path / "a.jsonl", packed))
        assert tokens(loaded) == tokens(read(write_lines(tmp_path / "b.jsonl", plain)))
        assert "JSON text" in " ".join(loaded.provenance.notes)
        broken = [*packed, {"prompt": "[unclosed", "completion": "x"}]
        # Not the whole column: then it is text.
        assert "[unclosed" in texts(read(write_lines(tmp_path / "c.jsonl", broken)))[2]

    def test_ids_in_cells_of_a_table_without_lists(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text('prompt_ids,completion_ids\n"[1, 2]","[3]"\n')
        assert tokens(read(tmp_path / "a.csv")) == [[1, 2, 3]]

    @settings(max_examples=60, deadline=None)
    @given(
        st.recursive(
            st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
        )
    )
    def test_no_text_is_ids_or_samples_under_a_singular_name(self, value: Any) -> None:
        kind = packed_kind([json.dumps(value)], "completion", "completion")
        assert kind in (None, "messages")


def dumped(folder: Path, segments: list[tuple[str, str]], lengths: list[int]) -> Path:
    made = [{"role": r, "len": n, "text": t} for (r, t), n in zip(segments, lengths, strict=True)]
    record = {
        "task_id": 1,
        "sample_idx": 0,
        "seqlen": sum(lengths),
        "prompt_len": lengths[0],
        "prompt": segments[0][1],
        "completion": "".join(t for _, t in segments[1:]),
        "reward": 1.0,
        "segments": made,
    }
    path = folder / "rollout" / "0" / "1.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(path, [record])
    return folder


class TestSegments:
    """2: AReaL's dumps with several generations in a row."""

    CASES = (
        [("prompt", "Ask: "), ("gen", "call it"), ("context", " tool says 42 "), ("gen", "so 42")],
        # Texts that the tokenizer would merge across their boundary.
        [("prompt", "hel"), ("gen", "lo wor"), ("context", "ld aga"), ("gen", "in")],
        [("prompt", "x"), ("context", "y"), ("gen", "z"), ("gen", f"w{END}"), ("context", "\n")],
    )

    @pytest.mark.parametrize("segments", CASES)
    def test_each_is_encoded_alone_and_only_what_was_generated_is_trained(
        self, segments: list[tuple[str, str]], tmp_path: Path
    ) -> None:
        apart = [encoded(text) for _, text in segments]
        folder = dumped(tmp_path, segments, [len(ids) for ids in apart])
        loaded = read(folder)
        assert tokens(loaded) == [list(chain.from_iterable(apart))]
        assert masks(loaded) == [
            [int(r == "gen") for (r, _), ids in zip(segments, apart, strict=True) for _ in ids]
        ]
        assert not loaded.problems

    def test_a_segment_of_another_length_is_told(self, tmp_path: Path) -> None:
        segments = self.CASES[0]
        lengths = [len(encoded(text)) for _, text in segments]
        lengths[1], lengths[2] = lengths[1] + 1, lengths[2] - 1  # the sum is right
        loaded = read(dumped(tmp_path, segments, lengths))
        assert loaded.flags[0] & Flag.LENGTH_DIFFERS

    def test_what_was_evaluated_is_not_what_was_trained(self, tmp_path: Path) -> None:
        segments = self.CASES[0]
        lengths = [len(encoded(text)) for _, text in segments]
        dumped(tmp_path, segments, lengths)
        (tmp_path / "eval-rollout" / "0").mkdir(parents=True)
        evaluated = (tmp_path / "rollout" / "0" / "1.jsonl").read_text().replace("42", "43")
        (tmp_path / "eval-rollout" / "0" / "1.jsonl").write_text(evaluated)
        loaded = read(tmp_path)
        assert len(loaded.rows) == 1 and "42" in texts(loaded)[0]
        assert loaded.provenance.left_out_files == ("eval-rollout/0/1.jsonl",)
        for asked in (
            read(tmp_path, versions=("eval-rollout/0",)),
            read(tmp_path / "eval-rollout"),
        ):
            assert "43" in texts(asked)[0] and len(asked.rows) == 1


TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
ANSWER = {"role": "assistant", "content": "2"}
ANSWERED: dict[str, dict[str, Any]] = {
    "response": {"messages": TALK, "response": "2"},
    "completions": {"messages": TALK, "completions": ["2"]},
    "output as a message": {"messages": TALK, "output": ANSWER},
    "choices": {"messages": TALK, "choices": [{"index": 0, "message": ANSWER}]},
    "choices of text": {"messages": TALK, "choices": [{"text": "2"}]},
    "request and response": {
        "request": {"messages": TALK},
        "response": {"choices": [{"message": ANSWER}]},
    },
    "body in body": {
        "request": {"body": {"messages": TALK}},
        "response": {"body": {"choices": [{"message": ANSWER}]}},
    },
    "inputs and outputs": {"inputs": {"messages": TALK}, "outputs": {"output": "2"}},
    "answer repeats the prompt": {
        "inputs": {"messages": TALK},
        "outputs": {"messages": [*TALK, ANSWER]},
    },
    "system column": {"system": "Be brief.", "instruction": "1+1?", "output": "2"},
    "system prompt": {"system_prompt": "Be brief.", "question": "1+1?", "response": "2"},
    "ShareGPT": {
        "conversations": [
            {"from": "system", "value": "Be brief."},
            {"from": "human", "value": "1+1?"},
        ],
        "answer": "2",
    },
}


class TestWhereTheAnswerStands:
    """7: all of the prompt, then what was generated, wherever it stands."""

    @pytest.mark.parametrize("name", ANSWERED)
    def test_it_is_the_completion_of_the_whole_prompt(self, name: str, tmp_path: Path) -> None:
        plain = {"prompt": TALK, "completion": "2"}
        answers = [{"prompt": TALK, "completion": [ANSWER]}]
        expected = read(write_lines(tmp_path / "plain.jsonl", [plain]))
        as_messages = read(write_lines(tmp_path / "messages.jsonl", answers))
        made = read(write_lines(tmp_path / "a.jsonl", [ANSWERED[name]]))
        assert tokens(made)[0] in (tokens(expected)[0], tokens(as_messages)[0])
        assert made.rows.loss_mask is not None and made.rows.loss_mask.any()
        trained = made.rows.tokens[made.rows.loss_mask != 0]
        assert made.rows.text(trained).split("</think>")[-1].strip().removesuffix(END) == "2"

    @pytest.mark.parametrize(
        ("record", "prompt"),
        [
            ({"instruction": "Add.", "input": "1 1", "output": "2"}, "Add.\n1 1"),
            ({"question": "Add?", "context": "1 1", "answer": "2"}, "1 1\n\nAdd?"),
            ({"instruction": "Add.", "context": "1 1", "response": "2"}, "Add.\n1 1"),
        ],
    )
    def test_columns_of_a_prompt_in_their_order(
        self, record: dict[str, Any], prompt: str, tmp_path: Path
    ) -> None:
        plain = {"prompt": [{"role": "user", "content": prompt}], "completion": "2"}
        expected = read(write_lines(tmp_path / "plain.jsonl", [plain]))
        assert tokens(read(write_lines(tmp_path / "a.jsonl", [record]))) == tokens(expected)


@pytest.fixture(scope="module")
def begins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tokenizer]:
    folder = tmp_path_factory.mktemp("begins")
    for file in BUNDLED.parent.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    made = Tokenizer.from_file(str(BUNDLED))
    start = ("<|im_start|>", made.token_to_id("<|im_start|>"))
    made.post_processor = TemplateProcessing(single=f"{start[0]} $A", special_tokens=[start])
    made.save(str(folder / "tokenizer.json"))
    return folder, made


class TestPlainPrompts:
    """A prompt of plain text begins as the tokenizer's own encode lets it begin."""

    @pytest.mark.parametrize(
        ("prompt", "stripped"),
        [
            ("user\n1?\nassistant\n", True),
            (f"<|im_start|>user\n1?{END}\n<|im_start|>assistant\n", False),
            ("Who is the assistant", False),
            ("", False),
        ],
    )
    def test_special_tokens_that_were_left_out_are_told(
        self, prompt: str, stripped: bool, tmp_path: Path
    ) -> None:
        loaded = read(write_lines(tmp_path / "a.jsonl", [{"prompt": prompt, "completion": "2"}]))
        assert bool(loaded.flags[0] & Flag.STRIPPED) == stripped

    @pytest.mark.parametrize("text", ["1 + 1 = ", " x", "<|im_start|>user\n1?", "a<|im_start|>"])
    def test_ids_are_those_of_the_engine(
        self, begins: tuple[Path, Tokenizer], text: str, tmp_path: Path
    ) -> None:
        folder, made = begins
        once = made.encode(text).ids
        once = once[1:] if once[:1] == once[1:2] else once  # not twice
        settings: dict[str, Any] = {"tokenizer": str(folder)}
        for record in ({"prompt": text}, {"text": text + END}):
            loaded = read(write_lines(tmp_path / "a.jsonl", [record]), **settings)
            assert loaded.rows[0].tolist()[: len(once)] == once
        rows = [{"prompt": text, "completions": ["2", "3"]}]
        loaded = read(write_lines(tmp_path / "b.jsonl", rows), **settings)
        assert [r[: len(once)].tolist() for r in loaded.rows] == [once] * 2
        said = any("begin with <|im_start|>" in n for n in loaded.provenance.notes)
        assert said == (not text.startswith("<|im_start|>"))
        assert loaded.prompt_lengths is not None
        assert loaded.prompt_lengths.tolist() == [len(once)] * 2

    def test_chats_and_answers_alone_begin_as_they_are(
        self, begins: tuple[Path, Tokenizer], tmp_path: Path
    ) -> None:
        for record in ({"question": "1?", "answer": "2"}, {"completion": "2"}):
            path = write_lines(tmp_path / "a.jsonl", [record])
            assert tokens(read(path, tokenizer=str(begins[0]))) == tokens(read(path))


class TestMasksThatAreThere:
    """8: ids and masks of the file are the row's; padding is never trained."""

    IDS: tuple[tuple[dict[str, Any], list[int], list[int]], ...] = (
        (
            {
                "prompts": [0, 0, 5],
                "responses": [6, 7, 8, 0],
                "attention_mask": [0, 0, 1, 1, 1, 1, 0],
                "response_mask": [1, 0, 1, 0],
            },
            [5, 6, 7, 8],
            [0, 1, 0, 1],
        ),
        (
            {
                "input_ids": [0, 0, 5, 6, 7, 8, 0],
                "attention_mask": [0, 0, 1, 1, 1, 1, 0],
                "prompts": [0, 0, 5],
                "responses": [6, 7, 8, 0],
            },
            [5, 6, 7, 8],
            [0, 1, 1, 1],
        ),
        (
            {
                "prompt_ids": [5],
                "completion_ids": [6, 7, 2, 0, 0],
                "completion_mask": [1, 1, 1, 0, 0],
            },
            [5, 6, 7, 2],
            [0, 1, 1, 1],
        ),
        (
            {"prompt_ids": [5], "completion_ids": [6, 7, 8], "completion_mask": [0, 0, 0]},
            [5, 6, 7, 8],
            [0, 0, 0, 0],
        ),
        (
            {"prompt_token_ids": [5], "outputs": [{"token_ids": [6, 2], "text": "x"}]},
            [5, 6, 2],
            [0, 1, 1],
        ),
        (
            {"input_ids": [5, 6, 7, 0, 0], "labels": [-100, 6, 7, -100, -100]},
            [5, 6, 7],
            [0, 1, 1],
        ),
        (
            {"input_ids": [5, 6, 7, 9], "loss_mask": [False, True, True, False]},
            [5, 6, 7, 9],
            [0, 1, 1, 0],
        ),
    )

    @pytest.mark.parametrize("case", range(len(IDS)))
    @pytest.mark.parametrize("ending", ["jsonl", "parquet"])
    def test_they_are_used(self, case: int, ending: str, tmp_path: Path) -> None:
        record, ids, mask = self.IDS[case]
        path = tmp_path / f"a.{ending}"
        if ending == "jsonl":
            write_lines(path, [record])
        else:
            pq.write_table(pa.Table.from_pylist([record]), path)
        loaded = read(path)
        assert tokens(loaded) == [ids]
        trained = loaded.rows.loss_mask
        assert ([0] * len(ids) if trained is None else trained.tolist()) == mask

    # (records, named in them or by the tokenizer, rows, flags of each)
    PADDED: tuple[tuple[list[dict[str, Any]], list[list[int]], list[int]], ...] = (
        # All that follows what is trained is one id.
        ([{"input_ids": [5, 6, 0, 0], "loss_mask": [0, 1, 0, 0]}], [[5, 6]], [Flag.PADDING]),
        # A prompt may begin so: one row shows nothing.
        (
            [{"input_ids": [7, 7, 7, 6, 5], "loss_mask": [0, 0, 0, 0, 1]}],
            [[7, 7, 7, 6, 5]],
            [Flag.MAYBE_PADDED],
        ),
        # Rows of many widths that begin so are not padded to any of them.
        (
            [
                {"input_ids": [7] * n + [6, 5], "loss_mask": [0] * (n + 1) + [1]}
                for n in range(2, 9)
            ],
            [[7] * n + [6, 5] for n in range(2, 9)],
            [Flag.MAYBE_PADDED] * 7,
        ),
        # The file names the id.
        (
            [{"input_ids": [7, 7, 6, 5], "loss_mask": [0, 0, 0, 1], "pad_token_id": 7}],
            [[6, 5]],
            [Flag.PADDING],
        ),
        # Many rows show it, without any mask: prompts padded at their start, responses at the end.
        (
            [
                {"prompts": [0] * n + [6] * (6 - n), "responses": [5] * (6 - n) + [2] + [0] * n}
                for n in range(5)
            ],
            [[6] * (6 - n) + [5] * (6 - n) + [2] for n in range(5)],
            [0, *[Flag.PADDING] * 4],
        ),
        # The padding id also ends texts: one of it stays where no mask says otherwise.
        (
            [
                {"prompts": [8 + n], "responses": [5 + n] * (6 - n) + [2] * (n + 1)}
                for n in range(5)
            ],
            [[8 + n] + [5 + n] * (6 - n) + [2] for n in range(5)],
            [0, *[Flag.PADDING] * 4],
        ),
        # One of each cannot be told from a text that ends so: it stays, and says so.
        ([{"prompts": [8], "responses": [5, 2, 2]}], [[8, 5, 2, 2]], [Flag.MAYBE_PADDED]),
    )

    @pytest.mark.parametrize("case", range(len(PADDED)))
    def test_padding_is_known_or_kept_and_told(self, case: int, tmp_path: Path) -> None:
        records, rows, flags = self.PADDED[case]
        loaded = read(write_lines(tmp_path / "a.jsonl", records))
        assert tokens(loaded) == rows
        assert (loaded.flags & np.uint16(Flag.PADDING | Flag.MAYBE_PADDED)).tolist() == flags

    def test_a_tokenizer_names_the_padding(self, tmp_path: Path) -> None:
        bundled = load_tokenizer("bundled")
        pad, end = bundled.special_id("pad_token"), bundled.special_id("eos_token")
        assert pad is not None and pad != end
        record = {"input_ids": [pad, pad, 6, 5], "loss_mask": [0, 0, 0, 1]}
        path = write_lines(tmp_path / "a.jsonl", [record])
        assert tokens(read(path, tokenizer="bundled")) == [[6, 5]]
        assert tokens(read(path)) == [[pad, pad, 6, 5]]

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_a_batch_is_unpadded_where_it_shows_and_nowhere_else(self, data: st.DataObject) -> None:
        """Rows of one width are theirs again; rows of their own widths stay as they are."""
        lengths = data.draw(st.permutations(range(2, 12)))
        rows = [data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)) for n in lengths]
        left, masked = data.draw(st.booleans()), data.draw(st.booleans())

        def record(row: list[int], pad: list[int]) -> dict[str, Any]:
            own = [0] * (len(row) - 1) + [1]
            made = {"input_ids": pad + row if left else row + pad}
            return made | ({"loss_mask": pad + own if left else own + pad} if masked else {})

        assert self.unpadded([record(row, []) for row in rows]) == rows
        apart = [[10 + n, *row, 30] for n, row in enumerate(rows)]
        batch = [record(row, [0] * (14 - len(row))) for row in apart]
        assert self.unpadded(batch) == apart

    def unpadded(self, records: list[dict[str, Any]]) -> list[list[int]]:
        roles, where = Roles(recognise(records)), Where("a")
        padding = padding_of(records, roles, where, None)
        out = []
        for record in records:
            found = given_ids(record, roles, where)
            assert found is not None and len(found) == 1
            (row,) = found
            out.append([int(i) for p in row.row(padding).parts for i in np.asarray(p.content)])
        return out

    @settings(max_examples=80, deadline=None)
    @given(
        st.lists(st.integers(1, 9), min_size=1, max_size=6),
        st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=6),
        st.integers(0, 4),
        st.integers(0, 4),
    )
    def test_a_padded_batch_is_its_rows(
        self, prompt: list[int], response: list[tuple[int, bool]], left: int, right: int
    ) -> None:
        """Whatever the padding, the row is the ids between, trained where the mask says so."""
        record = {
            "prompts": [0] * left + prompt,
            "responses": [t for t, _ in response] + [0] * right,
            "attention_mask": [0] * left + [1] * (len(prompt) + len(response)) + [0] * right,
            "response_mask": [int(m) for _, m in response] + [0] * right,
        }
        rows = given_ids(record, Roles(recognise([record])), Where("a"))
        assert rows is not None
        made = [(int(i), p.trained) for p in rows[0].row(None).parts for i in np.asarray(p.content)]
        assert made == [(i, False) for i in prompt] + response


class TestGroups:
    """9: groups as the source means them."""

    def groups(self, folder: Path, **files: list[dict[str, Any]]) -> list[int]:
        (folder / "set").mkdir()
        for name, records in files.items():
            write_lines(folder / "set" / f"{name}.jsonl", records)
        found: list[int] = read(folder / "set").rows.group.tolist()
        return found

    def row(self, prompt: str, **more: Any) -> dict[str, Any]:
        return {"prompt": prompt, "completion": "x", **more}

    def test_ids_that_start_again_at_every_step(self, tmp_path: Path) -> None:
        rows = [self.row(f"p{s}", group_id=0, step=s) for s in (1, 1, 2, 2)]
        assert self.groups(tmp_path, a=rows) == [0, 0, 1, 1]

    def test_a_step_inside_a_trajectory_sets_nothing_apart(self, tmp_path: Path) -> None:
        rows = [
            self.row(f"p{s}", group_id=0, traj_uid=t, step=s) for t in ("a", "b") for s in (0, 1)
        ]
        assert self.groups(tmp_path, a=rows) == [0, 0, 0, 0]

    def test_numbers_and_texts_are_one_id(self, tmp_path: Path) -> None:
        rows = [self.row("p", group_id=g) for g in (1, 1.0, "1", "2", 2.0)]
        assert self.groups(tmp_path, a=rows) == [0, 0, 0, 1, 1]

    def test_a_column_of_floats_is_a_group(self, tmp_path: Path) -> None:
        rows = [self.row(p, group_id=g) for p, g in (("p", 0.0), ("q", 0.0), ("r", 1.5))]
        assert self.groups(tmp_path, a=rows) == [0, 0, 1]

    def test_equal_ids_of_two_files(self, tmp_path: Path) -> None:
        first = [self.row("p", group_id=0), self.row("q", group_id=1)]
        second = [self.row("r", group_id=0), self.row("q", group_id=1)]
        assert self.groups(tmp_path, run1=first, run2=second) == [0, 1, 2, 1]

    def test_shards_of_one_set_share_their_ids(self, tmp_path: Path) -> None:
        shards = {f"train-{n:05d}-of-00002": [self.row(f"p{n}", group_id=7)] for n in (0, 1)}
        assert self.groups(tmp_path, **shards) == [0, 0]

    def test_ids_that_number_rows_are_no_groups(self, tmp_path: Path) -> None:
        rows = [self.row("p", uid=f"u{n}") for n in range(4)]
        assert self.groups(tmp_path, a=rows) == [0, 0, 0, 0]

    def test_a_boolean_is_no_group(self, tmp_path: Path) -> None:
        rows = [self.row("p", group_id=1), self.row("p", group_id=True)]
        with pytest.raises(SourceError, match="'group_id': is true/false"):
            read(write_lines(tmp_path / "a.jsonl", rows))

    def test_what_areal_drops_is_counted_and_left_out_on_request(self, tmp_path: Path) -> None:
        rows = [
            self.row(p, group_id=g, reward=r)
            for g, p, r in ((0, "p", 1), (0, "p", 1), (1, "q", 0), (1, "q", 1), (2, "r", 1))
        ]
        path = write_lines(tmp_path / "a.jsonl", rows)
        assert read(path).provenance.left_out_groups == {"equal-rewards": 2, "incomplete": 1}
        assert read(path, leave_out=("equal-rewards",)).records.tolist() == [2, 3]
        assert read(path, leave_out=("incomplete",)).records.tolist() == [0, 1, 2, 3]


class TestOddRecords:
    BAD = ({"prompt": "x", "completion": 5}, {"prompt": "x"}, {"other": 1})

    def test_the_first_stops_the_load(self, tmp_path: Path) -> None:
        good = {"prompt": "x", "completion": "y"}
        path = write_lines(tmp_path / "a.jsonl", [good, self.BAD[0], good])
        with pytest.raises(SourceError, match=r"row 1 \(line 2\)"):
            read(path)

    def test_they_are_left_out_counted_and_listed(self, tmp_path: Path) -> None:
        good = {"prompt": "x", "completion": "y"}
        path = write_lines(tmp_path / "a.jsonl", [good, *self.BAD, good])
        with path.open("a") as out:
            out.write("{broken\n" + json.dumps(good) + "\n")
        loaded = read(path, leave_out_odd=True)
        assert len(loaded.rows) == 3 and loaded.provenance.left_out_records == 4
        assert [(o.row, o.line) for o in loaded.odd] == [(1, 2), (2, 3), (3, 4), (5, 6)]
        assert "{broken" in loaded.odd[3].record
        again = read(path, leave_out_odd=True)
        assert again.provenance.from_cache and again.odd == loaded.odd

    def test_speakers_are_mapped(self, tmp_path: Path) -> None:
        talk = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "ho"},
            {"role": "wizard", "content": "hm"},
            {"role": "assistant", "content": "ha"},
        ]
        path = write_lines(tmp_path / "a.jsonl", [{"messages": talk}])
        with pytest.raises(SourceError, match="'wizard'"):
            read(path)
        mapped = read(path, speakers=(("wizard", "user"),))
        talk[2]["role"] = "user"
        plain = read(write_lines(tmp_path / "b.jsonl", [{"messages": talk}]))
        assert tokens(mapped) == tokens(plain)


class TestFolders:
    def test_strays_are_left_out_and_listed(self, tmp_path: Path) -> None:
        for n in (1, 2):
            write_lines(tmp_path / f"step_{n}.jsonl", [{"prompt": f"p{n}", "response": "x" * 99}])
        (tmp_path / "config.json").write_text(json.dumps({"model": "m"}))
        write_lines(tmp_path / "metrics.jsonl", [{"step": 1, "loss": 0.5}])
        (tmp_path / "notes.md").write_text("# notes")
        loaded = read(tmp_path)
        assert len(loaded.rows) == 2
        assert set(loaded.provenance.left_out_files) == {"config.json", "metrics.jsonl", "notes.md"}

    def test_a_link_may_not_name_a_tokenizer_anywhere(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "out").mkdir()
        path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": "x"}])
        for name in (str(tmp_path / "out"), str(tmp_path / "in" / ".." / "out"), "/etc"):
            spec = SourceSpec("file", str(path), tokenizer=name)
            with pytest.raises(SourceError, match="outside the folders that may be read"):
                load(spec, allowed_roots=[tmp_path / "in"])
