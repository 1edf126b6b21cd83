"""The frame around every page: navigation, the summary strip, undo, and the URL."""

from __future__ import annotations

import streamlit as st

from pages import state
from pages.components import style, summary

st.set_page_config(page_title="Espalier", page_icon="🌿", layout="wide")

page = st.navigation(
    [
        st.Page("dataset.py", title="Dataset", icon=":material/database:", default=True),
        st.Page("trie.py", title="Trie", icon=":material/account_tree:"),
        st.Page("packing.py", title="Packing", icon=":material/inventory_2:"),
        st.Page("kernels.py", title="Kernels", icon=":material/memory:"),
        st.Page("tune.py", title="Tune", icon=":material/speed:"),
        st.Page("compare.py", title="Compare", icon=":material/compare_arrows:"),
        st.Page("export.py", title="Export", icon=":material/ios_share:"),
    ],
    position="top",
)
state.read_url()
state.write_url()  # a page may stop half way; its link must still be whole
style.apply()
with st.container(key="summary"):
    summary.draw()
for sentence in state.refused():
    st.warning(sentence, icon=":material/link_off:")
page.run()
state.write_url()
