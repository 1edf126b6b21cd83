"""The entry of the app: ``scripts/run``, or ``streamlit run app.py`` from this folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from pages import __file__ as pages
from pages.shared.guard import Guard


def _import_ahead() -> None:
    """What the first page needs beside Streamlit: read while the browser still opens."""
    import pandas
    import plotly.graph_objects

    from packing.sources import load
    from tuning.plan import batch

    del pandas, plotly, load, batch


os.umask(0o077)  # what is uploaded and measured is its owner's
threading.Thread(target=_import_ahead, name="import-ahead", daemon=True).start()
# st.App, and not a script with st.navigation: with a folder pages/ beside the main script,
# a deep link to a fresh server would skip the frame.
app = st.App(Path(pages).parent / "frame.py", middleware=[Middleware(Guard)])
