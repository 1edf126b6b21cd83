"""Loading as a whole: cache, progress, cancel, problems, simulation, dumps, and real rollouts."""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.rows import Rows
from packing.sources import cache
from packing.sources.chat.tokenizer_files import load_tokenizer
from packing.sources.errors import LoadCancelled, SourceError
from packing.sources.load import Progress
from packing.sources.load import load_here as load
from packing.sources.problems import Flag, over_context
from packing.sources.simulate import simulate, simulated_lengths
from packing.sources.spec import Simulate, SourceSpec
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

load_module = importlib.import_module("packing.sources.here")


def many(folder: Path, rows: int = 3000) -> Path:
    records = [{"prompt": f"number {n} " * 20, "completion": f"is {n}"} for n in range(rows)]
    return write_lines(folder / "a.jsonl", records)


class TestRealShapes:
    """The two public files that engineers try first."""

    def test_tau_conversations_and_turns(self, tmp_path: Path) -> None:
        records = [tool_talk(task, trial) for task in range(5) for trial in range(4)]
        path = tmp_path / "tau.json"
        path.write_text(json.dumps(records, indent=1))
        whole = read(path)
        assert (len(whole.rows), whole.rows.n_groups) == (20, 5)
        assert whole.rewards is not None and whole.rewards.tolist() == [0, 1, 2, 3] * 5
        turns = read(path, expand="turn")
        assert (len(turns.rows), turns.rows.n_groups) == (60, 5)
        assert "<tool_call>" in texts(turns)[0]

    def test_tau_airline(self, shared_dir: Path) -> None:
        path = shared_dir / "data" / "tau_airline_gpt4o.json"
        whole = read(path, limit=8)
        assert whole.roles.first("messages") == "traj" and whole.roles.first("group") == "task_id"
        assert len(whole.rows) == 8
        said = [
            sum(m["role"] == "assistant" for m in r["traj"]) for r in json.loads(path.read_text())
        ]
        assert (len(said), sum(said)) == (200, 2454)
        assert len(read(path, limit=8, expand="turn").rows) == sum(said[:8])

    def test_gsm8k_solutions(self, shared_dir: Path) -> None:
        path = shared_dir / "data" / "gsm8k_model_solutions.jsonl"
        loaded = read(path, start=1250)
        assert (len(loaded.rows), loaded.rows.n_groups) == (69 * 5, 69)


class TestSamples:
    @pytest.mark.parametrize(
        ("name", "rows", "groups"),
        [("math-grpo", 512, 64), ("agent-turns", 48, 12), ("preference-pairs", 240, 120)],
    )
    def test_bundled_samples(self, name: str, rows: int, groups: int) -> None:
        loaded = load(SourceSpec("sample", name))
        assert (len(loaded.rows), loaded.rows.n_groups) == (rows, groups)
        assert loaded.provenance.tokenizer == "bundled" and not loaded.simulated

    def test_an_unknown_sample(self) -> None:
        with pytest.raises(SourceError, match=r"'maths'.*math-grpo"):
            load(SourceSpec("sample", "maths"))


