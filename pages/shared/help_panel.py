"""The words of this field, each with a tiny picture."""

from __future__ import annotations

import streamlit as st

from pages.shared.text import Html, plain

_GREEN, _LIGHT, _GREY, _RED = "#14806a", "#8fc7b0", "var(--grey)", "var(--red)"


def _svg(*boxes: tuple[float, float, float, float, Html]) -> Html:
    drawn = "".join(
        f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="1.5" fill="{c}"/>'
        for x, y, w, h, c in boxes
    )
    return f'<svg viewBox="0 0 96 40" width="96" height="40" aria-hidden="true">{drawn}</svg>'


_TREE = [
    (2, 4, 40, 9, _GREEN),
    (44, 4, 24, 9, _LIGHT),
    (44, 16, 36, 9, _LIGHT),
    (44, 28, 14, 9, _LIGHT),
]
_ROWS = [(2, y, 40, 9, _GREEN) for y in (4, 16, 28)]
_TAILS = [(44, 4, 24, 9, _LIGHT), (44, 16, 36, 9, _LIGHT), (44, 28, 14, 9, _LIGHT)]
_FRAME = (0, 12, 94, 16, _GREY)

WORDS = {
    "row": (
        "One training sequence: prompt and completion. Samples of one prompt form a group.",
        _svg(*_ROWS, *_TAILS),
    ),
    "trie": (
        "Rows that start with the same tokens share them; where they part, the trie branches. "
        "A shared token is computed once.",
        _svg(*_TREE),
    ),
    "tree_token_ratio": (
        "Tokens in the trees ÷ tokens in the rows. AReaL logs it. Lower is better; its reciprocal "
        "is the prefix reuse. It leaves padding out.",
        _svg(*_TREE),
    ),
    "max_tokens_per_mb": (
        "The most tokens of one tree. Small: prompts are repeated in many trees. Large: more "
        "sharing, more memory, and more padding in the last trees.",
        _svg(_FRAME, (2, 14, 70, 12, _GREEN)),
    ),
    "paid": (
        "Every tree is padded to max_tokens_per_mb, and all ranks run as many trees as the slowest "
        "one. Paid tokens count all of that.",
        _svg(_FRAME, (2, 14, 60, 12, _GREEN)),
    ),
    "fill": (
        "Tokens in trees ÷ room in trees. The rest is padding, computed and thrown away.",
        _svg(_FRAME, (2, 14, 60, 12, _GREEN)),
    ),
    "dummy tree": (
        "An empty tree, all padding, that a rank runs so that it stays in step with a rank that "
        "has more trees.",
        _svg((0, 2, 94, 16, _GREY), (2, 4, 80, 12, _GREEN), (0, 22, 94, 16, _GREY)),
    ),
    "block efficiency": (
        "Attention works in tiles of the mask. Visible pairs ÷ pairs in the tiles that must be "
        "visited; the rest is masked work.",
        _svg(
            (2, 2, 36, 36, _GREY),
            (4, 4, 32, 16, _GREEN),
            (44, 2, 36, 36, _GREY),
            (46, 4, 32, 32, _GREEN),
        ),
    ),
    "step": (
        "One training step on the whole batch of one rank: forward, loss, backward of every "
        "micro-batch, and the optimizer.",
        _svg((2, 14, 30, 12, _GREEN), (34, 14, 44, 12, _LIGHT), (80, 14, 12, 12, _RED)),
    ),
    "divergence": (
        "A place where rows part although almost the same text follows: a date or an id early in "
        "the prompt, stripped reasoning, another tokenisation.",
        _svg(
            (2, 8, 30, 9, _GREEN),
            (34, 8, 6, 9, _RED),
            (42, 8, 48, 9, _LIGHT),
            (34, 22, 6, 9, _RED),
            (42, 22, 48, 9, _LIGHT),
        ),
    ),
}


def draw(*words: str) -> None:
    """A panel that explains these words."""
    with st.expander("What the words mean", icon=":material/help:"):
        for word in words:
            text, picture = WORDS[word]
            left, right = st.columns([1, 8], vertical_alignment="center")
            left.html(picture)
            right.markdown(f"**{plain(word)}** — {plain(text)}")
