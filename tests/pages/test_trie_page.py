"""The Trie page without a browser: the view, rows, search, branches, and what drawings are sent."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_pages import opened, own_folders  # noqa: F401

PAYLOAD_BUDGET = 300_000


def sent(app: AppTest, name: str) -> Any:
    """The data of a drawing: "forest", "strip" or "icicle"."""
    return json.loads(
        next(part.proto.json for part in app.get("bidi_component") if part.key == name)
    )


def numbers(text: str, kind: type = np.int32) -> list[Any]:
    return np.frombuffer(base64.b64decode(text), dtype=kind).tolist()


def button(app: AppTest, key: str) -> Any:
    return next(b for b in app.button if b.key == key)


def words(app: AppTest) -> str:
    """All text of the page."""
    plain = [m.value for m in [*app.markdown, *app.caption]]
    return "\n".join([*plain, *(h.proto.body for h in app.get("html"))])


def test_a_drawing_is_small_and_an_icicle_has_at_most_300_marks() -> None:
    for cap in ("4096", "131072"):
        app = opened("trie", cap=cap)
        for name in ("forest", "strip", "icicle"):
            assert 100 < len(json.dumps(sent(app, name))) < PAYLOAD_BUDGET
        assert 1 < len(sent(app, "icicle")["marks"]) <= 300


def test_the_forest_is_sorted_by_what_is_asked_and_shows_every_tree() -> None:
    app = opened("trie", cap="4096")
    plain = sent(app, "forest")
    order, tokens = numbers(plain["order"]), numbers(plain["tokens"])
    assert order == list(range(len(tokens)))
    app.selectbox(key="tree_sort.widget").set_value("waste").run()
    order = numbers(sent(app, "forest")["order"])
    assert sorted(order) == list(range(len(tokens)))
    assert [tokens[t] for t in order] == sorted(tokens)
    app.selectbox(key="tree_sort.widget").set_value("sharing").run()
    data = sent(app, "forest")
    reuse = numbers(data["reuse"], np.float32)
    shown = [reuse[t] for t in numbers(data["order"])]
    assert shown == sorted(shown, reverse=True)


def test_a_link_brings_tree_node_token_row_and_window_back() -> None:
    app = opened("trie", cap="4096", tree="2", node="3", token="60", row="25", x0="40", x1="160")
    strip = sent(app, "strip")
    assert (strip["node"], strip["token"], strip["window"]) == (3, 60, [40, 160])
    assert len(strip["words"]) == 120, "so few tokens are sent as text"
    assert sent(app, "forest")["tree"] == 2
    assert sent(app, "icicle")["chosen"] == 3
    assert app.query_params["node"] in ("3", ["3"])


@pytest.mark.parametrize("view", [{"tree": "99999"}, {"node": "99999"}, {"x0": "9", "x1": "3"}])
def test_a_link_from_another_packing_shows_what_there_is(view: dict[str, str]) -> None:
    app = opened("trie", cap="4096", **view)
    assert sent(app, "strip")["node"] == -1 and sent(app, "strip")["window"] is None


def test_row_and_its_number_lead_to_its_tree_and_its_path_is_marked_everywhere() -> None:
    app = opened("trie", cap="4096")
    app.text_input(key="trie_search.widget").set_value("row 300").run()
    strip = sent(app, "strip")
    path, rows = numbers(strip["path"]), numbers(strip["rows"])
    assert strip["row"] == 300 and len(path) > 1
    assert sent(app, "forest")["rowTree"] == sent(app, "forest")["tree"]
    assert any(mark["path"] for mark in sent(app, "icicle")["marks"])
    assert "Row 300" in words(app)
    ends, starts = numbers(strip["end"]), numbers(strip["start"])
    shared = sum(ends[k] - starts[k] for k in path if rows[k] > 1)
    assert f"{shared:,} shared" in words(app)
    button(app, "clear_row").click().run()
    assert sent(app, "strip")["row"] == -1 and numbers(sent(app, "strip")["path"]) == []
    assert "Row 300" not in words(app)


def test_a_row_of_a_node_can_be_followed_and_is_the_row_of_the_dataset_page() -> None:
    app = opened("trie", cap="4096")
    row = next(b for b in app.button if str(b.key).startswith("through"))
    row.click().run()
    assert sent(app, "strip")["row"] == int(row.label.replace(",", ""))
    app.switch_page("dataset/page.py").run()
    assert f"Row {row.label}" in words(app)


def test_a_row_keeps_its_number_in_a_smaller_batch() -> None:
    app = opened("trie", cap="4096", samples="2", row="8")
    assert sent(app, "strip")["row"] == 8
    app = opened("trie", cap="4096", samples="2", row="5")
    assert sent(app, "strip")["row"] == -1 and "Row 5 is not in this batch" in words(app)


def test_a_row_that_is_not_there_is_said_once_and_not_carried_along() -> None:
    app = opened("trie", cap="4096", row="99999")
    assert "There is no row 99,999: the last one is 511." in words(app)
    assert "row" not in app.query_params
    assert "99,999" not in words(app.run())


def test_text_is_found_and_a_hit_opens_its_node() -> None:
    app = opened("trie", cap="4096")
    app.text_input(key="trie_search.widget").set_value("PROBLEM:").run()
    assert "looked at the whole tree" in words(app) and "<mark>Problem:</mark>" in words(app)
    hit = next(b for b in app.button if str(b.key).startswith("hit"))
    hit.click().run()
    assert sent(app, "strip")["node"] == int(str(hit.key)[3:])
    app.text_input(key="trie_search.widget").set_value("no such words").run()
    assert "0 places found" in words(app)


def test_branches_stand_side_by_side_and_lead_down_and_the_crumbs_lead_up() -> None:
    app = opened("trie", cap="4096", node="0")
    assert "Where rows part here" in words(app)
    child = next(b for b in app.button if str(b.key).startswith("child"))
    child.click().run()
    at = int(str(child.key)[5:])
    assert sent(app, "icicle")["chosen"] == at > 0
    button(app, "crumb-1").click().run()
    assert sent(app, "icicle")["chosen"] == -1


def test_a_leaf_is_drawn_among_its_siblings() -> None:
    strip = sent(opened("trie", cap="4096"), "strip")
    leaf = len(numbers(strip["start"])) - 1
    icicle = sent(opened("trie", cap="4096", node=str(leaf)), "icicle")
    assert icicle["chosen"] == leaf and icicle["up"] == icicle["root"] != leaf
    assert leaf in [mark["node"] for mark in icicle["marks"]] and len(icicle["marks"]) > 2


def test_rows_without_a_mask_and_without_text_draw_too(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text("\n".join(json.dumps({"input_ids": [7, 8, i]}) for i in (1, 1, 2)))
    app = opened("trie", cap="128", data=json.dumps({"kind": "file", "location": str(path)}))
    strip = sent(app, "strip")
    assert numbers(strip["start"]) == [0, 2, 3] and numbers(strip["rows"]) == [3, 2, 1]
    assert strip["trained"] is None
    assert "<mark>1</mark> " in words(app), "ids stand apart"


def test_hostile_text_is_escaped_in_card_branches_and_hits(tmp_path: Path) -> None:
    path = tmp_path / "hostile.jsonl"
    bad = "<img src=x onerror=alert(1)> **bold** "
    lines = [{"prompt": bad, "completion": f"{bad}{i}"} for i in range(4)]
    path.write_text("\n".join(map(json.dumps, lines)))
    app = opened("trie", data=json.dumps({"kind": "file", "location": str(path)}))
    app.text_input(key="trie_search.widget").set_value("onerror").run()
    bodies = [h.proto.body for h in app.get("html")]
    assert any("&lt;img" in body for body in bodies) and not any("<img" in b for b in bodies)
    labels = [b.label for b in app.button] + [m.value for m in [*app.markdown, *app.caption]]
    assert not any("onerror" in label for label in labels)


def test_the_tables_say_what_the_drawings_say() -> None:
    app = opened("trie", cap="4096")
    app.session_state["tree_table.expander"] = True
    app.session_state["node_table.expander"] = True
    app.run()
    trees, nodes = (table.value for table in app.dataframe)
    forest, strip = sent(app, "forest"), sent(app, "strip")
    assert trees["tokens"].tolist() == numbers(forest["tokens"])
    assert (trees["tokens"] + trees["padding"] == 4096).all()
    assert nodes["rows"].tolist() == numbers(strip["rows"])
    assert nodes["starts at"].tolist() == numbers(strip["start"])
