"""A link for this server, and a file for every other: both open the plan with its results."""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from pages.export.known import Known
from pages.export.parts import kept, link_to
from pages.shared.text import Markdown, plain
from pages.shared.widgets import download
from tuning.plan.numbers import many
from tuning.workspace.file import workspace_bytes

_READABLE = "It opens anywhere. Rows are token ids: whoever has the tokenizer can read their text."
_LOCAL = ("127.0.0.1", "localhost", "::1")


def draw_link(known: Known) -> None:
    """The address that opens this plan on the Tune page, in a box with copy."""
    st.header("Copy link", anchor=False)
    link = link_to(known.plan, "tune")
    if not link:
        st.caption("The address of this server is not known; copy it from the address bar.")
        return
    st.code(link, language=None, wrap_lines=True)
    said = "It opens these settings on this server, with everything measured here."
    if urlsplit(link).hostname in _LOCAL:
        said += (
            " This server listens on this machine only: others reach it through an SSH tunnel, "
            "or open a workspace file."
        )
    st.caption(said)


def draw_save(known: Known) -> None:
    """The workspace file; the rows only where they are asked for."""
    st.header("Save workspace", anchor=False)
    n = len(known.points)
    sweep = ", the sweep" if known.sweep else ""
    measured = f"{many(n, 'measured point')}{sweep}" if n else "nothing measured yet"
    st.markdown(
        f"**{plain(known.name)}**: the plan, counted figures, {measured}. It opens in any "
        "Espalier, also from the command line."
    )
    tokens = known.batch.rows.n_tokens
    with_rows = st.checkbox(
        f"with the rows of the batch, {tokens:,} tokens",
        **kept("share_rows", False),
    )
    st.caption(_READABLE if with_rows else _opens_where(known))
    download(
        "Save workspace",
        lambda: workspace_bytes(known.workspace(), with_rows),
        "workspace.zip",
        "workspace_download",
        icon="save",
    )


def _opens_where(known: Known) -> Markdown:
    source = known.plan.source
    if source.kind == "sample":
        return "The rows are bundled with every Espalier: they need not come along."
    if source.kind == "hub":
        return f"Without its rows it opens where {plain(source.location)} can be downloaded."
    return (
        f"Without its rows it opens where {plain(source.location)} is the same file; elsewhere "
        "it shows its results alone."
    )