class TestCache:
    def test_a_second_load_is_the_same_without_reading(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        records = [tool_talk(t, n) for t in range(3) for n in range(2)]
        path = write_lines(tmp_path / "a.jsonl", records)
        first = read(path, expand="turn")
        monkeypatch.setattr(load_module, "_build", None)
        second = read(path, expand="turn")
        assert second.provenance == replace(first.provenance, from_cache=True)
        assert second.rows.fingerprint == first.rows.fingerprint
        assert texts(second) == texts(first)
        for name in ("prompt_lengths", "rewards", "records", "flags", "origins"):
            np.testing.assert_array_equal(getattr(second, name), getattr(first, name))
        for name in ("roles", "columns", "problems", "preview", "role_tokens", "prefix", "spec"):
            assert getattr(second, name) == getattr(first, name), name

    def test_what_decides_the_rows_decides_the_entry(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "a.jsonl", [gsm8k_record(n) for n in range(3)])
        read(path)
        assert read(path).provenance.from_cache
        assert not read(path, limit=2).provenance.from_cache
        assert not read(path, roles=(("text", "question"),)).provenance.from_cache
        before = path.stat()
        content = path.read_text().replace("What is 1?", "What is 7?")
        path.write_text(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        changed = read(path)
        assert not changed.provenance.from_cache
        assert "What is 7?" in texts(changed)[5]

    def test_a_moved_file_is_the_same_content(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "a.jsonl", [gsm8k_record(0)])
        first = read(path)
        (tmp_path / "there").mkdir()
        moved = path.rename(tmp_path / "there" / "a.jsonl")
        again = read(moved)
        assert again.provenance.from_cache
        assert again.provenance.content == first.provenance.content
        assert again.provenance.source == str(moved)

    @pytest.mark.parametrize("damage", ["meta.json", "tokens.npy", "offsets.npy"])
    def test_a_broken_entry_is_made_again(
        self, tmp_path: Path, own_cache: Path, damage: str
    ) -> None:
        path = write_lines(tmp_path / "a.jsonl", [gsm8k_record(0)])
        first = read(path)
        (entry,) = (own_cache / "rows").iterdir()
        (entry / damage).write_bytes(b"\x80\x04broken")
        again = read(path)
        assert not again.provenance.from_cache
        assert tokens(again) == tokens(first)
        assert read(path).provenance.from_cache

    def test_no_pickle_is_kept(self, tmp_path: Path, own_cache: Path) -> None:
        read(write_lines(tmp_path / "a.jsonl", [gsm8k_record(0)]))
        kept = [f for f in own_cache.rglob("*") if f.is_file()]
        assert {f.suffix for f in kept} == {".npy", ".json"} and len(kept) >= 6
        for file in kept:
            if file.suffix == ".npy":
                np.load(file, allow_pickle=False)

    def test_the_oldest_entries_go_first(
        self, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cache, "CACHE_BYTES", 1)
        for n in range(3):
            read(write_lines(tmp_path / "a.jsonl", [gsm8k_record(n)]))
        assert len(list((own_cache / "rows").iterdir())) == 1
        assert read(tmp_path / "a.jsonl").provenance.from_cache

    def test_a_cache_that_cannot_be_written_costs_only_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "file"))
        path = write_lines(tmp_path / "a.jsonl", [gsm8k_record(0)])
        assert len(read(path).rows) == 5 and len(read(path).rows) == 5


class TestProgressAndCancel:
    def test_progress_rises_to_the_end(self, tmp_path: Path) -> None:
        seen: list[Progress] = []
        loaded = load(SourceSpec("file", str(many(tmp_path))), progress=seen.append)
        reading = [p for p in seen if p.stage.startswith("reading")]
        fractions = [p.fraction or 0.0 for p in reading]
        assert len(reading) > 3 and fractions == sorted(fractions) and fractions[-1] == 1.0
        assert reading[-1].rows == len(loaded.rows)
        assert reading[-1].tokens == loaded.rows.n_tokens

    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_cancel_stops_at_the_next_chunk(
        self, tmp_path: Path, own_cache: Path, after: int
    ) -> None:
        seen: list[Progress] = []

        def enough() -> bool:
            return sum(p.stage.startswith("reading") for p in seen) >= after

        with pytest.raises(LoadCancelled):
            load(SourceSpec("file", str(many(tmp_path))), seen.append, enough)
        assert max((p.rows for p in seen), default=0) <= 512 * after
        assert not (own_cache / "rows").exists()


class TestProblems:
    def test_each_kind_is_counted_with_examples(self, tmp_path: Path) -> None:
        records: list[dict[str, Any]] = [
            {"problem_id": 1, "prompt": "a", "completions": ["x", "x", " \n", ""]},
            {"problem_id": 2, "prompt": "b", "completions": ["only"]},
        ]
        loaded = read(write_lines(tmp_path / "a.jsonl", records))
        found = {p.kind: (p.count, p.examples) for p in loaded.problems}
        assert found == {
            "duplicate": (1, (1,)),
            "whitespace": (1, (2,)),
            "empty_completion": (1, (3,)),
            "group_of_one": (1, (4,)),
        }
        filtered = np.flatnonzero(loaded.flags & np.uint16(Flag.WHITESPACE))
        assert filtered.tolist() == [2]

    def test_empty_rows_and_prompts_alone(self, tmp_path: Path) -> None:
        loaded = read(write_lines(tmp_path / "a.jsonl", [{"text": ""}, {"text": "x"}]))
        assert {(p.kind, p.count) for p in loaded.problems} >= {("empty", 1)}
        loaded = read(write_lines(tmp_path / "b.jsonl", [{"prompt": "a"}, {"prompt": "b"}]))
        assert {(p.kind, p.count) for p in loaded.problems} == {("no_completion", 2)}

    def test_rows_over_the_context(self) -> None:
        rows = Rows.from_lists([[1] * n for n in (3, 9, 4, 8)])
        problem = over_context(rows, 4)
        assert problem is not None and (problem.count, problem.examples) == (2, (1, 3))
        assert over_context(rows, 9) is None

    def test_conversations_without_a_turn_have_no_rows_as_turns(self, tmp_path: Path) -> None:
        asked = {"messages": [{"role": "user", "content": "hi"}]}
        answered = {"messages": [*asked["messages"], {"role": "assistant", "content": "ho"}]}
        loaded = read(write_lines(tmp_path / "a.jsonl", [asked, answered]), expand="turn")
        assert len(loaded.rows) == 1 and loaded.records.tolist() == [1]
        assert "1 conversations have no assistant turn" in loaded.provenance.notes[0]
        with pytest.raises(SourceError, match="none of 1 conversations has an assistant turn"):
            read(write_lines(tmp_path / "b.jsonl", [asked]), expand="turn")


