"""Every family of chat templates: ids as transformers makes them, masks as marked by hand."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from packing.sources.chat.template import Conversation, Renderer
from packing.sources.chat.tokenizer_files import BUNDLED_FOLDER, load_tokenizer
from packing.sources.errors import Where
from packing.sources.loaded import Loaded
from tests.packing.chat_families import FAMILIES, TALKS, TOOL, Family
from tests.packing.chat_families_more import MORE
from tests.packing.source_files import own_cache, read, write_lines

__all__ = ["own_cache"]

FAMILIES |= MORE
CASES = [(name, talk) for name, family in FAMILIES.items() for talk in family.texts]


def test_there_are_thirty_families() -> None:
    assert len(FAMILIES) >= 30
    assert {talk for _, talk in CASES} == set(TALKS)


def saved(folder: Path, family: Family) -> tuple[Path, PreTrainedTokenizerFast]:
    """A tokenizer of the family in a folder, and transformers' own of the same."""
    backend = tokenizers.Tokenizer.from_file(str(BUNDLED_FOLDER / "tokenizer.json"))
    backend.add_special_tokens(list(family.special))
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    names = {"eos_token": family.eos} | ({"bos_token": family.bos} if family.bos else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    (folder / "chat_template.jinja").write_text(family.template)
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=family.template, **names
    )
    return folder, theirs


def as_trainer_passes(messages: list[dict[str, Any]], family: Family) -> list[dict[str, Any]]:
    """Arguments as objects, as AReaL and vLLM make them; reasoning by its names."""
    made = json.loads(json.dumps(messages))
    for message in made:
        for call in message.get("tool_calls", []):
            if not family.text_arguments:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if "reasoning_content" in message:
            message["thinking"] = message["reasoning_content"]
    return list(made)


def tokens_of(text: str, theirs: PreTrainedTokenizerFast) -> tuple[list[int], list[int]]:
    """(ids of a text with marks, 1 for each that lies in them); no token crosses a mark."""
    ids: list[int] = []
    mask: list[int] = []
    for piece in re.split("(⟦.*?⟧)", text, flags=re.DOTALL):
        trained = piece.startswith("⟦")
        found = theirs.encode(piece.strip("⟦⟧") if trained else piece, add_special_tokens=False)
        ids += found
        mask += [int(trained)] * len(found)
    return ids, mask


def row(loaded: Loaded, number: int) -> tuple[list[int], list[int]]:
    assert loaded.rows.loss_mask is not None
    start, stop = loaded.rows.offsets[number : number + 2]
    return loaded.rows[number].tolist(), loaded.rows.loss_mask[start:stop].tolist()


@pytest.mark.parametrize(("name", "talk"), CASES)
def test_conversations_and_turns(name: str, talk: str, tmp_path: Path) -> None:
    family, messages = FAMILIES[name], TALKS[talk]
    folder, theirs = saved(tmp_path / "tokenizer", family)
    given = as_trainer_passes(messages, family)
    tools: list[Any] | None = [TOOL] if talk == "tools" else None
    record = {"messages": messages} | ({"tools": tools} if tools else {})
    path = write_lines(tmp_path / "a.jsonl", [record])

    expected = family.texts[talk]
    # The text marked by hand is the one that transformers makes.
    bare = expected.replace("⟦", "").replace("⟧", "")
    assert bare == theirs.apply_chat_template(given, tools=tools, tokenize=False)
    loaded = read(path, tokenizer=str(folder))
    assert row(loaded, 0) == tokens_of(expected, theirs)
    together = theirs.apply_chat_template(given, tools=tools, tokenize=True, return_dict=False)
    if "⟦\n" not in expected and "\n⟧" not in expected:  # an engine keeps the boundary of a turn
        assert row(loaded, 0)[0] == together
    assert not loaded.problems

    written = family.turns.get(talk) or re.findall("⟦(.*?)⟧", expected, flags=re.DOTALL)
    turns = read(path, tokenizer=str(folder), expand="turn")
    said = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    assert len(turns.rows) == len(said) == len(written)
    for n, (at, text) in enumerate(zip(said, written, strict=True)):
        prompt = theirs.apply_chat_template(
            given[:at], tools=tools, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        new = theirs.encode(text, add_special_tokens=False)
        ids, mask = row(turns, n)
        assert ids == prompt + new
        assert mask == [0] * len(prompt) + [1] * len(new)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_text_completion_follows_the_generation_prompt_as_it_is(
    name: str, tmp_path: Path
) -> None:
    family = FAMILIES[name]
    folder, theirs = saved(tmp_path / "tokenizer", family)
    prompt = [{"role": "user", "content": "Hi"}]
    answer = "so\n</think>\n\nHello."
    head = theirs.apply_chat_template(
        prompt, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    text = next(iter(family.texts.values()))
    final = family.turns.get("system", re.findall("⟦(.*?)⟧", text, flags=re.DOTALL))[-1]
    end = re.sub(r"^.*(It rains|See you)\. ?", "", final, flags=re.DOTALL).strip()
    records = [{"prompt": prompt, "completion": answer + e} for e in ("", end, end + "\n")]
    loaded = read(write_lines(tmp_path / "a.jsonl", records), tokenizer=str(folder))
    new = theirs.encode(answer + end, add_special_tokens=False)
    for number in range(2 if not end else 3):
        ids, mask = row(loaded, number)
        trained = np.flatnonzero(mask)
        assert ids[: len(head)] == head
        assert [ids[i] for i in trained] == new
        assert trained[0] == len(head)


@pytest.mark.parametrize(
    ("name", "talk"), [(n, t) for n, t in CASES if t in ("talk", "system") and n != "alpaca"]
)
def test_any_contents_are_where_the_marks_are(name: str, talk: str, tmp_path: Path) -> None:
    """Contents with a family's own tokens, headers and line breaks in them: masks do not move."""
    family = FAMILIES[name]
    tokenizer = load_tokenizer(str(saved(tmp_path, family)[0]))
    pieces = [*family.special, "\n\n", " ", "word", "assistant", "user\n", "USER: ", "é", "0"]
    contents = st.lists(st.sampled_from(pieces), min_size=1, max_size=6).map("".join).map(str.strip)

    @settings(max_examples=25, deadline=None, database=None)
    @given(st.tuples(*[contents.filter(bool)] * 4))
    def check(said: tuple[str, ...]) -> None:
        new = dict(zip(("Hi", "Hello.", "Bye", "See you."), said, strict=True))
        messages = [m | {"content": new.get(m["content"], m["content"])} for m in TALKS[talk]]
        where = re.compile("|".join(rf"(?<!\w){re.escape(old)}" for old in new))
        text = where.sub(lambda found: new[found[0]], family.texts[talk])
        talked = Conversation(Renderer(tokenizer, None, None, Where("a")), messages, "messages")
        made = "".join(f"⟦{p.content}⟧" if p.trained else str(p.content) for p in talked.whole())
        assert made == text and not talked.lost

    check()
