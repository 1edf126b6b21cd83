"""The bundled data sets: pinned, right where they say so, shared as announced."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.sources.chat.tokenizer import Tokenizer
from packing.sources.chat.tokenizer_files import load_tokenizer
from packing.sources.load import load
from packing.sources.samples import SAMPLES, sample_records
from packing.sources.spec import SourceSpec

EQUATION = re.compile(r"(-?[\d.]+) ([-+*×/÷]) (-?[\d.]+) = (-?[\d.]+\d|-?\d)")
OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "×": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "÷": lambda a, b: a / b,
}
# Published results rest on these records: a change must be meant, and these figures renewed.
# SHA-256 of the bundled file; the first 16 digits of that of its records as JSON, keys sorted.
PINNED = {
    "math-grpo": (
        "f36de0ceabc6f646397c972d00dc6e88ebeccd84077fca3ee59b64c292a3aaaf",
        "8d6157030fee927c",
    ),
    "agent-turns": (
        "acef13dc3c3b6b7cccf19457dfe696ee791bd9eeb825360527d1879eb94bfaf0",
        "91418ac0efada8b0",
    ),
    "preference-pairs": (
        "4451091685cf529002cc34c598a70a845ca5410d57b6b1f4e476176835b7a9bb",
        "b5d65f3b83a620ab",
    ),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer("bundled")


def test_the_bundled_files_are_those_that_results_were_published_with() -> None:
    assert list(SAMPLES) == list(PINNED)
    for name, (file_digest, records_digest) in PINNED.items():
        assert hashlib.sha256(SAMPLES[name].path.read_bytes()).hexdigest() == file_digest
        text = json.dumps(sample_records(name), sort_keys=True)
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == records_digest


@pytest.mark.parametrize("name", SAMPLES)
def test_a_bundled_file_read_as_any_other_gives_the_same_rows(name: str) -> None:
    rows = load(SourceSpec("sample", name)).rows
    assert load(SourceSpec("file", str(SAMPLES[name].path))).rows.fingerprint == rows.fingerprint


def test_every_sample_says_that_it_is_synthetic() -> None:
    assert list(SAMPLES) == ["math-grpo", "agent-turns", "preference-pairs"]
    for name, sample in SAMPLES.items():
        assert sample.name == name and sample.synthetic
        assert sample.title and "Synthetic" in sample.description


def test_an_unknown_sample_names_those_there_are() -> None:
    with pytest.raises(KeyError, match="math-grpo, agent-turns, preference-pairs"):
        sample_records("math")


def test_math_has_groups_of_eight_with_right_and_wrong_answers() -> None:
    records = sample_records("math-grpo")
    assert len(records) == 64 and len({r["problem_id"] for r in records}) == 64
    assert len({r["prompt"] for r in records}) == 64
    rewards = [r["rewards"] for r in records]
    assert all(len(r["completions"]) == len(r["rewards"]) == 8 for r in records)
    assert 0.3 < np.mean(rewards) < 0.8
    assert sum(0 < sum(r) < 8 for r in rewards) > 32, "most groups must teach something"


def test_math_rewards_follow_the_answer_line() -> None:
    for record in sample_records("math-grpo"):
        for completion, reward in zip(record["completions"], record["rewards"], strict=True):
            said = completion.rsplit("\nAnswer: ", 1)[1]
            assert (said == record["answer"]) == (reward == 1.0)


def test_every_equation_of_a_right_solution_is_right() -> None:
    checked = 0
    for record in sample_records("math-grpo"):
        for completion, reward in zip(record["completions"], record["rewards"], strict=True):
            for left, op, right, value in EQUATION.findall(completion) if reward else ():
                exact = OPERATIONS[op](Fraction(left), Fraction(right))
                assert exact == Fraction(value), f"{left} {op} {right} = {value}"
                checked += 1
    assert checked > 2000


def test_wrong_solutions_do_hold_mistakes_in_their_sums() -> None:
    wrong = 0
    for record in sample_records("math-grpo"):
        for completion, reward in zip(record["completions"], record["rewards"], strict=True):
            for left, op, right, value in EQUATION.findall(completion) if not reward else ():
                exact = OPERATIONS[op](Fraction(left), Fraction(right))
                wrong += abs(exact - Fraction(value)) >= 1
    assert wrong > 20


def test_math_lengths_have_a_long_tail_and_siblings_part_at_many_depths(
    tokenizer: Tokenizer,
) -> None:
    records = sample_records("math-grpo")
    ids = tokenizer.encode_batch([c for r in records for c in r["completions"]])
    lengths = np.array([len(i) for i in ids])
    assert lengths.max() > 6 * np.median(lengths)
    depths = set()
    for group in range(64):
        order = PrefixOrder.of(Rows.from_lists(ids[8 * group : 8 * group + 8]))
        depths |= set(order.lcp[1:].tolist())
    assert len(depths) > 60 and max(depths) > 80


def test_agent_conversations_are_long_chats_with_tools() -> None:
    records = sample_records("agent-turns")
    assert len(records) == 48
    assert {(r["task_id"], r["trial"]) for r in records} == {
        (f"task-{task:02d}", trial) for task in range(12) for trial in range(4)
    }
    assert {r["reward"] for r in records} == {0.0, 1.0}
    tools = {tool["function"]["name"] for tool in records[0]["tools"]}
    called = set()
    for record in records:
        pending = None
        for message in record["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] == pending
            if message["role"] == "assistant":
                assert message["reasoning_content"]
                calls = message.get("tool_calls", [])
                assert bool(message["content"]) != bool(calls), "a message or a call, never both"
                pending = calls[0]["id"] if calls else None
                for call in calls:
                    called.add(call["function"]["name"])
                    json.loads(call["function"]["arguments"])
    assert called <= tools and len(called) >= 9
    turns = [sum(m["role"] == "assistant" for m in r["messages"]) for r in records]
    assert sum(turns) >= 400 and min(turns) >= 5


def test_tries_of_one_task_start_with_the_same_question() -> None:
    openings: dict[str, set[str]] = {}
    for record in sample_records("agent-turns"):
        openings.setdefault(record["task_id"], set()).add(record["messages"][1]["content"])
    assert all(len(texts) == 1 for texts in openings.values())


def test_successful_late_parcel_tries_pay_the_voucher_of_the_policy() -> None:
    amounts = {"basic": 5, "plus": 10, "summit": 15}
    seen = 0
    for record in sample_records("agent-turns"):
        results = [json.loads(m["content"]) for m in record["messages"] if m["role"] == "tool"]
        for message in record["messages"]:
            for call in message.get("tool_calls", []):
                if call["function"]["name"] == "send_voucher":
                    paid = json.loads(call["function"]["arguments"])["amount"]
                    assert (paid == amounts[results[0]["tier"]]) == (record["reward"] == 1.0)
                    seen += 1
    assert seen


def test_pairs_are_many_and_their_answers_differ() -> None:
    records = sample_records("preference-pairs")
    assert len(records) == 120 and len({r["prompt"] for r in records}) == 120
    assert all(r["chosen"] != r["rejected"] for r in records)
    assert len({r["chosen"] for r in records}) == len({r["rejected"] for r in records}) == 120


def _math(records: list[dict[str, Any]], tokenizer: Tokenizer) -> list[str]:
    return [r["prompt"] + c for r in records for c in r["completions"]]


def _turns(records: list[dict[str, Any]], tokenizer: Tokenizer) -> list[str]:
    return [
        tokenizer.render(r["messages"][: i + 1], r["tools"])
        for r in records
        for i, message in enumerate(r["messages"])
        if message["role"] == "assistant"
    ]


def _pairs(records: list[dict[str, Any]], tokenizer: Tokenizer) -> list[str]:
    return [f"{r['prompt']}\n\n{r[k]}" for r in records for k in ("chosen", "rejected")]


@pytest.mark.parametrize(
    ("name", "expand", "tokens", "low", "high"),
    [
        ("math-grpo", _math, (120_000, 200_000), 0.3, 0.8),
        ("agent-turns", _turns, (500_000, 3_000_000), 0.01, 0.35),
        ("preference-pairs", _pairs, (20_000, 60_000), 0.93, 1.0),
    ],
)
def test_sizes_and_sharing_are_as_announced(
    name: str,
    expand: Callable[[list[dict[str, Any]], Tokenizer], list[str]],
    tokens: tuple[int, int],
    low: float,
    high: float,
    tokenizer: Tokenizer,
) -> None:
    rows = Rows.from_lists(tokenizer.encode_batch(expand(sample_records(name), tokenizer)))
    assert tokens[0] < rows.n_tokens < tokens[1]
    assert low < PrefixOrder.of(rows).tree_tokens() / rows.n_tokens < high


def test_the_policy_is_long_and_shared_by_all(tokenizer: Tokenizer) -> None:
    policies = {r["messages"][0]["content"] for r in sample_records("agent-turns")}
    assert len(policies) == 1
    assert len(tokenizer.encode_batch([*policies])[0]) >= 1200


def test_dropped_reasoning_makes_the_turns_of_a_conversation_branch(tokenizer: Tokenizer) -> None:
    records = sample_records("agent-turns")[:4]
    tree_tokens = {}
    for keep in (None, True):
        texts = [
            tokenizer.render(r["messages"][: i + 1], r["tools"], keep_thinking=keep)
            for r in records
            for i, message in enumerate(r["messages"])
            if message["role"] == "assistant"
        ]
        rows = Rows.from_lists(tokenizer.encode_batch(texts))
        tree_tokens[keep] = PrefixOrder.of(rows).tree_tokens()
    assert tree_tokens[None] > 1.1 * tree_tokens[True]