class TestSimulate:
    def test_prompts_become_groups_of_samples(self, tmp_path: Path) -> None:
        records = [{"prompt": "a b c"}, {"prompt": "d e"}, {"prompt": "a b c"}]
        path = write_lines(tmp_path / "a.jsonl", records)
        settings = Simulate(samples=5, median=20, sigma=0.5, max_new_tokens=30)
        loaded = read(path, simulate=settings)
        assert loaded.simulated and any("simulated" in n for n in loaded.provenance.notes)
        assert (len(loaded.rows), loaded.rows.n_groups) == (10, 2)
        bundled = load_tokenizer("bundled")
        expected = [ids.tolist() for ids in bundled.encode_batch(["a b c", "d e"])]
        assert loaded.prompt_lengths is not None
        for row, ids in enumerate(loaded.rows):
            length = int(loaded.prompt_lengths[row])
            assert ids[:length].tolist() == expected[row // 5]
            assert 1 <= len(ids) - length <= 30
        assert tokens(read(path, simulate=settings)) == tokens(loaded)
        assert tokens(read(path, simulate=replace(settings, seed=1))) != tokens(loaded)

    def test_lengths_from_answers_and_columns(self, tmp_path: Path) -> None:
        records = [{"question": str(n), "answer": "word " * n, "n": 10 * n} for n in (3, 50)]
        path = write_lines(tmp_path / "a.jsonl", records)
        own = Simulate(samples=2, lengths="answer", sigma=0.0)
        loaded = read(path, simulate=own)
        rows = read(path)
        assert loaded.prompt_lengths is not None and rows.prompt_lengths is not None
        simulated = loaded.rows.lengths - loaded.prompt_lengths
        assert rows.rows.loss_mask is not None
        said = np.add.reduceat(rows.rows.loss_mask, rows.rows.offsets[:-1], dtype=np.int64)
        assert simulated.tolist() == np.repeat(said, 2).tolist()
        column = Simulate(samples=2, lengths="column", sigma=0.0)
        loaded = read(path, simulate=column, roles=(("length", "n"),))
        assert loaded.prompt_lengths is not None
        assert (loaded.rows.lengths - loaded.prompt_lengths).tolist() == [30, 30, 500, 500]
        with pytest.raises(SourceError, match="no column holds lengths"):
            read(path, simulate=column)

    @given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 400))
    def test_percentiles_stay_between_the_first_and_last(
        self, seed: int, prompts: int, limit: int
    ) -> None:
        settings = Simulate(
            samples=7,
            lengths="percentiles",
            percentiles=((10, 50), (50, 100), (99, 900)),
            max_new_tokens=limit,
        )
        rng = np.random.default_rng(seed)
        lengths = simulated_lengths(settings, np.full(prompts, np.nan), rng)
        assert lengths.shape == (prompts, 7)
        assert lengths.min() >= min(50, limit) and lengths.max() <= min(900, limit)

    def test_the_median_is_the_median(self) -> None:
        settings = Simulate(samples=4001, median=300, sigma=0.8)
        lengths = simulated_lengths(settings, np.full(1, np.nan), np.random.default_rng(0))
        assert abs(np.median(lengths) - 300) < 20

    def test_empty_prompts(self) -> None:
        rows, before, prompt = simulate(
            Rows.from_lists([[]]), np.array([np.nan]), Simulate(samples=3, median=5)
        )
        assert len(rows) == 3 and before.tolist() == [0, 0, 0] and prompt.tolist() == [0, 0, 0]


