"""Drawings have a name from the first moment on, before their data has come."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from pages.shared import canvas

PAGES = Path(canvas.__file__).parents[1]
DRAWN_BY = sorted(
    path.relative_to(PAGES.parent)
    for path in PAGES.rglob("*.py")
    if "= component(" in path.read_text(encoding="utf-8")
)


class Unnamed(HTMLParser):
    """Elements that a screen reader would meet as a picture without words."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = dict(attrs)
        drawn = tag == "canvas" or "role" in have
        if drawn and not have.get("aria-label") and have.get("aria-hidden") != "true":
            self.found.append(f"{tag} {have}")


@pytest.mark.parametrize("path", DRAWN_BY, ids=str)
def test_a_drawing_is_named_before_its_data_comes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def mounted(*_: Any, html: str, **__: Any) -> None:
        made.append(html)

    import_module(".".join(path.with_suffix("").parts))  # what it takes from others is the true one
    monkeypatch.setattr(st.components.v2, "component", mounted)
    spec = spec_from_file_location("drawn", PAGES.parent / path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "drawn", module)
    spec.loader.exec_module(module)
    unnamed = Unnamed()
    unnamed.feed("".join(made))
    assert made and not unnamed.found


def test_at_least_the_drawings_that_we_know_are_looked_at() -> None:
    names = {path.stem for path in DRAWN_BY}
    assert names >= {"fold", "before_after", "cap_chart", "cap_slider", "forest", "icicle", "strip"}
