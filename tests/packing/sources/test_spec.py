"""A spec survives a link, and a link that was altered ends in a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.sources.errors import SourceError
from packing.sources.spec import ROLES, Simulate, SourceSpec, parse_rows

words = st.text(min_size=1, max_size=12).filter(lambda t: "\0" not in t)
simulations = st.one_of(
    st.none(),
    st.builds(
        Simulate,
        samples=st.integers(1, 64),
        lengths=st.sampled_from(["lognormal", "column", "answer"]),
        median=st.floats(1, 1e6),
        sigma=st.floats(0, 3),
        max_new_tokens=st.none() | st.integers(1, 10**6),
        seed=st.integers(0, 2**31),
    ),
    st.just(Simulate(lengths="percentiles", percentiles=((10, 20), (99.5, 400.0)))),
)
specs = st.builds(
    SourceSpec,
    kind=st.sampled_from(["sample", "hub", "file", "upload"]),
    location=words,
    config=st.none() | words,
    split=st.none() | words,
    revision=st.none() | words,
    streaming=st.booleans(),
    start=st.integers(0, 10**9),
    limit=st.none() | st.integers(1, 10**9),
    roles=st.lists(st.tuples(st.sampled_from(ROLES), words), max_size=4).map(tuple),
    expand=st.sampled_from(["conversation", "turn"]),
    style=st.sampled_from(["individual", "concat"]),
    keep_thinking=st.none() | st.booleans(),
    tokenizer=st.none() | words,
    versions=st.lists(words, max_size=3).map(tuple),
    simulate=simulations,
)


@given(specs)
def test_a_link_gives_back_the_same_spec(spec: SourceSpec) -> None:
    assert SourceSpec.from_query(spec.to_query()) == spec


def test_a_link_holds_only_what_differs_from_the_defaults() -> None:
    assert SourceSpec("sample", "math-grpo").to_json() == {
        "kind": "sample",
        "location": "math-grpo",
    }
    made = SourceSpec("file", "a.jsonl", simulate=Simulate(samples=4)).to_json()
    assert made["simulate"] == {"samples": 4}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("sample:math-grpo", SourceSpec("sample", "math-grpo")),
        ("hub:team/rollouts", SourceSpec("hub", "team/rollouts")),
        ("hub:team/r:test", SourceSpec("hub", "team/r", split="test")),
        ("hub:team/r@v2:test", SourceSpec("hub", "team/r", revision="v2", split="test")),
        ("runs/*.jsonl", SourceSpec("file", "runs/*.jsonl")),
        ("C:/runs/a.npz", SourceSpec("file", "C:/runs/a.npz")),
    ],
)
def test_the_rows_argument_of_commands(argument: str, expected: SourceSpec) -> None:
    assert parse_rows(argument) == expected


@pytest.mark.parametrize(
    ("link", "names"),
    [
        ("{", "link"),
        ("[" * 100_000, "link"),
        ("[]", "spec"),
        ('{"kind":"file"}', "location"),
        ('{"kind":"ftp","location":"x"}', "kind"),
        ('{"kind":"file","location":""}', "location"),
        ('{"kind":"file","location":"a\\u0000b"}', "location"),
        ('{"kind":"file","location":["x"]}', "location"),
        ('{"kind":"file","location":"x","shell":"rm"}', "shell"),
        ('{"kind":"file","location":"x","limit":"9"}', "limit"),
        ('{"kind":"file","location":"x","limit":0}', "rows"),
        ('{"kind":"file","location":"x","limit":1e400}', "limit"),
        ('{"kind":"file","location":"x","start":true}', "start"),
        ('{"kind":"file","location":"x","roles":{"a":"b"}}', "roles"),
        ('{"kind":"file","location":"x","roles":[["boss","b"]]}', "roles"),
        ('{"kind":"file","location":"x","roles":[["text",1]]}', "roles"),
        ('{"kind":"file","location":"x","versions":[1]}', "versions"),
        ('{"kind":"file","location":"x","expand":"all"}', "expand"),
        ('{"kind":"file","location":"x","simulate":3}', "simulate"),
        ('{"kind":"file","location":"x","simulate":{"samples":0}}', "simulate.samples"),
        ('{"kind":"file","location":"x","simulate":{"median":NaN}}', "median"),
        ('{"kind":"file","location":"x","simulate":{"lengths":"percentiles"}}', "percentiles"),
    ],
)
def test_an_altered_link_is_refused_by_field(link: str, names: str) -> None:
    with pytest.raises(SourceError, match=names):
        SourceSpec.from_query(link)


def test_roles_are_replaced_one_by_one() -> None:
    spec = SourceSpec("file", "x", roles=(("prompt", "q"), ("group", "id")))
    assert spec.with_roles({"prompt": "question"}).roles == (
        ("group", "id"),
        ("prompt", "question"),
    )