class TestDumps:
    """AReaL's rollout dumps: a folder a version, a file a task, a line a row."""

    def dump(self, folder: Path, off: int = 0) -> Path:
        encode = load_tokenizer("bundled").encode_batch
        for version in (0, 2, 10):
            for task in ("b", "a"):
                path = folder / "rollout" / str(version) / f"{task}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                lines = []
                for sample in (1, 0):
                    prompt, said = f"<|im_start|>user\n{task}", f"v{version} s{sample}<|im_end|>"
                    length = sum(len(ids) for ids in encode([prompt, said]))
                    lines.append(
                        {
                            "task_id": task,
                            "sample_idx": sample,
                            "seqlen": length + off,
                            "prompt_len": 3,
                            "head_version": version,
                            "tail_version": version,
                            "reward": float(sample),
                            "prompt": prompt,
                            "completion": said,
                        }
                    )
                write_lines(path, lines)
        return folder / "rollout"

    def test_versions_tasks_and_samples_in_order(self, tmp_path: Path) -> None:
        loaded = read(self.dump(tmp_path))
        assert loaded.provenance.format == "AReaL rollout dump"
        assert [t.split("\n")[1].replace("<|im_end|>", "") for t in texts(loaded)] == [
            f"{task}v{version} s{sample}"
            for version in (0, 2, 10)
            for task in ("a", "b")
            for sample in (0, 1)
        ]
        assert loaded.rows.group.tolist() == [n // 2 for n in range(12)]
        assert loaded.rewards is not None and loaded.rewards.tolist() == [0.0, 1.0] * 6
        assert "12 of 12 rows have the number of tokens" in loaded.provenance.notes[0]
        assert not loaded.problems

    def test_chosen_versions(self, tmp_path: Path) -> None:
        folder = self.dump(tmp_path)
        assert [t[-14:-10] for t in texts(read(folder, versions=("2",)))] == ["2 s0", "2 s1"] * 2
        with pytest.raises(SourceError, match=r"no version '7'.* 0, 2, 10"):
            read(folder, versions=("7",))
        assert len(read(folder / "10").rows) == 4

    def test_another_tokenizer_shows_in_lengths(self, tmp_path: Path) -> None:
        loaded = read(self.dump(tmp_path, off=1))
        assert [(p.kind, p.count) for p in loaded.problems] == [("length_differs", 12)]
        assert "0 of 12 rows" in loaded.provenance.notes[0]

    def test_a_line_that_is_being_written(self, tmp_path: Path) -> None:
        folder = self.dump(tmp_path)
        with (folder / "10" / "b.jsonl").open("a") as out:
            out.write('{"task_id": "b", "samp')
        with pytest.raises(SourceError, match=r"10/b.jsonl, row 2 \(line 3\): .*ends inside"):
            read(folder)

    def test_a_place_is_that_of_the_file(self, tmp_path: Path) -> None:
        folder = self.dump(tmp_path)
        path = folder / "10" / "b.jsonl"
        first, second = (json.loads(x) for x in path.read_text().splitlines())
        write_lines(path, [first | {"completion": 5}, second])
        with pytest.raises(SourceError, match=r"b.jsonl, row 0 \(line 1\), field 'completion'"):
            read(folder)

    def test_versions_of_other_files(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "a.jsonl", [gsm8k_record(0)])
        with pytest.raises(SourceError, match="not a folder of AReaL's rollout dumps"):
            read(path, versions=("1",))


def test_the_preview_is_the_start_of_the_rows(tmp_path: Path) -> None:
    loaded = read(write_lines(tmp_path / "a.jsonl", [gsm8k_record(0)]))
    assert len(loaded.preview) == 3
    for shown in loaded.preview:
        assert "".join(shown.tokens) == texts(loaded)[shown.row]
        assert len(shown.trained) == len(shown.tokens) == shown.length
    said = "".join(
        t for t, on in zip(loaded.preview[0].tokens, loaded.preview[0].trained, strict=True) if on
    )
    assert said == "It is 0.\nA: 0<|im_end|>"


def test_a_tokenizer_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [gsm8k_record(0)])
    with pytest.raises(SourceError, match="no such folder"):
        read(path, tokenizer=str(tmp_path / "nothing"))


def test_images_are_reported(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    talk = [
        {"role": "user", "content": [image, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "b"},
    ]
    loaded = read(write_lines(tmp_path / "a.jsonl", [{"messages": talk}] * 2))
    assert ("not_text", 2) in {(p.kind, p.count) for p in loaded.problems}
