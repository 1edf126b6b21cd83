"""The entry of the app: ``scripts/run``, or ``streamlit run app.py`` from this folder."""

from __future__ import annotations

import streamlit as st

# st.App, and not a script with st.navigation: with a folder pages/ beside the main script,
# a deep link to a fresh server would skip the frame.
app = st.App("pages/frame.py")
