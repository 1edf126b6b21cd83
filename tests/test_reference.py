"""The reference pages are what the code says now, and the index leads to every page."""

from __future__ import annotations

import re

import pytest

from scripts.reference import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_is_current(name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")
    assert committed == PAGES[name](), "run: python -m scripts.reference"


def test_the_index_leads_to_every_page_and_nowhere_else() -> None:
    linked = re.findall(r"\]\(([^):#]+)\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert {name for name in linked if name.endswith(".md") and "/" not in name} == pages
    assert all((DOCS / name).exists() for name in linked)
