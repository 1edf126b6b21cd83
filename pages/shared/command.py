"""The same from the command line: what this page shows, without a browser."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pages.shared import state
from tuning.plan.commands import command_line


def draw(name: str, more: Sequence[str] = ()) -> None:
    """The ``python -m tuning`` call that gives this page's figures.

    more: words of the command's own
    """
    show(command_line(name, state.plan(), more))


def show(line: str) -> None:
    """The line with words of one's own above it."""
    st.caption("The same from the command line")
    st.code(line, language="bash", wrap_lines=True)
