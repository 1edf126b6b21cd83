"""Tokens as coloured text, special tokens visible, nothing in them taken for HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
import streamlit as st

from packing.rows import IntArray, Rows
from pages.shared.text import Html


def draw(
    rows: Rows,
    ids: IntArray,
    loss_mask: IntArray | None = None,
    pieces: Sequence[str] | None = None,
) -> None:
    """One coloured span a token; tokens that are not trained on are dim where that is known.

    pieces: text of each token; read one by one through the rows' decoder by default.
    """
    texts = pieces if pieces is not None else [rows.text([int(t)]) for t in np.asarray(ids)]
    spans = []
    for i, text in enumerate(texts):
        kind = f"t{i % 2}"
        if text.startswith("<|") and text.endswith("|>"):
            kind = "special"
        if loss_mask is not None and not loss_mask[i]:
            kind += " off"
        gap = "" if rows.decoder else " "
        spans.append(f'<span class="{kind}" title="{int(ids[i])}">{_visible(text)}</span>{gap}')
    st.html(f'<div class="token-text" tabindex="0">{"".join(spans)}</div>')


def draw_divergence(
    rows: Rows, before: Sequence[int], piece: Sequence[int], after: Sequence[int]
) -> None:
    """What stands before, the piece that differs (marked), and the equal text that follows."""
    marked = html.escape(rows.text(piece)) or "(nothing)"
    shared = f'<span class="off">…{_visible(rows.text(before))}</span>'
    follows = f"<mark>{marked}</mark>{_visible(rows.text(after))}…"
    st.html(f'<div class="token-text" tabindex="0">{shared}{follows}</div>')


def _visible(text: str) -> Html:
    """Escaped, with line breaks shown as well as made."""
    return html.escape(text).replace("\n", "⏎\n")
