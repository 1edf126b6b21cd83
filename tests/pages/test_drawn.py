"""Foreign text on pages: no way to the screen but through ``plain``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.drawn import Module, Program

PAGES = Path(__file__).resolve().parents[2] / "pages"
_FACES = (
    "import html\nimport streamlit as st\nfrom pages.shared.text import Html, Markdown, plain\n"
)


def _wrong(folder: Path, lines: str) -> list[str]:
    (folder / "made.py").write_text(_FACES + lines)
    return Program([Module(folder / "made.py"), Module(PAGES / "shared" / "text.py")]).wrong()


def test_pages_draw_foreign_text_through_plain_alone() -> None:
    assert Program.of(PAGES).wrong() == []


@pytest.mark.parametrize(
    "lines",
    [
        "st.markdown(name)",
        "st.caption(f'rows of {name}')",
        "left.error(str(error))",
        "st.button(label='Use ' + name)",
        "st.info('a', icon=name)",
        "st.metric('cap', name)",
        "st.progress(0.5, text=name)",
        "st.tabs([name])",
        "st.tabs(names)",
        "st.header(f'{name!r}')",
        "st.header(f'{name:>20}')",
        "st.caption(' · '.join(names))",
        "st.caption(' · '.join(f'{one}' for one in names))",
        "st.checkbox('x', help=f'of {one.path}')",
        "st.checkbox(**{'label': name})",
        "st.segmented_control('kind', names)",
        "st.segmented_control('kind', ['a'], format_func=lambda one: name)",
        "st.markdown('a', unsafe_allow_html=True)",
        "st.write('a')",
        "st.table({'a': ['b']})",
        "st.html(f'<b>{plain(name)}</b>')",
        "st.markdown(html.escape(name))",
        "draw = st.markdown\ndraw(name)",
        "words = 'a' if True else name\nst.caption(words)",
        "words = 'a'\nwords += name\nst.caption(words)",
        "for words in ('a', name):\n    st.caption(words)",
        "TABLE = {'a': name}\nst.caption(TABLE['a'])",
        "def said(x) -> str:\n    return plain(x)\nst.caption(said(name))",
        "def said(x) -> Markdown:\n    return x",
        "def box(label: Markdown):\n    st.caption(label)\nbox(name)",
        "def box(label):\n    st.caption(label)",
        "try:\n    pass\nexcept ValueError as error:\n    st.error(f'{error}')",
        "while name := ask():\n    st.caption(name)",
    ],
)
def test_a_way_around_is_found(lines: str, tmp_path: Path) -> None:
    assert len(_wrong(tmp_path, lines)) == 1


@pytest.mark.parametrize(
    "lines",
    [
        "st.markdown('**Rows**')",
        "st.caption(f'{n:,} rows of {plain(name)}')",
        "st.metric('rows', f'{n:.2f}', 'a' if n else '')",
        "TABLE = {'a': 'b'}\nst.tabs(list(TABLE))\nst.caption(TABLE[name])",
        "for words in ('a', 'b'):\n    st.caption(words)",
        "def said(n: int) -> Markdown:\n    return f'{n} rows'\nst.caption(said(2))",
        "def box(label: Markdown):\n    st.caption(label)\nbox(plain(name))",
        "st.html(f'<b>{html.escape(name)}</b>')",
        "st.selectbox('rows', names, format_func=str)",
    ],
)
def test_what_is_safe_passes(lines: str, tmp_path: Path) -> None:
    assert _wrong(tmp_path, lines) == []
