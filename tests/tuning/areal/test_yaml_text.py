"""Untrusted YAML is read within bounds, and edits touch nothing else."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuning.areal.yaml_nodes import REMOVED
from tuning.areal.yaml_text import ConfigError, YamlText

BOMB = "\n".join(
    ["a: &a [x, x, x, x, x, x, x, x, x]"]
    + [
        f"{name}: &{name} [{', '.join(['*' + below] * 9)}]"
        for below, name in zip("abcdefg", "bcdefgh", strict=True)
    ]
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a:\n\tb: 1", 2, "two spaces"),
        ("actor:\n  path: 1\n  path: 2", 3, "`path` is set twice, first on line 2"),
        ("a: 1\nb: [1, 2", 2, "Close the bracket"),
        ("a: 1\nb: *y", 2, "write the value out"),
        ("a: 1\nb: c: d", 2, "quotes"),
        ("a: !!python/object/apply:os.system [x]", 1, "Remove the `!` tag"),
        ("a: 1\n---\nb: 2", 2, "one document"),
        ("- 1", 1, "no mapping"),
        ("only words", 1, "no mapping"),
        ("a: &a\n  b: *a", 1, "contains itself"),
        ("? [a, b]\n: 1", 1, "plain name"),
        ("a: 1\nb: ${c", 2, "closing brace"),
        (BOMB, 4, "nested aliases"),
        (b"a: 1\nb: \xff", 2, "UTF-8"),
    ],
)
def test_what_cannot_be_read_is_a_sentence_with_its_line(
    text: str | bytes, line: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=r"^Line \d+: ") as caught:
        _ = YamlText.read(text).values
    assert caught.value.line == line
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("[" * 5000, "nested"),
        ("a: \x00", "no YAML text"),
        ("x" * 50 * 2**20, r"50\.0 MiB"),
    ],
)
def test_what_has_no_line_says_what_to_do(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        YamlText.read(text)


def test_values_are_those_of_areals_reader() -> None:
    values = YamlText.read("a: yes\nb: 1e-5\nc: 010\nd: ${a.b}\ne: {1: x}").values
    assert values == {"a": True, "b": 1e-5, "c": 8, "d": "${a.b}", "e": {1: "x"}}


EDITS = [
    ("a: 1 # keep\nb: 2\n", "a", 5, "a: 5 # keep\nb: 2\n"),
    ("a: &n 1\nb: 2\n", "a", 5, "a: &n 5\nb: 2\n"),
    ("a:\nb: 2\n", "a", 5, "a: 5\nb: 2\n"),
    ("a: 'x'\nb: 2", "c", True, "a: 'x'\nb: 2\nc: true\n"),
    ("m: {x: 1}\n", "m.y", 5, "m: {x: 1, y: 5}\n"),
    ("m: {}\n", "m.y", 5, "m: {y: 5}\n"),
    ("m:\n  x: 1\n\n# end\nz: 1\n", "m.y", False, "m:\n  x: 1\n  y: false\n\n# end\nz: 1\n"),
    ("m: null\nz: 1\n", "m.y", 5, "m: {y: 5}\nz: 1\n"),
    ("m:\nz: 1\n", "m.y", 5, "m: {y: 5}\nz: 1\n"),
    ("a: 1\n", "m.n.y", 5, "a: 1\nm:\n  n:\n    y: 5\n"),
    ("s: &s {x: 1}\nm: *s\n", "m.x", 5, "s: &s {x: 1}\nm: {<<: *s, x: 5}\n"),
    ("c: &c 1\na: *c\n", "a", 5, "c: &c 1\na: 5\n"),
    (
        "m:\n    x: 1\n    l:\n    - p: 1\n",
        "m.y",
        5,
        "m:\n    x: 1\n    l:\n    - p: 1\n    y: 5\n",
    ),
    ("m:\r\n  x: 1\r\n", "m.y", 5, "m:\r\n  x: 1\r\n  y: 5\r\n"),
    (
        "m:\n  t: |\n    one\n    two\nz: 1\n",
        "m.y",
        5,
        "m:\n  t: |\n    one\n    two\n  y: 5\nz: 1\n",
    ),
]


@pytest.mark.parametrize(("before", "path", "value", "after"), EDITS)
def test_an_edit_touches_only_its_words(before: str, path: str, value: object, after: str) -> None:
    assert YamlText.read(before).with_values({path: value}).text == after


def test_an_edit_that_runs_through_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="Line 1: `m` is no mapping"):
        YamlText.read("m: text\n").with_values({"m.x": 1})


_plain = st.one_of(st.booleans(), st.integers(0, 10**6), st.sampled_from(["x", "a b", "${q.r}"]))
_tree = st.recursive(
    _plain,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcdef"), inner, max_size=4), st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    values=st.dictionaries(st.sampled_from("abcdef"), _tree, min_size=1, max_size=5),
    path=st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=3),
    value=st.one_of(st.booleans(), st.integers(0, 10**6)),
    flow=st.sampled_from([None, False, True]),
)
def test_after_any_edit_the_file_says_the_old_values_and_the_new_one(
    values: dict, path: list[str], value: object, flow: bool | None
) -> None:
    text = yaml.safe_dump(values, default_flow_style=flow, sort_keys=False)
    expected = yaml.safe_load(text)
    node, fits = expected, True
    for part in path[:-1]:
        if not isinstance(node, dict):
            break
        node = node.setdefault(part, {})
    fits = isinstance(node, dict) and not isinstance(node.get(path[-1]), dict | list)
    read = YamlText.read(text)
    if not fits:
        with pytest.raises(ConfigError, match="no mapping here"):
            read.with_values({".".join(path): value})
        return
    node[path[-1]] = value
    edited = read.with_values({".".join(path): value})
    assert YamlText.read(edited.text).values == expected
    kept = [line for line in text.splitlines() if line in edited.text]
    assert len(kept) >= len(text.splitlines()) - 1


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        ("a: 1\nb: 2  # two\nc: 3\n", "b", "a: 1\nc: 3\n"),
        ("a:\n  x: 1\n  y:\n    z: 1\nb: 2\n", "a.y", "a:\n  x: 1\nb: 2\n"),
        ("a:\n  x: 1\nb: 2\n", "a.x", "b: 2\n"),
        ("a: {x: 1, y: 2, z: 3}\n", "a.x", "a: {y: 2, z: 3}\n"),
        ("a: {x: 1, y: 2, z: 3}\n", "a.y", "a: {x: 1, z: 3}\n"),
        ("a: {x: 1, y: [1, 2]} # here\n", "a.y", "a: {x: 1} # here\n"),
    ],
)
def test_a_key_is_taken_out_and_nothing_else(text: str, path: str, after: str) -> None:
    assert YamlText.read(text).with_values({path: REMOVED}).text == after


def test_tabs_are_read_where_areals_reader_reads_them() -> None:
    assert YamlText.read("a:\t1\nb: 2\t# two\nc:\t\n  d: 1\n").values == {
        "a": 1,
        "b": 2,
        "c": {"d": 1},
    }
    with pytest.raises(ConfigError, match="Line 2: a tab"):
        YamlText.read("a:\n\tb: 1\n")
