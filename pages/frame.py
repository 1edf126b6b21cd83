"""The frame around every page: navigation, the summary strip, undo, and the URL."""

from __future__ import annotations

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from pages.shared import state, style, summary, waiting
from pages.shared.text import plain
from pages.shared.widgets import draw_asked
from tuning.jobs.folders import problem

st.set_page_config(page_title="Espalier", page_icon="🌿", layout="wide")


def _page(name: str, icon: str, default: bool = False) -> StreamlitPage:
    """The page of the folder ``name``, at ``/name``."""
    return st.Page(
        f"{name}/page.py",
        title=name.capitalize(),
        icon=f":material/{icon}:",
        url_path=name,
        default=default,
    )


page = st.navigation(
    [
        _page("overview", "lightbulb", default=True),
        _page("dataset", "database"),
        _page("trie", "account_tree"),
        _page("packing", "inventory_2"),
        _page("kernels", "memory"),
        _page("tune", "speed"),
        _page("compare", "compare_arrows"),
        _page("export", "ios_share"),
    ],
    position="top",
)
waiting.forget()
state.read_url()
state.write_url()  # a page may stop half way; its link must still be whole
style.apply()
with st.container(key="summary"):
    summary.draw()
for sentence in state.refused():
    st.warning(plain(sentence), icon=":material/link_off:")
if sentence := problem():
    st.warning(plain(sentence), icon=":material/folder_off:")
if (asked := state.asked()) is not None:
    draw_asked(asked, state.load_asked, "link")
page.run()
state.write_url()
waiting.redraw()
