"""The entry of the app: ``scripts/run``, or ``streamlit run app.py`` from this folder."""

from __future__ import annotations

import importlib
import threading

import streamlit as st

# What the first page needs beside Streamlit: read while the browser still opens.
_HEAVY = ("plotly.graph_objects", "pandas", "tuning.plan.batch", "packing.sources.load")


def _import_ahead() -> None:
    for name in _HEAVY:
        importlib.import_module(name)


threading.Thread(target=_import_ahead, name="import-ahead", daemon=True).start()
# st.App, and not a script with st.navigation: with a folder pages/ beside the main script,
# a deep link to a fresh server would skip the frame.
app = st.App("pages/frame.py")
