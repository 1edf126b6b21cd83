"""Tokenizers: ids and texts go back and forth, chats keep reasoning or not, errors are clear."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.sources.chat import tokenizer as tokenize
from packing.sources.chat.tokenizer import (
    TextError,
    Tokenizer,
    TokenizerError,
)
from packing.sources.chat.tokenizer_files import BUNDLED_FOLDER, load_tokenizer
from packing.sources.samples import sample_records

BUNDLED = load_tokenizer("bundled")
UNICODE = (
    "",
    " ",
    "\x00a\x00",
    "naïve — “quotes” … 3 × 4 ÷ 2",
    "emoji 😀👩‍👩‍👧‍👦🇩🇪 and 漢字 and עברית",
    "tab\tand\r\nlines\n\n\n  indented",
    "e\u0301 is not é",
    "<|im_start|>user\nhi<|im_end|>",
)
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "reasoning_content": "Two and two.", "content": "4"},
    {"role": "user", "content": "And the weather in Bonn?"},
    {
        "role": "assistant",
        "reasoning_content": "I need the tool.",
        "content": "",
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Bonn"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "rain"},
    {"role": "assistant", "reasoning_content": "It \\rains\\1.", "content": "It rains."},
]
# Keeps reasoning only after the last user message and writes an empty one, like Qwen3's.
FORGETFUL = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and loop.last %}"
    "{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}"
    "{{ m.content }}{% if m.tool_calls %}{{ '\n' if m.content else '' }}<call>{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
)


def with_template(folder: Path, template: str) -> Tokenizer:
    shutil.copy(BUNDLED_FOLDER / "tokenizer.json", folder)
    (folder / "chat_template.jinja").write_text(template)
    return load_tokenizer(str(folder))


@pytest.mark.process
def test_importing_brings_no_heavy_library() -> None:
    code = (
        "import sys; from packing.sources.chat.tokenizer_files import load_tokenizer; "
        "load_tokenizer('bundled').encode_batch(['a']); "
        "print([m for m in ('torch', 'transformers', 'jinja2') if m in sys.modules])"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_bundled_tokenizer_is_small_and_knows_chatml() -> None:
    assert (BUNDLED_FOLDER / "tokenizer.json").stat().st_size < 400_000
    assert 4000 < BUNDLED.vocab_size <= 4096
    assert BUNDLED.eos_token == "<|im_end|>"
    for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        assert len(BUNDLED.encode_batch([text])[0]) == 1
    assert len(BUNDLED.fingerprint) == 16


def test_every_sample_text_comes_back_unchanged() -> None:
    texts = [r["prompt"] + c for r in sample_records("math-grpo") for c in r["completions"]]
    texts += [r[k] for r in sample_records("preference-pairs") for k in r]
    for record in sample_records("agent-turns"):
        texts.append(BUNDLED.render(record["messages"], record["tools"]))
    ids = BUNDLED.encode_batch(texts)
    assert [BUNDLED.decode(i) for i in ids] == texts
    assert len(texts) > 900


@pytest.mark.parametrize("text", UNICODE)
def test_unusual_text_comes_back_unchanged(text: str) -> None:
    (ids,) = BUNDLED.encode_batch([text])
    assert ids.dtype == np.int32
    assert BUNDLED.decode(ids) == text
    pieces = BUNDLED.tokens_text(ids)
    assert len(pieces) == len(ids) and "".join(pieces) == text


@given(st.lists(st.text(), max_size=8))
def test_any_texts_come_back_unchanged(texts: list[str]) -> None:
    assert [BUNDLED.decode(ids) for ids in BUNDLED.encode_batch(texts)] == texts


@given(st.lists(st.integers(-3, 4200) | st.integers(3, 260), max_size=40))
def test_pieces_of_any_ids_join_to_the_decoded_text(ids: list[int]) -> None:
    pieces = BUNDLED.tokens_text(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == BUNDLED.decode(ids)


def test_special_and_unknown_tokens_are_visible() -> None:
    (ids,) = BUNDLED.encode_batch(["<|im_start|>hi<|im_end|>"])
    assert BUNDLED.tokens_text([*ids, 9999, -1])[-3:] == [
        "<|im_end|>",
        "<|unknown 9999|>",
        "<|unknown -1|>",
    ]
    assert BUNDLED.tokens_text(ids)[0] == "<|im_start|>"


def test_a_character_of_several_tokens_stands_at_its_last_one() -> None:
    (ids,) = BUNDLED.encode_batch(["a😀b"])
    pieces = BUNDLED.tokens_text(ids)
    assert len(ids) > 3 and [p for p in pieces if p] == ["a", "😀", "b"]
    assert pieces.index("😀") == len(ids) - 2


def test_chunks_give_the_same_ids_as_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [r["chosen"] for r in sample_records("preference-pairs")] + ["", "😀"]
    whole = BUNDLED.encode_batch(texts)
    monkeypatch.setattr(tokenize, "CHUNK_CHARACTERS", 1500)
    assert len(list(tokenize._chunks(texts))) > 10
    chunked = BUNDLED.encode_batch(texts)
    assert len(chunked) == len(whole) == len(texts)
    assert all(np.array_equal(a, b) for a, b in zip(whole, chunked, strict=True))
    assert BUNDLED.encode_batch([]) == []


def test_half_a_surrogate_pair_names_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["fine"] * 5 + ["ab\ud83dc"] + ["fine"]
    for characters in (1_000_000, 8):
        monkeypatch.setattr(tokenize, "CHUNK_CHARACTERS", characters)
        with pytest.raises(TextError, match=r"text 5: character 2 .*U\+D83D") as caught:
            BUNDLED.encode_batch(texts)
        assert caught.value.index == 5


def test_a_value_that_is_no_text_is_named() -> None:
    with pytest.raises(TextError, match="text 1: it is NoneType, not text"):
        BUNDLED.encode_batch(["a", None])  # type: ignore[list-item]


def test_ids_equal_those_of_transformers() -> None:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    theirs = AutoTokenizer.from_pretrained(BUNDLED_FOLDER)
    assert isinstance(theirs, PreTrainedTokenizerFast) and theirs.eos_token == "<|im_end|>"
    texts = [*UNICODE, sample_records("math-grpo")[3]["completions"][0]]
    expected = [theirs.encode(text, add_special_tokens=False) for text in texts]
    assert [ids.tolist() for ids in BUNDLED.encode_batch(texts)] == expected
    for record in (CHAT, CHAT[:4], *[r["messages"] for r in sample_records("agent-turns")[:3]]):
        tools = sample_records("agent-turns")[0]["tools"]
        for prompt in (False, True):
            assert BUNDLED.render(record, tools, prompt) == theirs.apply_chat_template(
                record, tools=tools, add_generation_prompt=prompt, tokenize=False
            )


def test_reasoning_stays_only_after_the_last_question() -> None:
    text = BUNDLED.render(CHAT)
    assert "Two and two." not in text
    assert "<think>\nI need the tool.\n</think>\n\n<tool_call>\n" in text
    assert '{"name": "weather", "arguments": {"city": "Bonn"}}' in text
    assert text.endswith("<think>\nIt \\rains\\1.\n</think>\n\nIt rains.<|im_end|>\n")
    assert "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>" in text
    assert BUNDLED.render(CHAT[:4], add_generation_prompt=True).endswith("<|im_start|>assistant\n")


def test_keeping_and_dropping_all_reasoning() -> None:
    kept = BUNDLED.render(CHAT, keep_thinking=True)
    assert kept.count("<think>") == 3 and "Two and two." in kept
    assert kept.startswith(BUNDLED.render(CHAT[:3], keep_thinking=True)), "prefixes are preserved"
    assert "<think>" not in BUNDLED.render(CHAT, keep_thinking=False)
    assert not BUNDLED.render(CHAT).startswith(BUNDLED.render(CHAT[:3]))


def test_tools_and_the_policy_share_the_system_turn() -> None:
    tools = [{"type": "function", "function": {"name": "weather", "description": "für Städte"}}]
    text = BUNDLED.render(CHAT, tools)
    head = text[: text.index("<|im_end|>")]
    assert head.startswith("<|im_start|>system\nBe brief.\n\n# Tools") and "für Städte" in head
    assert BUNDLED.render(CHAT[1:2], tools).startswith("<|im_start|>system\n# Tools")


def test_content_parts_and_inline_reasoning_are_understood() -> None:
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"},
    ]
    assert BUNDLED.render(chat).endswith(
        "ab<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nyes<|im_end|>\n"
    )
    assert "hm" not in BUNDLED.render(chat, keep_thinking=False)


def test_a_template_that_forgets_can_be_made_to_keep(tmp_path: Path) -> None:
    tokenizer = with_template(tmp_path, FORGETFUL)
    assert tokenizer.render(CHAT).count("<think>") == 1
    kept = tokenizer.render(CHAT, keep_thinking=True)
    assert kept.count("<think>") == kept.count("</think>") == 3
    assert "<think>\nTwo and two.\n</think>\n\n4<|im_end|>" in kept
    assert "<think>\nI need the tool.\n</think>\n\n<call>" in kept
    assert kept.endswith("<think>\nIt \\rains\\1.\n</think>\n\nIt rains.<|im_end|>\n")
    assert "rains\\1" not in tokenizer.render(CHAT, keep_thinking=False)


def test_a_template_without_a_place_for_reasoning_says_so(tmp_path: Path) -> None:
    silent = with_template(tmp_path, "{% for m in messages %}{{ m.role }}{% endfor %}")
    with pytest.raises(TokenizerError, match="no place for the reasoning of message 2"):
        silent.render(CHAT, keep_thinking=True)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('system first') }}", "refuses the messages: system first"),
        ("{{ messages.append(1) }}", "refuses the messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses the messages"),
        ("{% if %}", "refuses the messages"),
    ],
)
def test_what_a_template_may_not_do(tmp_path: Path, template: str, message: str) -> None:
    tokenizer = with_template(tmp_path, template)
    for keep in (None, True):
        with pytest.raises(TokenizerError, match=message):
            tokenizer.render(CHAT, keep_thinking=keep)


def test_generation_marks_and_loop_controls_are_understood(tmp_path: Path) -> None:
    source = (
        "{% for m in messages %}{% if loop.index0 == 3 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{{ eos_token }}"
    )
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|endoftext|>"}}')
    tokenizer = with_template(tmp_path, source)
    assert tokenizer.render(CHAT) == "Be brief.What is 2 + 2?4<|endoftext|>"


def test_of_named_templates_the_one_for_tools_is_for_tools(tmp_path: Path) -> None:
    shutil.copy(BUNDLED_FOLDER / "tokenizer.json", tmp_path)
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    tokenizer = load_tokenizer(str(tmp_path))
    tool = {"type": "function", "function": {"name": "weather"}}
    assert [tokenizer.render(CHAT, tools) for tools in (None, [], [tool])] == ["d", "d", "t"]


def test_a_tokenizer_without_template_says_so(tmp_path: Path) -> None:
    shutil.copy(BUNDLED_FOLDER / "tokenizer.json", tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.eos_token is None
    with pytest.raises(TokenizerError, match="no chat template; choose"):
        tokenizer.render(CHAT)


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    shutil.copytree(BUNDLED_FOLDER, tmp_path / "a")
    same = load_tokenizer(str(tmp_path / "a"))
    assert same.fingerprint == BUNDLED.fingerprint and same.name != BUNDLED.name
    (tmp_path / "a" / "chat_template.jinja").write_text("other")
    assert load_tokenizer(str(tmp_path / "a")).fingerprint != BUNDLED.fingerprint


def test_cutting_and_padding_in_the_file_are_switched_off(tmp_path: Path) -> None:
    import tokenizers

    backend = tokenizers.Tokenizer.from_file(str(BUNDLED_FOLDER / "tokenizer.json"))
    backend.enable_truncation(3)
    backend.enable_padding(length=10)
    backend.save(str(tmp_path / "tokenizer.json"))
    (ids,) = load_tokenizer(str(tmp_path)).encode_batch([UNICODE[3]])
    assert ids.tolist() == BUNDLED.encode_batch([UNICODE[3]])[0].tolist()


def test_a_folder_without_tokenizer_json_goes_through_transformers(tmp_path: Path) -> None:
    model = json.loads((BUNDLED_FOLDER / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    tokenizer = load_tokenizer(str(tmp_path))
    (ids,) = tokenizer.encode_batch(["How many dollars are left?"])
    assert len(ids) and tokenizer.decode(ids) == "How many dollars are left?"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no tokenizer that can be loaded"),
        ({"tokenizer.json": "{"}, "tokenizer.json cannot be read"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{"}, "config.json is not JSON"),
    ],
)
def test_broken_folders(tmp_path: Path, files: dict[str, str | None], message: str) -> None:
    for name, content in files.items():
        text = (BUNDLED_FOLDER / name).read_text() if content is None else content
        (tmp_path / name).write_text(text)
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(str(tmp_path))


def test_a_missing_folder_or_a_file_is_not_looked_up_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no such folder"):
        load_tokenizer(str(tmp_path / "nothing"))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match="is a file; give the folder"):
        load_tokenizer(str(tmp_path / "tokenizer.json"))


class _HubHandler(http.server.BaseHTTPRequestHandler):
    """A stand-in for the Hub: one public model, one gated, one without tokenizer.json."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        owner, model, _, _, file = self.path.strip("/").split("/", 4)
        path = BUNDLED_FOLDER / file
        if owner == "gated":
            self._send(403, b"", {"X-Error-Code": "GatedRepo"})
        elif owner == "broken":
            self._send(500, b"", {})
        elif owner != "team":
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif not path.is_file() or model == "bare":
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            commit, content = "a" * 40, path.read_bytes()
            headers = {"ETag": f'"{file}"', "X-Repo-Commit": commit}
            self._send(200, content, headers, body)

    def _send(self, code: int, content: bytes, headers: dict[str, str], body: bool = True) -> None:
        self.send_response(code)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not written to the test's output."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[http.server.HTTPServer]:
    from huggingface_hub import constants

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _HubHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_tokenizer_of_the_hub_loads_and_then_works_without_a_connection(
    hub: http.server.HTTPServer,
) -> None:
    first = load_tokenizer("team/chat")
    assert first.fingerprint == BUNDLED.fingerprint
    hub.shutdown()
    hub.server_close()
    assert load_tokenizer("team/chat").fingerprint == first.fingerprint
    with pytest.raises(TokenizerError, match=r"the Hub cannot be reached .*; connect once"):
        load_tokenizer("team/never-seen")


def test_a_partly_cached_tokenizer_is_used_without_a_connection(
    hub: http.server.HTTPServer,
) -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download("team/chat", "tokenizer.json")
    hub.shutdown()
    hub.server_close()
    assert load_tokenizer("team/chat").chat_template is None


def test_a_model_without_a_fast_tokenizer_says_what_is_missing(
    hub: http.server.HTTPServer,
) -> None:
    with pytest.raises(TokenizerError, match=r"'?team/bare'? holds no tokenizer.*tokenizer\.json"):
        load_tokenizer("team/bare")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody/nothing", "the Hub has no 'nobody/nothing', or it is private.*HF_TOKEN"),
        ("gated/model", "'gated/model' is gated; accept its terms"),
        ("not an id!", "neither a folder nor a Hub id"),
        ("broken/model", r"the Hub does not give 'broken/model' \(.*500.*\); try later"),
    ],
)
def test_what_the_hub_refuses(hub: http.server.HTTPServer, name: str, message: str) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(name)
    assert "\n" not in str(caught.value)
